"""Finds what drifted in upstream, all at once, and writes nothing."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from importlib import metadata, util
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from h2o_pack import assets
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.facts import pins
from h2o_pack.files.toml import read_tables
from h2o_pack.results import Count, Result, doc
from h2o_pack.upstream.attention import LISTED, attention
from h2o_pack.upstream.licenses import drifted_licenses
from h2o_pack.upstream.privacy import NAME, undeclared
from h2o_pack.vendoring.edits import FOLDER as EDITS_FOLDER
from h2o_pack.vendoring.edits import apply_all, edits_of
from h2o_pack.vendoring.guards import guarded_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from h2o_pack.vendoring.edits import EditSet, Guard

RELIED_ON = Path(__file__).with_name("relied_on.toml")
CASES = tuple(product(("apple", "linux"), ("shared", "offline")))
"""The conditions under which edits are made: see EditSet.applying."""
MODELS = "mlx_lm/models"
PRIVACY = f"swift_templates/H2OKit/{NAME}"


@dataclass(frozen=True)
class ReliedOn:
    """A text of upstream that must be there `count` times; see the head of relied_on.toml."""

    package: str
    file: str
    anchor: str
    used_by: str
    count: int = 1


@dataclass(frozen=True)
class ReliedOnFile:
    """relied_on.toml."""

    text: tuple[ReliedOn, ...]


@dataclass(frozen=True)
class Drift:
    """Something that is not as h2o-pack expects it."""

    file: Annotated[str, doc("Where.")]
    expected: Annotated[str, doc("What should be there, as a regular expression.")]
    found: Annotated[str, doc("What is there instead.")]
    used_by: Annotated[str, doc("What relies on it.")]


@dataclass(frozen=True)
class Looked:
    """What was looked at in one package."""

    package: Annotated[str, doc("Name.")]
    where: Annotated[str, doc("Its folder.")]
    version: Annotated[str, doc("Installed version; empty in a clone.")]
    expectations: Annotated[Count, doc("How many things were looked for.")]


@dataclass(frozen=True, kw_only=True)
class UpstreamResult(Result):
    """What drifted."""

    looked: Annotated[tuple[Looked, ...], doc("What was looked at.")]
    absent: Annotated[tuple[str, ...], doc("Packages that are not there to look at.")]
    drifted: Annotated[tuple[Drift, ...], doc("Everything that is not as expected.")]


def check(upstream: Path | None, version: str = "") -> UpstreamResult:
    """Compare what is installed, or the clones in a folder, with what h2o-pack relies on.

    version: the upstream version whose edits the clones should take; the default one if it
    is not given. Raises UserError for a folder without any of the packages.
    """
    python = clones(upstream) if upstream else installed()
    looked: list[Looked] = []
    drifted: list[Drift] = []
    texts = read_tables(RELIED_ON, ReliedOnFile).text
    for name, folder in python.items():
        mine = [each for each in texts if each.package == name]
        classes = dict(attention(folder / MODELS)) if name == "mlx-lm" else {}
        drifted += [drift for each in mine if (drift := drift_of(folder, each))]
        drifted += unknown_attention(classes)
        found = "" if upstream else metadata.version(name)
        looked.append(Looked(name, str(folder), found, len(mine) + len(classes)))
    absent = [name for name in ("mlx", "mlx-lm") if name not in python]
    if upstream:
        edits = edits_of(assets.root(), version)
        counts = Counter(edit.package for edit in edits.edits)
        counts.update(guard.package for guard in edits.guards)
        places = {name: upstream / pins(version)[name].place for name in sorted(counts)}
        there = {name: folder for name, folder in places.items() if folder.is_dir()}
        absent += [name for name in places if name not in there]
        looked += [Looked(name, str(at), "", counts[name]) for name, at in there.items()]
        for (name, file), its in edits.by_file().items():
            if name in there:
                drifted += lost_edits(there[name] / file, its)
        drifted += undeclared_uses(upstream, edits)
        drifted += other_licenses(upstream, edits, version)
        for guard in edits.guards:
            if guard.package in there:
                drifted += lost_files(there[guard.package], guard)
        if not looked:
            raise UserError(
                f"{upstream} has none of {', '.join(absent)}",
                remedy="Give a folder with clones under these names, or nothing for what is "
                "installed.",
                code=ExitCode.USAGE,
            )
    unique = tuple(dict.fromkeys(drifted))
    return UpstreamResult(looked=tuple(looked), absent=tuple(absent), drifted=unique)


def installed() -> dict[str, Path]:
    """Return the folders that the installed packages' files are relative to."""
    found = {}
    for name, module, inside in (("mlx", "mlx", "include"), ("mlx-lm", "mlx_lm", "..")):
        spec = util.find_spec(module)
        if spec is not None and spec.submodule_search_locations:
            found[name] = (Path(next(iter(spec.submodule_search_locations))) / inside).resolve()
    return found


