"""Find changes of upstream that concern h2o-pack: python -m tools.upstream [--upstream FOLDER].

It reads the installed mlx and mlx-lm or, with --upstream, a folder of clones of mlx, mlx-lm
and the packages in a Vendor folder. It checks the C++ and Python that h2o-pack relies on
(relied_on.toml), attention of mlx-lm's models that routing does not reach, the place of every
edit of the Swift sources, the files that only devices or only simulators compile, privacy
manifests, and licenses. It writes nothing. The exit code is 1 if something has changed.
"""
# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from itertools import product
from pathlib import Path

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import pins
from h2o_pack.files.toml import read_rows
from h2o_pack.vendoring.edits import FOLDER as EDITS_FOLDER
from h2o_pack.vendoring.edits import Edit, Guard, apply_all, edits_of, guarded_files
from h2o_py.families import UNFIT, WITHOUT_SCORES
from tools.upstream.declared import PRIVACY, Drift, drifted_licenses, undeclared

RELIED_ON = Path(__file__).with_name("relied_on.toml")
CASES = tuple(product(("apple", "linux"), ("shared", "offline")))
"""The combinations of conditions under which edits apply; see EditSet.applying."""
MODELS = "mlx_lm/models"


@dataclass(frozen=True)
class ReliedOn:
    """A text that must occur `count` times in a file of upstream; see relied_on.toml."""

    package: str
    file: str
    anchor: str
    used_by: str
    count: int = 1


@dataclass(frozen=True)
class UpstreamReport:
    """A line about each checked package, the names of missing packages, and the differences."""

    packages: tuple[str, ...]
    absent: tuple[str, ...]
    drifted: tuple[Drift, ...]


def check(upstream: Path | None) -> UpstreamReport:
    """Check the installed packages, or the clones in a folder.

    Raises UserError: the folder contains none of the packages.
    """
    python = clones(upstream) if upstream else installed()
    packages: list[str] = []
    drifted: list[Drift] = []
    texts = read_rows(RELIED_ON, "text", ReliedOn)
    for name, folder in python.items():
        mine = [text for text in texts if text.package == name]
        classes = dict(attention(folder / MODELS)) if name == "mlx-lm" else {}
        drifted += lost_texts(folder, mine)
        drifted += unknown_attention(classes)
        version_of_package = "" if upstream else f" {metadata.version(name)}"
        packages.append(line(f"{name}{version_of_package}", len(mine) + len(classes), folder))
    absent = [name for name in ("mlx", "mlx-lm") if name not in python]
    if upstream:
        edits = edits_of(assets.root())
        counts = Counter(edit.package for edit in edits.edits)
        counts.update(guard.package for guard in edits.guards)
        places = {name: upstream / pins()[name].place for name in sorted(counts)}
        there = {name: folder for name, folder in places.items() if folder.is_dir()}
        absent += [name for name in places if name not in there]
        packages += [line(name, counts[name], folder) for name, folder in there.items()]
        for case in CASES:
            for (name, file), file_edits in edits.applying(*case).by_file().items():
                if name in there:
                    drifted += lost_edits(there[name] / file, file_edits)
        for copy in edits.copies:
            clone = upstream / copy.package
            if clone.is_dir():
                drifted += undeclared(clone, copy, assets.root() / PRIVACY)
                drifted += drifted_licenses(clone, copy)
        for guard in edits.guards:
            if guard.package in there:
                drifted += lost_files(there[guard.package], guard)
        if not packages:
            raise UserError(
                f"{upstream} has none of {', '.join(absent)}",
                remedy="Give a folder with clones under these names, or leave --upstream "
                "out to check what is installed.",
                code=ExitCode.USAGE,
            )
    unique = tuple(dict.fromkeys(drifted))
    return UpstreamReport(packages=tuple(packages), absent=tuple(absent), drifted=unique)


def line(package: str, checks: int, folder: Path) -> str:
    """Say how many parts of a package were checked."""
    return f"{package}: {checks} expectations, {folder}"


def installed() -> dict[str, Path]:
    """Return the folders to which the file names of installed packages are relative."""
    folders = {}
    for name, module, inside in (("mlx", "mlx", "include"), ("mlx-lm", "mlx_lm", "..")):
        spec = util.find_spec(module)
        if spec is not None and spec.submodule_search_locations:
            root = Path(next(iter(spec.submodule_search_locations)))
            folders[name] = (root / inside).resolve()
    return folders


def clones(upstream: Path) -> dict[str, Path]:
    """Return the clones of mlx and mlx-lm in a folder; mlx may be mlx-swift's submodule."""
    places = {"mlx": ("mlx", pins()["mlx"].place), "mlx-lm": ("mlx-lm",)}
    return {
        name: upstream / place
        for name, candidates in places.items()
        for place in candidates[::-1]
        if (upstream / place / name.replace("-", "_")).is_dir()
    }


