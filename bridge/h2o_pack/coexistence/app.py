"""Reads an app's dependencies from its manifest, Xcode projects and resolved versions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from h2o_pack.doctor.machine import Surroundings, as_version
from h2o_pack.errors import usage_error
from h2o_pack.facts import identity
from h2o_pack.files.text import once, read_file
from h2o_pack.vendoring.vendor import RESOLVED

Version = tuple[int, ...]
NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def version(text: str) -> Version:
    """Return "602.0.0-beta" as (602, 0, 0); () without a number."""
    match = NUMBERS.match(text.removeprefix("v"))
    return as_version(match[0]) if match else ()


@dataclass(frozen=True)
class Requirement:
    """The versions that a dependency allows: at least `low`, less than `high`.

    For a branch, a commit or no requirement, `low` and `high` are empty: all versions fit.
    """

    text: str = ""
    low: Version = ()
    high: Version = ()

    def allows(self, other: Requirement) -> bool:
        """Whether a version can satisfy both requirements."""
        have_limits = self.high and other.high
        return not have_limits or max(self.low, other.low) < min(self.high, other.high)


def between(low: str, high: str) -> Requirement:
    """Return the range of versions from `low`, included, to `high`, not included."""
    return Requirement(f"{low} ..< {high}", version(low), version(high))


def exactly(text: str) -> Requirement:
    """Parse an exact version; a branch name gives an empty range."""
    parsed = version(text)
    return Requirement(text, parsed, (*parsed, 0) if parsed else ())


def compatible(text: str) -> Requirement:
    """Return the compatible versions: from a version up to the next major version."""
    major, minor, *_ = (*version(text), 0, 0)
    return between(text, f"{major + 1}.0.0" if major else f"0.{minor + 1}.0")


@dataclass(frozen=True)
class Dependency:
    """A package that the app uses.

    identity: the name by which SwiftPM distinguishes packages. folder: the folder of a local
    package. resolved: the version in Package.resolved, or "". direct: whether the app itself
    depends on it.
    """

    identity: str
    location: str
    requirement: Requirement = Requirement()
    folder: Path | None = None
    resolved: str = ""
    direct: bool = True


@dataclass(frozen=True)
class App:
    """The dependencies and modules that were read from an app's files.

    read: the files that were read. unread: reasons why other files could not be read, by name.
    systems: the oldest versions that it supports, by the name of the system ("ios"), each with
    the file that says so.
    """

    folder: Path
    read: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    modules: tuple[str, ...] = ()
    unread: dict[str, str] = field(default_factory=dict)
    systems: tuple[tuple[str, str, str], ...] = ()

    def __add__(self, other: App) -> App:
        """Combine the contents of two files of the app."""
        return App(
            self.folder,
            self.read + other.read,
            joined((*self.dependencies, *other.dependencies)),
            tuple(dict.fromkeys(self.modules + other.modules)),
            self.unread | other.unread,
            tuple(dict.fromkeys(self.systems + other.systems)),
        )


def joined(dependencies: Iterable[Dependency]) -> tuple[Dependency, ...]:
    """Combine the entries of each package: its requirement with its resolved version."""
    by_identity: dict[str, Dependency] = {}
    for dependency in dependencies:
        earlier = by_identity.get(dependency.identity)
        if earlier is None:
            by_identity[dependency.identity] = dependency
        elif dependency.direct and earlier.direct:  # two projects may require two versions
            key = f"{dependency.identity} {dependency.location} {dependency.requirement}"
            by_identity[key] = dependency
        else:
            first, second = (earlier, dependency) if earlier.direct else (dependency, earlier)
            by_identity[dependency.identity] = replace(first, resolved=second.resolved)
    return tuple(by_identity.values())


MOST_BYTES = 1 << 24
Table = dict[str, Any]


def table(value: object) -> Table:
    """Return a value if it is a dictionary, and otherwise an empty dictionary."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[Any]:
    """Return a value if it is a list, and otherwise an empty list."""
    return value if isinstance(value, list) else []


def text(entry: object, key: str) -> str:
    """Return a dictionary's value if it is text, and otherwise ""."""
    value = table(entry).get(key, "")
    return value if isinstance(value, str) else ""


