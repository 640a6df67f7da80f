"""The packages, and pages of made-up results, whose text is committed in tests/golden.

`make golden` writes it anew; what it changed is then seen in the diff. A file that the
packager copies unchanged from swift_templates, or that is as in the demo's package, is
listed with its source and not committed twice. The lock's checksums, which follow from the
files, are left out, and a trace's arrays, which another processor rounds otherwise.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from h2o_pack import assets
from h2o_pack.architectures.model import Model
from h2o_pack.files import lock, write
from h2o_pack.files.layout import TRACES_FOLDER
from h2o_pack.hub.resolve import resolve
from h2o_pack.models.local import from_folder
from h2o_pack.package.contents import TEMPLATES
from h2o_pack.package.icon import ICON
from h2o_pack.package.render import SWIFT_TEMPLATES, marked, render
from h2o_pack.package.several import together
from h2o_pack.plan.package_plan import CacheOptions, make_plan
from tests.bridge.models.checkpoints import sparse_checkpoint
from tests.bridge.trees import build_tree

FOLDER = Path(__file__).parent.parent / "golden"
COPIED = "copied.txt"
PICTURES = {ICON: "bridge/h2o_pack/package/icon.py"}
"""What makes the files that are not text."""
PAGES = "pages"
DEMO, LARGE, APART, FETCHED = "demo", "Qwen3-4B-4bit", "demo-asset-pack", "demo-download"
SEVERAL = "demo-and-demo-4bit"
SERVER = "https://models.example.com/demo/1"
WEIGHTS = 2_263_022_529  # as published
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
    DEMO: CacheOptions(max_kv=64),
    "demo-k8v4": CacheOptions(max_kv=64, kv="k8v4", settings={"pinned": ((0, 8), (20, 22))}),
    "demo-recall": CacheOptions(
        max_kv=64, kv="8", recall=True, archive="files", archive_limit=1 << 20
    ),
    APART: CacheOptions(max_kv=64),
    FETCHED: CacheOptions(max_kv=64),
    SEVERAL: CacheOptions(max_kv=64, kv="8"),
    LARGE: CacheOptions(max_kv=512),
}


def golden_files(name: str) -> dict[str, str]:
    """Return {path: text} of what is committed for a package, COPIED among it, or PAGES."""
    if name == PAGES:
        return pages()
    root = assets.root()
    with tempfile.TemporaryDirectory() as scratch:
        model = large_model(Path(scratch)) if name == LARGE else resolve(DEMO)
        options = PACKAGES[name]
        if options.kv != "dense" and name != SEVERAL:
            budgets = Path(scratch) / "budgets.json"
            recall = {"recall": [3]} if options.recall else {}
            budgets.write_text(json.dumps({**BUDGETS, **recall}), "utf-8")
            options = replace(options, budgets=budgets)
        download = SERVER if name == FETCHED else ""
        plan = make_plan(model, options, asset_pack=name == APART, download=download)
        if name == SEVERAL:
            plan = together([make_plan(resolve("demo-4bit"), options), plan])
        files = {
            path: without_arrays(text) if f"/{TRACES_FOLDER}/" in path else text
            for path, text in render(plan, root, TEMPLATES).items()
        }
    demo = {} if name == DEMO else golden_files(DEMO)
    committed: dict[str, str] = {}
    copied = []
    originals = copies(root / SWIFT_TEMPLATES)
    for path, text in files.items():
        if isinstance(text, bytes):
            copied.append(f"{path} <- {PICTURES[path.rpartition('/')[2]]}")
        elif text in originals:
            copied.append(f"{path} <- {originals[text].relative_to(root).as_posix()}")
        elif demo.get(path) == text:
            copied.append(f"{path} <- tests/golden/{DEMO}/{path}")
        else:
            committed[path] = text
    committed[lock.NAME] = re.sub(r'"[0-9a-f]{64}"', '"(sha256)"', committed[lock.NAME])
    return {**committed, COPIED: "\n".join(copied) + "\n"}


def without_arrays(trace: str) -> str:
    """Leave the arrays out of a trace."""
    return re.sub(r'"[A-Za-z0-9+/=]{200,}"', '"(arrays)"', trace)


def pages() -> dict[str, str]:
    """Return what people are shown of made-up results, and of calls that are refused."""
    from docs.docgen import guidance  # the packages need none of this
    from h2o_pack.doctor.finding import Checkup, ok, problem
    from h2o_pack.doctor.tables import print_checkup
    from h2o_pack.measure.bench import page, report_tables
    from h2o_pack.parity import report
    from tests.bridge.measure.test_bench import made_up
    from tests.bridge.refused_calls import transcript
    from tests.bridge.test_report import REPORT
    from tests.docs.test_guidance import evaluation
    from tests.h2o_py.test_config import refusals
    from tests.interface.test_source import contradictions

    def shown(tell: Callable[[Any, Console], None], result: Any) -> str:
        console = Console(width=100, record=True, soft_wrap=True, file=io.StringIO())
        tell(result, console)
        return console.export_text()

    findings = (ok("git", "2.39"), problem("Python", "too [old]", "Install it.", blocks=True))
    found = evaluation({"1/8": 0.5, "1/2": 1.0, "1/4": 0.97}, {"1/4": 0.8})
    return {
        "bench.md": page.render(made_up()),
        "bench.txt": shown(report_tables.print_report, made_up()),
        "choosing-max-kv.md": guidance.measured(found),
        "configurations.txt": refusals(),
        "contradictions.txt": contradictions(),
        "doctor.txt": shown(print_checkup, Checkup(findings)),
        "parity.txt": shown(report.print_report, REPORT),
        "refusals.txt": transcript(),
    }


def copies(folder: Path) -> dict[str, Path]:
    """Return {text in a package: source} of the files that have no values to fill in."""
    sources = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".j2"]
    return {
        marked(path.relative_to(folder).as_posix(), path.read_text("utf-8")): path
        for path in sources
    }


def large_model(folder: Path) -> Model:
    """Describe a model by its committed config; its weights take no room on the disk."""
    config = (FOLDER / "models" / LARGE / "config.json").read_text("utf-8")
    build_tree(folder, {"config.json": config, "tokenizer.json": "{}"})
    sparse_checkpoint(folder / "model.safetensors", {"weights": ("U8", [WEIGHTS])})
    return from_folder(LARGE, folder)


def update() -> None:
    """Write the committed text anew."""
    for name in (*PACKAGES, PAGES):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        write.write_files(FOLDER / name, golden_files(name))


if __name__ == "__main__":
    update()
