"""facts/coexistence.toml: what happens to packages that an app uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from h2o_pack.facts import FOLDER
from h2o_pack.files.toml import read_tables


@dataclass(frozen=True)
class Known:
    """A package of ours, or one that the copies in Vendor take the place of."""

    name: str
    modules: tuple[str, ...]
    source: str
    measured: bool


@dataclass(frozen=True)
class Shared(Known):
    """A package of which SwiftPM chooses one version for everybody, from low to before high."""

    low: str
    high: str


@dataclass(frozen=True)
class RefusedPackage:
    """A package that cannot be in an app beside ours."""

    name: str
    what: str
    remedy: str
    source: str
    measured: bool


@dataclass(frozen=True)
class CoexistenceFile:
    """The file."""

    own: tuple[Known, ...]
    replaced: tuple[Known, ...]
    shared: tuple[Shared, ...]
    refused: tuple[RefusedPackage, ...]


@cache
def coexistence() -> CoexistenceFile:
    """Return what the file says."""
    return read_tables(FOLDER / "coexistence.toml", CoexistenceFile)


def identity(location: str) -> str:
    """Return the name by which SwiftPM knows a package: the last part of its address."""
    last = re.split(r"[/:\\]", location.rstrip("/"))[-1]
    return last.removesuffix(".git").lower()