def lost_texts(folder: Path, texts: Iterable[ReliedOn]) -> Iterator[Drift]:
    """Yield the texts of a package that do not occur as often as expected."""
    for text in texts:
        path = folder / text.file
        found = "no such file"
        if path.is_file():
            count = len(re.findall(text.anchor, path.read_text("utf-8"), re.MULTILINE))
            if count == text.count:
                continue
            found = f"matches {count} times instead of {text.count}"
        yield Drift(str(path), text.anchor, found, text.used_by)


def unknown_attention(classes: Mapping[str, bool]) -> list[Drift]:
    """Return the attention classes that routing does not reach and that LISTED lacks."""
    return [
        Drift(
            f"{MODELS}/{name.partition('.')[0]}.py",
            "the keys and values of the cache go unchanged to scaled_dot_product_attention",
            f"{name} uses them in another way",
            "h2o_py/routing.py; h2o_py/families.py lists classes that differ",
        )
        for name, routed in classes.items()
        if not routed and name not in LISTED
    ]


def lost_edits(path: Path, edits: Sequence[Edit]) -> Iterator[Drift]:
    """Yield the anchors of a file's edits that do not match as expected."""
    text = path.read_text("utf-8") if path.is_file() else ""
    package = edits[0].package
    expected = f"the text of {package} {pins()[package].version}"
    try:
        apply_all(text, edits)
    except UserError as error:
        for lost in error.errors:
            yield Drift(str(path), expected, lost.what, EDITS_FOLDER)


def lost_files(folder: Path, guard: Guard) -> Iterator[Drift]:
    """Yield a guard that matches more or fewer files of a package than expected."""
    try:
        guarded_files(folder, guard)
    except UserError as error:
        expected = f"the files of {guard.package} {pins()[guard.package].version}"
        yield Drift(str(folder), expected, str(error), EDITS_FOLDER)


LISTED = frozenset({*UNFIT, *WITHOUT_SCORES, "deepseek_v32.Indexer"})
"""Classes that are known not to pass a cache's result directly to attention. The indexer is
part of an attention that is listed."""


def attention(models: Path) -> Iterator[tuple[str, bool]]:
    """Yield "file.Class" of classes that write to a cache, and whether routing reaches them."""
    for path in sorted(models.glob("*.py")):
        if path.stem == "cache":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and any(map(_fetches, ast.walk(node))):
                yield f"{path.stem}.{node.name}", _can_be_routed(node)


def _can_be_routed(attention: ast.ClassDef) -> bool:
    """Whether the cache's result is passed unchanged to the function that routing replaces."""
    nodes = list(ast.walk(attention))
    fetched = [n for n in nodes if isinstance(n, ast.Assign) and _fetches(n.value)]
    calls = [
        n
        for n in nodes
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Name)
        and n.func.id == "scaled_dot_product_attention"
    ]
    if not fetched or not calls:
        return False
    names = ast.unparse(fetched[0].targets[0]).strip("()").split(", ")
    uncached = {
        inner
        for n in nodes
        if isinstance(n, ast.If) and any(fetched[0] in ast.walk(s) for s in n.body)
        for statement in n.orelse
        for inner in ast.walk(statement)
    }
    changed = [
        n
        for n in nodes
        if isinstance(n, ast.Assign)
        and n.lineno > (fetched[0].end_lineno or 0)
        and n not in uncached
        and any(ast.unparse(target) in names for target in n.targets)
    ]
    passed = all([ast.unparse(a) for a in call.args[1:3]] == names for call in calls)
    return passed and not changed


def _fetches(node: ast.AST) -> bool:
    """Whether this is a call of a cache's update_and_fetch."""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == "update_and_fetch"


def print_report(report: UpstreamReport) -> None:
    """Print the differences, then the checked packages."""
    for drift in report.drifted:
        print(f"{drift.file}: {drift.found}")
        print(f"  expected: {drift.expected}")
        print(f"  relied on by: {drift.used_by}")
    for package in report.packages:
        print(package)
    if report.absent:
        print(f"missing: {', '.join(report.absent)}")
    count = len(report.drifted)
    print(f"differences: {count}" if count else "everything is as expected")


def main(arguments: list[str] | None = None) -> int:
    """Run the checks and print a report; return 1 if something differs, and otherwise 0."""
    parser = argparse.ArgumentParser(prog="python -m tools.upstream", description=__doc__)
    parser.add_argument("--upstream", type=Path, metavar="FOLDER", help="a folder of clones")
    options = parser.parse_args(arguments)
    try:
        report = check(options.upstream)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    print_report(report)
    return int(ExitCode.DIFFERENT) if report.drifted else 0


if __name__ == "__main__":
    sys.exit(main())
