"""An app as its manifest, its Xcode projects and its resolved versions describe it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from h2o_pack.doctor.machine import Surroundings
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import identity
from h2o_pack.files.text import read_file
from h2o_pack.vendoring.vendor import RESOLVED

Version = tuple[int, ...]
NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def version(text: str) -> Version:
    """Return "602.0.0-beta" as (602, 0, 0); () where there is no number."""
    match = NUMBERS.match(text.removeprefix("v"))
    return tuple(int(part[:9]) for part in match[0].split(".")) if match else ()


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
        have_limits = self.high and other.high
        return not have_limits or max(self.low, other.low) < min(self.high, other.high)


def between(low: str, high: str) -> Requirement:
    """Return the versions from one to before another."""
    return Requirement(f"{low} ..< {high}", version(low), version(high))


def exactly(text: str) -> Requirement:
    """Parse an exact version; a branch name gives an empty range."""
    parsed = version(text)
    return Requirement(text, parsed, (*parsed, 0) if parsed else ())


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
        """Combine what two files of the app say."""
        return App(
            self.folder,
            self.read + other.read,
            joined((*self.dependencies, *other.dependencies)),
            tuple(dict.fromkeys(self.modules + other.modules)),
            self.unread | other.unread,
        )


def joined(dependencies: Iterable[Dependency]) -> tuple[Dependency, ...]:
    """Join entries of one package: its requirement first, then its resolved version."""
    by_identity: dict[str, Dependency] = {}
    for dependency in dependencies:
        earlier = by_identity.get(dependency.identity)
        if earlier is None:
            by_identity[dependency.identity] = dependency
        elif dependency.direct and earlier.direct:  # two projects may ask for two versions
            key = f"{dependency.identity} {dependency.location} {dependency.requirement}"
            by_identity[key] = dependency
        else:
            first, second = (earlier, dependency) if earlier.direct else (dependency, earlier)
            by_identity[dependency.identity] = replace(first, resolved=second.resolved)
    return tuple(by_identity.values())


MOST_BYTES = 1 << 24
Table = dict[str, Any]


def table(value: object) -> Table:
    """Return a value that is a dictionary; anything else is taken for an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[Any]:
    """Return a value that is a list; anything else is taken for an empty one."""
    return value if isinstance(value, list) else []


def text(entry: object, key: str) -> str:
    """Return a value of a dictionary that is text; anything else is taken for none."""
    value = table(entry).get(key, "")
    return value if isinstance(value, str) else ""


def read_manifest(folder: Path, machine: Surroundings) -> App:
    """Read the manifest in an app's folder, which needs Swift."""
    name = "Package.swift"
    with TemporaryDirectory() as scratch:
        where = ("--package-path", str(folder), "--scratch-path", scratch)
        ran = machine.run("swift", "package", *where, "dump-package", most=MOST_BYTES)
    if ran is None:
        return App(folder, unread={name: "Swift is missing, which reads Package.swift"})
    start = ran.output.find("\n{") + 1 if not ran.output.startswith("{") else 0
    try:
        manifest = json.loads(ran.output[start:])
    except (ValueError, RecursionError):
        return App(folder, unread={name: f"Swift cannot read it: {ran.line}"})
    entries = rows(table(manifest).get("dependencies"))
    targets = rows(table(manifest).get("targets"))
    return App(
        folder,
        (name,),
        tuple(dependency for entry in entries for dependency in dependencies(table(entry))),
        tuple(filter(None, (text(target, "name") for target in targets))),
    )


def dependencies(entry: Table) -> Iterator[Dependency]:
    """Yield what one entry of a manifest asks for, as `swift package dump-package` has it."""
    for source in (*rows(entry.get("sourceControl")), *rows(entry.get("registry"))):
        name = text(source, "identity")
        places = table(table(source).get("location")).values()
        place = next((at for listed in places for at in rows(listed)), name)
        location = text(place, "urlString") if isinstance(place, dict) else str(place)
        yield Dependency(
            name, location, manifest_requirement(table(table(source).get("requirement")))
        )
    for row in rows(entry.get("fileSystem")):
        path = text(row, "path")
        yield Dependency(text(row, "identity"), path, folder=Path(path))


def manifest_requirement(requirement: Table) -> Requirement:
    """Return the versions that a manifest takes."""
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
    """Return the value of a property list in the old form, which Xcode's projects have.

    Raises:
        ValueError: it is none, or gives a key twice.

    """
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
            parts.pop()  # the last of a list ends with one too
        if mark:
            parts.append(MARKS[mark])
        elif quoted is not None or plain:
            parts.append(json.dumps(quoted if plain is None else plain))
    return json.loads("".join(parts), object_pairs_hook=distinct)


def distinct(pairs: list[tuple[str, Any]]) -> Table:
    """Make a dictionary of its pairs; ValueError where a key is given twice."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


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
    )


def packages(entry: object, parent: Path) -> Iterator[Dependency]:
    """Yield the package that an object of the project refers to, if any."""
    kind = text(entry, "isa")
    if kind == "XCRemoteSwiftPackageReference":
        where = text(entry, "repositoryURL")
        requirement = project_requirement(table(entry).get("requirement"))
        yield Dependency(identity(where), where, requirement)
    elif kind == "XCLocalSwiftPackageReference":
        place = (parent / text(entry, "relativePath")).resolve()
        yield Dependency(identity(place.name), str(place), folder=place)


def project_requirement(requirement: object) -> Requirement:
    """Return the versions that a reference of a project takes."""
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
    """Return the packages that a file names; no app asks for those that it alone names."""
    name = path.relative_to(folder).as_posix()
    try:
        document = json.loads(read_file(path))
        pins = document.get("pins") or document["object"]["pins"]  # in its first version
        return App(folder, (name,), tuple(dependency(pin) for pin in pins))
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        return App(
            folder,
            unread={name: f"the file does not have the form that SwiftPM writes: {error}"},
        )


def dependency(pin: Table) -> Dependency:
    """Return one package of Package.resolved; KeyError or TypeError for another form."""
    where, state = str(pin.get("location") or pin["repositoryURL"]), pin["state"]
    resolved = state.get("version") or state.get("branch") or (state.get("revision") or "")[:12]
    return Dependency(identity(where), where, resolved=str(resolved), direct=False)


NOT_RUN = (
    "Package.swift is a program: doctor runs it only with --run-manifest, or if you "
    "agree at a terminal"
)


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
        *(project / "project.xcworkspace" for project in projects),
    ]
    manifest = folder / "Package.swift"
    if not (manifest.is_file() or projects or workspaces):
        raise UserError(
            "no Package.swift and no Xcode project in this folder",
            where=str(folder),
            remedy="Give the folder that contains the app's Package.swift or .xcodeproj.",
            code=ExitCode.USAGE,
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