def read_manifest(folder: Path, machine: Surroundings) -> App:
    """Read the manifest in an app's folder, which needs Swift."""
    name = "Package.swift"
    with TemporaryDirectory() as scratch:
        where = ("--package-path", str(folder), "--scratch-path", scratch)
        result = machine.run("swift", "package", *where, "dump-package", most=MOST_BYTES)
    if result is None:
        return App(folder, unread={name: "reading Package.swift needs Swift, which is missing"})
    start = result.output.find("\n{") + 1 if not result.output.startswith("{") else 0
    try:
        manifest = json.loads(result.output[start:])
    except (ValueError, RecursionError):
        return App(folder, unread={name: f"Swift cannot read it: {result.line}"})
    entries = rows(table(manifest).get("dependencies"))
    targets = rows(table(manifest).get("targets"))
    return App(
        folder,
        (name,),
        tuple(dependency for entry in entries for dependency in dependencies(table(entry))),
        tuple(filter(None, (text(target, "name") for target in targets))),
        systems=tuple(
            (text(system, "platformName"), text(system, "version"), name)
            for system in rows(table(manifest).get("platforms"))
        ),
    )


def dependencies(entry: Table) -> Iterator[Dependency]:
    """Yield the dependencies in one entry that `swift package dump-package` prints."""
    for source in (*rows(entry.get("sourceControl")), *rows(entry.get("registry"))):
        name = text(source, "identity")
        places = table(table(source).get("location")).values()
        place = next((at for entry in places for at in rows(entry)), name)
        location = text(place, "urlString") if isinstance(place, dict) else str(place)
        yield Dependency(
            name, location, manifest_requirement(table(table(source).get("requirement")))
        )
    for row in rows(entry.get("fileSystem")):
        path = text(row, "path")
        yield Dependency(text(row, "identity"), path, folder=Path(path))


def manifest_requirement(requirement: Table) -> Requirement:
    """Return the versions that a manifest allows."""
    for row in rows(requirement.get("range")):
        return between(text(row, "lowerBound"), text(row, "upperBound"))
    for row in rows(requirement.get("exact")):
        return exactly(str(row))
    for row in rows(requirement.get("branch")):
        return Requirement(f"branch {row}")
    return Requirement(f"commit {''.join(map(str, rows(requirement.get('revision'))))[:12]}")


TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<mark>[{}()=;,]) | "(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<plain>[A-Za-z0-9_$/:.-]+)""",
    re.VERBOSE | re.DOTALL,
)
MARKS = {"{": "{", "}": "}", "(": "[", ")": "]", "=": ":", ";": ",", ",": ","}


def read_openstep(content: str) -> Any:
    """Read a property list in Xcode's old format; ValueError for any other text."""
    parts: list[str] = []
    start = 0
    while start < len(content):
        match = TOKEN.match(content, start)
        if match is None:
            raise ValueError(f"unreadable: {content[start : start + 40]!r}")
        start = match.end()
        mark, quoted, plain = match["mark"], match["quoted"], match["plain"]
        if mark == "}" and parts[-1:] not in ([","], ["{"]):
            raise ValueError("a value of a dictionary does not end with a semicolon")
        if mark in ("}", ")") and parts[-1:] == [","]:
            parts.pop()  # the last element of a list may have a comma too
        if mark:
            parts.append(MARKS[mark])
        elif quoted is not None or plain:
            parts.append(json.dumps(quoted if plain is None else plain))
    return json.loads("".join(parts), object_pairs_hook=once)


SETTINGS = {"IPHONEOS_DEPLOYMENT_TARGET": "ios", "MACOSX_DEPLOYMENT_TARGET": "macos"}
"""The build settings of Xcode with the oldest version of a system, and the system's name."""
TARGETS = ("PBXNativeTarget", "PBXAggregateTarget", "PBXLegacyTarget")