def clones(upstream: Path) -> dict[str, Path]:
    """Return the clones of mlx and mlx-lm in a folder; mlx may be mlx-swift's submodule."""
    places = {"mlx": ("mlx", pins()["mlx"].place), "mlx-lm": ("mlx-lm",)}
    return {
        name: upstream / place
        for name, candidates in places.items()
        for place in candidates[::-1]
        if (upstream / place / name.replace("-", "_")).is_dir()
    }


def drift_of(folder: Path, expected: ReliedOn) -> Drift | None:
    """Return what is wrong with a text, None where it is as expected."""
    path = folder / expected.file
    if not path.is_file():
        return Drift(str(path), expected.anchor, "no such file", expected.used_by)
    text = path.read_text("utf-8")
    count = len(re.findall(expected.anchor, text, re.MULTILINE))
    if count == expected.count:
        return None
    return Drift(
        str(path),
        expected.anchor,
        f"matches {count} times instead of {expected.count}",
        expected.used_by,
    )


def unknown_attention(classes: Mapping[str, bool]) -> list[Drift]:
    """Return the attention that routing does not reach and that nothing lists."""
    return [
        Drift(
            f"{MODELS}/{name.partition('.')[0]}.py",
            "what the cache returns goes straight to scaled_dot_product_attention",
            f"{name} does something else with it",
            "h2o_py/families.py and interface/families.toml list such classes",
        )
        for name, routed in classes.items()
        if not routed and name not in LISTED
    ]


def undeclared_uses(upstream: Path, edits: EditSet) -> Iterator[Drift]:
    """Yield the uses of APIs that the package's privacy manifest does not name."""
    manifest = assets.root() / PRIVACY
    for copy in edits.copies:
        for path, symbol in undeclared(upstream / copy.package, copy, manifest):
            yield Drift(
                str(path),
                "no API whose use needs a reason, but for those of privacy.toml",
                f"uses {symbol}",
                PRIVACY,
            )


def other_licenses(upstream: Path, edits: EditSet, version: str) -> Iterator[Drift]:
    """Yield the licenses that are not as the acknowledgements of packages have them."""
    for copy in edits.copies:
        clone = upstream / copy.package
        if clone.is_dir():
            for path, found in drifted_licenses(clone, copy, version):
                yield Drift(str(path), "what components.toml states", found, "acknowledgements")


def lost_edits(path: Path, edits: EditSet) -> Iterator[Drift]:
    """Yield the anchors of a file's edits that are not found as expected, in any case."""
    text = path.read_text("utf-8") if path.is_file() else ""
    problems = Problems()
    for case in CASES:
        with problems.caught():
            apply_all(text, edits.applying(*case).edits)
    expected = f"the text of {edits.edits[0].package} {edits.edits[0].version}"
    for each in (each for found in problems.found for each in found.errors):
        yield Drift(str(path), expected, each.what, EDITS_FOLDER)


def lost_files(folder: Path, guard: Guard) -> Iterator[Drift]:
    """Yield a guard whose files in a package are more or fewer than they were."""
    try:
        guarded_files(folder, guard)
    except UserError as error:
        yield Drift(str(folder), f"the files of {guard.expected}", str(error), EDITS_FOLDER)
