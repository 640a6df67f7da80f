"""An app as its manifest, its Xcode projects and its resolved versions describe it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import msgspec

from h2o_pack.coexistence import openstep
from h2o_pack.doctor.machine import Surroundings
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import identity
from h2o_pack.vendoring.vendor import RESOLVED

Version = tuple[int, ...]
NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def version(text: str) -> Version:
    """Return "602.0.0-beta" as (602, 0, 0); () where there is no number."""
    found = NUMBERS.match(text.removeprefix("v"))
    return tuple(int(part[:9]) for part in found[0].split(".")) if found else ()


@dataclass(frozen=True)
class Requirement:
    """The versions that somebody takes: at least `low`, less than `high`.

    text: for people. Of a branch or a commit the two are empty.
    """

    text: str
    low: Version = ()
    high: Version = ()

    def allows(self, other: Requirement) -> bool:
        """Whether a version suits both; nothing is known of a branch."""
        known = self.high and other.high
        return not known or max(self.low, other.low) < min(self.high, other.high)


def between(low: str, high: str) -> Requirement:
    """Return the versions from one to before another."""
    return Requirement(f"{low} ..< {high}", version(low), version(high))


def exactly(text: str) -> Requirement:
    """Parse an exact version; a branch name gives an empty range."""
    known = version(text)
    return Requirement(text, known, (*known, 0) if known else ())


def compatible(text: str) -> Requirement:
    """Return the versions that promise the same interface as one: up to the next major."""
    major, minor, *_ = (*version(text), 0, 0)
    return between(text, f"{major + 1}.0.0" if major else f"0.{minor + 1}.0")


@dataclass(frozen=True)
class Dependency:
    """A package that the app uses.

    identity: as SwiftPM has it, by which it tells packages apart. folder: where it is, for one
    of a folder. resolved: the version, or "", of the last resolution. direct: whether the app
    asks for it itself.
    """

    identity: str
    location: str
    requirement: Requirement | None = None
    folder: Path | None = None
    resolved: str = ""
    direct: bool = True


@dataclass(frozen=True)
class App:
    """What was read of an app, from which files, and why others could not be read."""

    folder: Path
    read: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    modules: tuple[str, ...] = ()
    unread: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: App) -> App:
        """Return what two of its files say together."""
        return App(
            self.folder,
            self.read + other.read,
            joined((*self.dependencies, *other.dependencies)),
            tuple(dict.fromkeys(self.modules + other.modules)),
            self.unread | other.unread,
        )


def joined(found: Iterable[Dependency]) -> tuple[Dependency, ...]:
    """Join what was found of the same package: a requirement first, then what was resolved."""
    by_identity: dict[str, Dependency] = {}
    for each in found:
        known = by_identity.get(each.identity)
        if known is None:
            by_identity[each.identity] = each
        elif each.direct and known.direct:  # two projects: the second may ask for another
            by_identity[f"{each.identity} {each.location} {each.requirement}"] = each
        else:
            first, second = (known, each) if known.direct else (each, known)
            by_identity[each.identity] = replace(first, resolved=second.resolved)
    return tuple(by_identity.values())


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


IN_WORKSPACE = f"xcshareddata/swiftpm/{RESOLVED}"


class State(msgspec.Struct):
    """What was chosen."""

    version: str | None = None
    branch: str | None = None
    revision: str | None = None


class Pin(msgspec.Struct):
    """A package, with the keys of all versions of the file."""

    state: State
    location: str = ""
    repositoryURL: str = ""  # noqa: N815  SwiftPM's name


class Pins(msgspec.Struct):
    """Where the first version of the file has them."""

    pins: list[Pin] = []


class Resolved(Pins):
    """The file."""

    object: Pins = msgspec.field(default_factory=Pins)


def read_resolved(folder: Path, path: Path) -> App:
    """Return the packages that a file names; no app asks for those that it alone names."""
    name = path.relative_to(folder).as_posix()
    try:
        read = msgspec.json.decode(path.read_bytes(), type=Resolved)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        return App(folder, unread={name: f"it is not as SwiftPM writes it: {error}"})
    return App(folder, (name,), tuple(map(dependency, read.pins + read.object.pins)))


def dependency(pin: Pin) -> Dependency:
    """Return one package of the file."""
    where, state = pin.location or pin.repositoryURL, pin.state
    chosen = state.version or state.branch or (state.revision or "")[:12]
    return Dependency(identity(where), where, resolved=chosen, direct=False)


NOT_RUN = "it is a program, which runs only with --run-manifest or after a question"


def read_app(folder: Path, machine: Surroundings, *, may_run: bool) -> App:
    """Read an app's manifest, Xcode projects and resolved versions.

    may_run: whether Swift may run the manifest, which is a program, to read it.

    Raises:
        UserError: the folder has none of them.

    """
    folder = folder.resolve()
    if folder.suffix in (".xcodeproj", ".xcworkspace"):
        folder = folder.parent
    projects = sorted(folder.glob("*.xcodeproj"))
    workspaces = [
        *sorted(folder.glob("*.xcworkspace")),
        *(each / "project.xcworkspace" for each in projects),
    ]
    manifest = folder / "Package.swift"
    if not (manifest.is_file() or projects or workspaces):
        raise UserError(
            "no Package.swift and no Xcode project in this folder",
            where=str(folder),
            remedy="Give the folder in which the app's Package.swift or .xcodeproj is.",
            code=ExitCode.USAGE,
        )
    app = App(folder)
    if manifest.is_file() and may_run:
        app = read_manifest(folder, machine)
    elif manifest.is_file():
        app = App(folder, unread={manifest.name: NOT_RUN})
    for project in projects:
        app += read_project(folder, project)
    for path in (folder / RESOLVED, *(each / IN_WORKSPACE for each in workspaces)):
        if path.is_file():
            app += read_resolved(folder, path)
    return app
