"""Package.swift, as SwiftPM reads it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from h2o_pack.coexistence.app import (
    App,
    Dependency,
    Requirement,
    between,
    exactly,
)
from h2o_pack.doctor.surroundings import Surroundings

MOST_BYTES = 1 << 24


class Range(msgspec.Struct):
    """Versions from one to before another."""

    lowerBound: str  # noqa: N815  SwiftPM's names
    upperBound: str  # noqa: N815


class Wanted(msgspec.Struct):
    """What a manifest asks for; one of these has a value."""

    range: list[Range] = []
    exact: list[str] = []
    branch: list[str] = []
    revision: list[str] = []

    @property
    def versions(self) -> Requirement:
        """The versions that suit."""
        for each in self.range:
            return between(each.lowerBound, each.upperBound)
        for text in self.exact:
            return exactly(text)
        for text in self.branch:
            return Requirement(f"branch {text}")
        return Requirement(f"commit {''.join(self.revision)[:12]}")


class Remote(msgspec.Struct):
    """A package in a repository or a registry."""

    identity: str
    requirement: Wanted
    location: dict[str, list[Any]] = {}


class Local(msgspec.Struct):
    """A package in a folder."""

    identity: str
    path: str


class Entry(msgspec.Struct):
    """One dependency; one of these has a value."""

    sourceControl: list[Remote] = []  # noqa: N815
    registry: list[Remote] = []
    fileSystem: list[Local] = []  # noqa: N815


class Target(msgspec.Struct):
    """A target."""

    name: str


class Manifest(msgspec.Struct):
    """What `swift package dump-package` prints."""

    dependencies: list[Entry] = []
    targets: list[Target] = []


def read_manifest(folder: Path, machine: Surroundings) -> App:
    """Return what the manifest in an app's folder says, if Swift is there to read it."""
    name = "Package.swift"
    with TemporaryDirectory() as scratch:
        where = ("--package-path", str(folder), "--scratch-path", scratch)
        ran = machine.run("swift", "package", *where, "dump-package", most=MOST_BYTES)
    if ran is None:
        return App(folder, unread={name: "Swift, which reads it, is missing"})
    start = ran.said.find("\n{") + 1 if not ran.said.startswith("{") else 0
    try:
        manifest = msgspec.json.decode(ran.said[start:].encode(), type=Manifest)
    except msgspec.DecodeError:
        return App(folder, unread={name: f"Swift cannot read it: {ran.line}"})
    return App(
        folder,
        (name,),
        tuple(each for entry in manifest.dependencies for each in dependencies(entry)),
        tuple(target.name for target in manifest.targets),
    )


def dependencies(entry: Entry) -> list[Dependency]:
    """Return what one entry of a manifest asks for."""
    remote, local = (*entry.sourceControl, *entry.registry), entry.fileSystem
    return [
        *(
            Dependency(each.identity, address(each), each.requirement.versions)
            for each in remote
        ),
        *(Dependency(each.identity, each.path, folder=Path(each.path)) for each in local),
    ]


def address(remote: Remote) -> str:
    """Return the address of a repository; a registry's package has none."""
    for place in (each for places in remote.location.values() for each in places):
        return str(place.get("urlString", "")) if isinstance(place, dict) else str(place)
    return remote.identity
