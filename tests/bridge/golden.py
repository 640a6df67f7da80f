"""The text of generated packages, and of pages of made-up results, as in tests/golden.

`make golden` writes it again; the diff then shows what a change did to it. The demo's package
is committed as a folder, each other package as one file with its differences from the demo's.
Files that the packager copies unchanged from swift_templates are listed by folder. A license's
text and the lock's checksums, which follow from the files, are left out.
"""

import difflib
import io
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

from h2o_pack import assets
from h2o_pack.files import lock, write
from h2o_pack.files.write import Content
from h2o_pack.package.icon import ICON
from h2o_pack.package.render import SWIFT_TEMPLATES, marked
from h2o_pack.spec import CacheSpec, DeliverySpec
from h2o_py.budgets import read_budgets
from tests import ten_minutes
from tests.bridge.plans import plan_of, rendered
from tests.bridge.trees import resolve

FOLDER = Path(__file__).parent.parent / "golden"
COPIED = "copied.txt"
NO_FILE = "(no file)"
MODEL_FILE = "/BundledModel.swift"
PAGES = "pages"
STRANGER = ten_minutes.GOLDEN.name
DEMO, APART, FETCHED = "demo", "demo-asset-pack", "demo-download"
SEVERAL = "demo-and-demo-4bit"
SERVER = "https://models.example.com/demo/1"
BUDGETS = {
    "format": 1,
    "layers": [
        {"heavy_budget": 20, "recent_budget": 40},
        None,
        {"heavy_budget": 16, "recent_budget": 24, "max_size": 48},
        {"heavy_budget": 32, "recent_budget": 40, "max_size": 80},
    ],
}
PACKAGES = {
    DEMO: CacheSpec(max_kv=64),
    "demo-k8v4": CacheSpec(max_kv=64, kv="k8v4", settings={"pinned": ((0, 8), (20, 22))}),
    "demo-recall": CacheSpec(
        max_kv=64, kv="8", recall=True, archive="files", archive_limit=1 << 20, recall_ask=48
    ),
    "demo-every-token": CacheSpec(kv="8"),
    APART: CacheSpec(max_kv=64),
    FETCHED: CacheSpec(max_kv=64),
    SEVERAL: CacheSpec(max_kv=64, kv="8"),
}


def golden_files(name: str) -> dict[str, str]:
    """Return {path below FOLDER: text} of what is committed for a package, or for PAGES."""
    if name == STRANGER:
        return {name: ten_minutes.transcript()}
    if name in (DEMO, PAGES):
        texts = pages() if name == PAGES else abridged(DEMO)
        return {f"{name}/{path}": text for path, text in texts.items()}
    return {f"{name}.diff": difference(name)}


def difference(name: str) -> str:
    """Return how a package differs from the demo's, file by file.

    Hunks have no line numbers, which would change with every line added to the demo's files.
    """
    demo, package = abridged(DEMO), abridged(name)
    originals = {path.replace(module(DEMO), module(name)): path for path in demo}
    lines = []
    for path in sorted({*originals, *package}):
        old, new = originals.get(path, NO_FILE), path if path in package else NO_FILE
        before, after = demo.get(old, "").splitlines(), package.get(new, "").splitlines()
        changes = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
        if changes or old != new:
            lines += [f"--- {old}", f"+++ {new}"]
        if new != NO_FILE:
            lines += ["@@" if line.startswith("@@") else line for line in changes]
    return "\n".join(lines) + "\n"


@cache
def abridged(name: str) -> dict[str, str]:
    """Return {path: text} of a package's files that have values filled in, and COPIED."""
    templates = assets.root() / SWIFT_TEMPLATES
    originals = copies(templates)
    sources, texts, pictures = {}, {}, ""
    for path, content in package_files(name).items():
        if isinstance(content, bytes):
            assert path.endswith(ICON), path
            pictures = f"{path} <- bridge/h2o_pack/package/icon.py\n"
        elif content in originals:
            sources[path] = originals[content]
        else:
            texts[path] = shortened(path, content)
    return {**texts, COPIED: copied_folders(sources, templates) + pictures}