def read_project(folder: Path, project: Path) -> App:
    """Read an Xcode project in an app's folder."""
    path = project / "project.pbxproj"
    name = path.relative_to(folder).as_posix()
    try:
        document = table(read_openstep(read_file(path).decode()))
    except (OSError, ValueError, RecursionError):
        return App(folder, unread={name: "the file does not have the form that Xcode writes"})
    every = table(document.get("objects")).values()
    return App(
        folder,
        (name,),
        tuple(package for entry in every for package in packages(entry, project.parent)),
        tuple(text(entry, "name") for entry in every if text(entry, "isa") in TARGETS),
        systems=tuple(
            (system, text(settings, setting), name)
            for settings in (table(entry).get("buildSettings") for entry in every)
            for setting, system in SETTINGS.items()
            if text(settings, setting)
        ),
    )


def packages(entry: object, parent: Path) -> Iterator[Dependency]:
    """Yield the package to which an object of the project refers, if any."""
    kind = text(entry, "isa")
    if kind == "XCRemoteSwiftPackageReference":
        where = text(entry, "repositoryURL")
        requirement = project_requirement(table(entry).get("requirement"))
        yield Dependency(identity(where), where, requirement)
    elif kind == "XCLocalSwiftPackageReference":
        place = (parent / text(entry, "relativePath")).resolve()
        yield Dependency(identity(place.name), str(place), folder=place)


def project_requirement(requirement: object) -> Requirement:
    """Return the versions that a reference of a project allows."""
    kind, least = text(requirement, "kind"), text(requirement, "minimumVersion")
    major, minor, *_ = (*version(least), 0, 0)
    if kind == "upToNextMajorVersion":
        return between(least, f"{major + 1}.0.0")
    if kind == "upToNextMinorVersion":
        return between(least, f"{major}.{minor + 1}.0")
    if kind == "versionRange":
        return between(least, text(requirement, "maximumVersion"))
    if kind == "exactVersion":
        return exactly(text(requirement, "version"))
    if kind == "branch":
        return Requirement(f"branch {text(requirement, 'branch')}")
    return Requirement(f"commit {text(requirement, 'revision')[:12]}")


IN_WORKSPACE = f"xcshareddata/swiftpm/{RESOLVED}"


def read_resolved(folder: Path, path: Path) -> App:
    """Return the packages in a Package.resolved; the app may not depend on them directly."""
    name = path.relative_to(folder).as_posix()
    try:
        document = json.loads(read_file(path))
        pins = (
            document.get("pins") or document["object"]["pins"]
        )  # the first version of the format has the key "object"
        return App(folder, (name,), tuple(dependency(pin) for pin in pins))
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        return App(
            folder,
            unread={name: f"the file does not have the form that SwiftPM writes: {error}"},
        )


def dependency(pin: Table) -> Dependency:
    """Return one package of Package.resolved; KeyError or TypeError for another format."""
    where, state = str(pin.get("location") or pin["repositoryURL"]), pin["state"]
    resolved = state.get("version") or state.get("branch") or (state.get("revision") or "")[:12]
    return Dependency(identity(where), where, resolved=str(resolved), direct=False)


NOT_RUN = (
    "Package.swift is a program: doctor runs it only with --run-manifest, or if you "
    "agree at a terminal"
)


def read_app(folder: Path, machine: Surroundings, *, may_run: bool) -> App:
    """Read an app's manifest, Xcode projects and resolved versions; UserError if it has none.

    may_run: whether Swift may run the manifest as a program to read it.
    """
    folder = folder.resolve()
    if folder.suffix in (".xcodeproj", ".xcworkspace"):
        folder = folder.parent
    projects = sorted(folder.glob("*.xcodeproj"))
    workspaces = [
        *sorted(folder.glob("*.xcworkspace")),
        *(project / "project.xcworkspace" for project in projects),
    ]
    manifest = folder / "Package.swift"
    if not (manifest.is_file() or projects or workspaces):
        raise usage_error(
            "no Package.swift and no Xcode project in this folder",
            "Give the folder that contains the app's Package.swift or .xcodeproj.",
            where=str(folder),
        )
    app = App(folder)
    if manifest.is_file() and may_run:
        app = read_manifest(folder, machine)
    elif manifest.is_file():
        app = App(folder, unread={manifest.name: NOT_RUN})
    for project in projects:
        app += read_project(folder, project)
    for path in (folder / RESOLVED, *(workspace / IN_WORKSPACE for workspace in workspaces)):
        if path.is_file():
            app += read_resolved(folder, path)
    return app
