"""project.pbxproj: the packages and targets of an Xcode project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from h2o_pack.coexistence import openstep
from h2o_pack.coexistence.app import (
    App,
    Dependency,
    Requirement,
    between,
    exactly,
    version,
)
from h2o_pack.facts.coexistence import identity

Table: TypeAlias = "dict[str, openstep.Value]"

TARGETS = ("PBXNativeTarget", "PBXAggregateTarget", "PBXLegacyTarget")


def read_project(folder: Path, project: Path) -> App:
    """Return what a project in an app's folder says."""
    path = project / "project.pbxproj"
    name = path.relative_to(folder).as_posix()
    try:
        objects = table(table(openstep.read(path.read_text("utf-8"))).get("objects", {}))
    except (OSError, ValueError, IndexError, RecursionError):
        return App(folder, unread={name: "it is not as Xcode writes it"})
    every = [table(each) for each in objects.values()]
    return App(
        folder,
        (name,),
        tuple(each for one in every for each in packages(one, project.parent)),
        tuple(text(each, "name") for each in every if text(each, "isa") in TARGETS),
    )


def packages(entry: Table, parent: Path) -> Iterator[Dependency]:
    """Yield the package that an object of the project refers to, if it does."""
    kind = text(entry, "isa")
    if kind == "XCRemoteSwiftPackageReference":
        where = text(entry, "repositoryURL")
        wanted = requirement(table(entry.get("requirement", {})))
        yield Dependency(identity(where), where, wanted)
    elif kind == "XCLocalSwiftPackageReference":
        place = (parent / text(entry, "relativePath")).resolve()
        yield Dependency(identity(place.name), str(place), folder=place)


def requirement(wanted: Table) -> Requirement:
    """Return the versions that a reference takes."""
    kind, least = text(wanted, "kind"), text(wanted, "minimumVersion")
    if kind == "upToNextMajorVersion":
        return between(least, f"{(*version(least), 0)[0] + 1}.0.0")
    if kind == "upToNextMinorVersion":
        major, minor, *_ = (*version(least), 0, 0)
        return between(least, f"{major}.{minor + 1}.0")
    if kind == "versionRange":
        return between(least, text(wanted, "maximumVersion"))
    if kind == "exactVersion":
        return exactly(text(wanted, "version"))
    if kind == "branch":
        return Requirement(f"branch {text(wanted, 'branch')}")
    return Requirement(f"commit {text(wanted, 'revision')[:12]}")


def table(value: openstep.Value) -> Table:
    """Return a value that is a dictionary; anything else is taken for an empty one."""
    return value if isinstance(value, dict) else {}


def text(entry: Table, key: str) -> str:
    """Return a value that is text; anything else is taken for none."""
    value = entry.get(key, "")
    return value if isinstance(value, str) else ""