def shortened(path: str, text: str) -> str:
    """Leave out the lock's checksums and texts of licenses."""
    if path == lock.NAME:
        record = json.loads(text)
        record |= {"app": {"(path)": "(sha256)"}, "files": {"(path)": "(sha256)"}}
        return re.sub(r'"[0-9a-f]{64}"', '"(sha256)"', json.dumps(record, indent=2)) + "\n"
    if path.endswith("Acknowledgements.swift"):
        license_text = re.compile(r'(    static let \w+ = """\n).*?(\n +""")', re.DOTALL)
        return license_text.sub(r"\1        (text)\2", text)
    return text


def copies(templates: Path) -> dict[str, Path]:
    """Return {text in a package: source} of the files that have no values to fill in."""
    return {
        marked(path.as_posix(), (templates / path).read_text("utf-8")): path
        for path in unfilled(templates)
    }


def unfilled(templates: Path) -> set[Path]:
    """Return the paths of all sources that are not templates."""
    files = {path for path in templates.rglob("*") if path.is_file() and path.suffix != ".j2"}
    return {path.relative_to(templates) for path in files}


def copied_folders(copied: dict[str, Path], templates: Path) -> str:
    """Return a line for each folder of a package whose files are copied: from which folder.

    The line names the files of the source folder that are not copied there.
    """
    folders = defaultdict(set)
    for path, source in copied.items():
        target, folder = Path(path).parent, source.parent
        while target.name == folder.name and len(folder.parts) > 1:
            target, folder = target.parent, folder.parent
        folders[target, folder].add(source)
    lines = []
    for (target, folder), sources in sorted(folders.items()):
        below = {path for path in unfilled(templates) if path.is_relative_to(folder)}
        left_out = sorted(path.relative_to(folder).as_posix() for path in below - sources)
        without = f" without {', '.join(left_out)}" if left_out else ""
        lines.append(f"{target.as_posix()} <- {SWIFT_TEMPLATES}/{folder.as_posix()}{without}\n")
    return "".join(lines)


@cache
def package_files(name: str) -> dict[str, Content]:
    """Return {path: content} of all generated files of a package."""
    options = PACKAGES[name]
    if options.kv and options.max_kv and name != SEVERAL:
        recall = {"recall": [3]} if options.recall else {}
        options = replace(options, budgets=read_budgets({**BUDGETS, **recall}, "budgets"))
    delivery = DeliverySpec(name == APART, SERVER if name == FETCHED else "")
    models = ["demo-4bit", DEMO] if name == SEVERAL else [DEMO]
    return rendered(plan_of([resolve(model) for model in models], options, delivery=delivery))


def module(name: str) -> str:
    """Return the name of a package's module that has its model."""
    [folder] = {Path(path).parts[1] for path in package_files(name) if MODEL_FILE in path}
    return folder


def pages() -> dict[str, str]:
    """Return what people are shown of made-up results, and of calls that are refused."""
    # The packages need none of this.
    from h2o_pack.doctor.finding import Checkup, ok, print_checkup, problem
    from h2o_pack.parity import parity_report
    from tests.bridge.parity.test_report import REPORT
    from tests.bridge.refused_calls import transcript
    from tests.h2o_py.test_config import refusals
    from tests.interface.test_source import contradictions

    def shown(tell: Callable[[Any, Console], None], result: Any) -> str:
        console = Console(width=100, record=True, soft_wrap=True, file=io.StringIO())
        tell(result, console)
        return console.export_text()

    findings = (ok("2.39", "git"), problem("too [old]", "Install it.", "Python", blocks=True))
    return {
        "configurations.txt": refusals(),
        "contradictions.txt": contradictions(),
        "doctor.txt": shown(print_checkup, Checkup(findings)),
        "parity.txt": shown(parity_report.print_report, REPORT),
        "refusals.txt": transcript(),
    }


def update() -> None:
    """Write the committed text anew."""
    for name in (*PACKAGES, PAGES, STRANGER):
        files = golden_files(name)
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        write.write_files(FOLDER, files)


if __name__ == "__main__":
    update()
