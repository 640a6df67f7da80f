"""What stops a generated package in an app: versions, identities, modules and systems.

The app's files are read as text, and none of them is run: Xcode's project, Package.swift, and
the versions that SwiftPM resolved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rich.console import Console

from h2o_pack.doctor.finding import Finding, counted, ok, print_findings, problem, warning
from h2o_pack.doctor.machine import as_version, needed, shown
from h2o_pack.errors import UserError, usage_error
from h2o_pack.facts import Pin, coexistence, identity, pins
from h2o_pack.files import lock
from h2o_pack.files.paths import VENDOR_FOLDER
from h2o_pack.results import Result, doc
from h2o_pack.vendoring.vendor import RESOLVED
from h2o_py.files import read_file

Version = tuple[int, ...]
IOS, MACOS = ("iOS", "ios-sdk"), ("macOS", "macos")
SYSTEMS = {"ios": IOS, "iphoneos": IOS, "macos": MACOS, "macosx": MACOS}
"""The systems of a generated package, and their names in facts/requirements.toml, by the names
that manifests and projects give systems."""
MODES = ("4", "4.2", "5", "6")
"""The language modes of the oldest Swift that can build a generated package."""

REMOTE = re.compile(
    r'isa = XCRemoteSwiftPackageReference;\s*repositoryURL = "?([^";]+)"?;\s*'
    r"requirement = \{([^}]*)\}"
)
LOCAL = re.compile(r'isa = XCLocalSwiftPackageReference;\s*relativePath = "?([^";]+)"?;')
SETTING = re.compile(r'\b(\w+_DEPLOYMENT_TARGET|SWIFT_VERSION) = "?([\d.]+)"?;')
TARGET = re.compile(r'isa = PBX(?:Native|Aggregate|Legacy)Target;[^{}]*?\bname = "?([^";]+)"?;')
PACKAGE = re.compile(r'\.package\(\s*(?:name:[^,]*,\s*)?(url|path):\s*"([^"]+)"([^\n]*)')
PLATFORM = re.compile(r"\.(iOS|macOS)\(\s*\.?\"?v?([\d_.]+)")
MODULE = re.compile(r'\.(?:target|executableTarget)\(\s*name:\s*"([^"]+)"')
LANGUAGE = re.compile(r"swiftLanguage(?:Modes|Versions):\s*\[([^\]]*)\]")


@dataclass(frozen=True)
class Dependency:
    """A package that the app uses: the versions from `low` up to below `high`, or any.

    folder: of a local package. text: how the app states the versions. direct: whether the app
    itself depends on it.
    """

    location: str
    folder: Path | None = None
    text: str = ""
    low: Version = ()
    high: Version = ()
    direct: bool = True

    def allows(self, low: Version, high: Version) -> bool:
        """Whether a version from `low` up to below `high` satisfies the app."""
        return not self.high or max(self.low, low) < min(self.high, high)


@dataclass(frozen=True)
class AppCheckup(Result):
    """What stops a generated package in an app."""

    app: Annotated[Path, doc("Folder of the app.")]
    read: Annotated[tuple[str, ...], doc("Files that were read.")]
    collides: Annotated[bool, doc("Whether there is a problem; the exit code is then 1.")] = (
        field(init=False)
    )
    findings: Annotated[tuple[Finding, ...], doc("What was found.")]

    def __post_init__(self) -> None:
        problems = any(finding.status == "problem" for finding in self.findings)
        object.__setattr__(self, "collides", problems)


def check_app(folder: Path) -> AppCheckup:
    """Read an app's files and find conflicts; UserError if there is no app."""
    try:
        folder = folder.resolve()
    except (OSError, RuntimeError):  # a link to itself
        raise no_app(folder) from None
    if folder.suffix in (".xcodeproj", ".xcworkspace"):
        folder = folder.parent
    projects = sorted(folder.glob("*.xcodeproj"))
    workspaces = [*folder.glob("*.xcworkspace"), *(p / "project.xcworkspace" for p in projects)]
    resolved = [place / "xcshareddata/swiftpm" / RESOLVED for place in sorted(workspaces)]
    manifest = folder / "Package.swift"
    if not (manifest.is_file() or projects or workspaces):
        raise no_app(folder)
    files = [manifest, *(project / "project.pbxproj" for project in projects)]
    files += [folder / RESOLVED, *resolved]
    read, findings, packages = [], list[Finding](), dict[str, Dependency]()
    for path in files:
        name = path.relative_to(folder).as_posix()
        if not path.is_file() and path.suffix != ".pbxproj":
            continue
        try:
            text = read_file(path).decode()
            for package in dependencies(path, text):
                key = identity(package.location)
                if package.direct and key in packages:  # two projects may require two versions
                    key = f"{key} {package.text}"
                if package.direct or key not in packages:
                    packages[key] = package
        # A path may also be a link to itself.
        except (OSError, ValueError, RuntimeError, AttributeError, KeyError, TypeError):
            findings.append(problem("not read: its form is unknown", "Correct the file.", name))
            continue
        read.append(name)
        findings += in_text(text, name)
    findings += [finding for package in packages.values() for finding in collisions(package)]
    findings += second_packages(packages)
    return AppCheckup(folder, tuple(read), tuple(findings))


def no_app(folder: Path) -> UserError:
    """Make the error for a folder without an app."""
    return usage_error(
        "no Package.swift and no Xcode project in this folder",
        "Give the folder that contains the app's Package.swift or .xcodeproj.",
        where=str(folder),
    )


def dependencies(path: Path, text: str) -> Iterator[Dependency]:
    """Yield the packages that a file names; an error if it does not have the file's form."""
    if path.name == RESOLVED:
        document = json.loads(text)
        for pin in document.get("pins") or document["object"]["pins"]:
            where = str(pin.get("location") or pin["repositoryURL"])
            resolved = version(str(pin["state"].get("version") or ""))
            yield Dependency(where, None, *compatible(resolved), direct=False)
        return
    if path.suffix == ".swift":
        text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
        for kind, where, requirement in PACKAGE.findall(text):
            if kind == "path":
                yield Dependency(where, place_of(path.parent, where))
            else:
                yield Dependency(where, None, *required(requirement))
        return
    if "objects = {" not in text:
        raise ValueError
    for where, requirement in REMOTE.findall(text):
        yield Dependency(where, None, *required(requirement))
    for where in LOCAL.findall(text):
        place = place_of(path.parent.parent, where)
        yield Dependency(place.name, place)


def place_of(folder: Path, where: str) -> Path:
    """Return the place of a local package; an error for a path that no system follows."""
    place = (folder / where).resolve()
    place.exists()  # raises an error for a path that is too long
    return place


def required(text: str) -> tuple[str, Version, Version]:
    """Return how a manifest or a project states versions, the lowest and what is too high."""
    numbers = [version(number) for number in re.findall(r"\d+(?:\.\d+)+", text)]
    if not numbers or re.search(r"branch|revision", text):
        return "", (), ()
    low, (major, minor, *_) = numbers[0], (*numbers[0], 0, 0)
    if re.search("exact", text, re.IGNORECASE):
        return shown(low), low, (*low, 0)
    is_minor = re.search("NextMinor", text, re.IGNORECASE)
    high = (major, minor + 1, 0) if is_minor else (major + 1, 0, 0)
    return between(low, numbers[1] if len(numbers) > 1 else high)


def compatible(low: Version) -> tuple[str, Version, Version]:
    """Return the versions that are compatible with a resolved one; any for ()."""
    major, minor, *_ = (*low, 0, 0)
    return (
        between(low, (major + 1, 0, 0) if major else (0, minor + 1, 0)) if low else ("", (), ())
    )


def between(low: Version, high: Version) -> tuple[str, Version, Version]:
    """Return a range of versions with its text."""
    return f"{shown(low)} ..< {shown(high)}", low, high


def version(text: str) -> Version:
    """Return "602.0.0-beta" as (602, 0, 0); () without a number."""
    match = re.match(r"\d+(?:\.\d+)*", text.removeprefix("v"))
    return as_version(match[0]) if match else ()


def collisions(package: Dependency) -> Iterator[Finding]:
    """Yield what becomes of a package that concerns a generated package."""
    name, facts = identity(package.location), coexistence()
    for entry in facts.refused:
        if entry.name == name:
            yield problem(entry.what, entry.remedy, name)
    if name in {entry.name for entry in facts.replaced}:
        yield replacement(package, name, pins()[name])
    for shared in facts.shared:
        if shared.name != name:
            continue
        text = f"{shared.low} ..< {shared.high}"
        if not package.direct or package.allows(version(shared.low), version(shared.high)):
            yield ok(f"SwiftPM chooses a version from {text}", name)
        else:
            what = f"the app requires {package.text}, but the package requires {text}"
            remedy = "Allow more versions in the app: SwiftPM needs a version that suits both."
            yield problem(what, remedy, name)


def replacement(package: Dependency, name: str, pinned: Pin) -> Finding:
    """Report what happens to a package that the copy in Vendor replaces."""
    if package.folder is not None:
        vendor = package.folder.parent
        if made_by_us(vendor.parent) and vendor.name == VENDOR_FOLDER:
            return ok("it is the copy in the package's Vendor folder", name)
        what = f"SwiftPM would build {package.folder}, which lacks the edits for the cache"
        return problem(what, f"Use {VENDOR_FOLDER}/{name} of the package instead.", name)
    instead = f"SwiftPM builds the package's edited copy of {pinned.version} for the whole app"
    release = pinned.follows or pinned.version
    if not package.allows(version(release), (*version(release), 0)):
        what = f"{instead}, but the app requires {package.text}"
        remedy = f"Update the app to {name} {release}, or remove this dependency from the app."
        return problem(what, remedy, name)
    remedy = "This works."
    if package.direct:
        remedy += f" To avoid the warning, use {VENDOR_FOLDER}/{name} of the package."
    return warning(f"{instead}, and warns of a conflicting identity", remedy, name)


def made_by_us(folder: Path) -> bool:
    """Whether a folder is a generated package."""
    return (folder / lock.NAME).is_file()


def second_packages(packages: dict[str, Dependency]) -> Iterator[Finding]:
    """Yield the app's generated packages: one is allowed, more are a conflict."""
    ours = [name for name, each in packages.items() if each.folder and made_by_us(each.folder)]
    for name in ours[:1]:
        yield ok("a package of h2o-pack", name)
    for name in ours[1:]:
        what = "a second package of h2o-pack: both have the module H2OKit"
        yield problem(what, "Add only one, and the other's model folder to the app.", name)


def in_text(text: str, name: str) -> Iterator[Finding]:
    """Yield what a project or manifest states itself: its modules, systems and language."""
    facts = coexistence()
    targets = {*TARGET.findall(text), *MODULE.findall(text)}
    for package in (*facts.own, *facts.replaced, *facts.shared):
        for module in sorted(targets & set(package.modules)):
            what = f"a target of the app has the same name as a module of {package.name}"
            yield problem(what, "Rename the app's target, or set PRODUCT_MODULE_NAME.", module)
    settings = [(key.partition("_")[0].lower(), value) for key, value in SETTING.findall(text)]
    settings += [(system.lower(), value) for system, value in PLATFORM.findall(text)]
    listed = " ".join(LANGUAGE.findall(text)).replace("_", ".")
    modes = re.findall(r"\d+(?:\.\d+)?", listed)
    for key, value in dict.fromkeys([*settings, *(("swift", mode) for mode in modes)]):
        if key == "swift" and value.removesuffix(".0") not in MODES:
            what = f"the app is in Swift {value}, which the package's compiler does not build"
            yield problem(what, f"Use language mode {MODES[-1]} or {MODES[-2]}.", name)
        if key not in SYSTEMS:
            continue
        system, requirement = SYSTEMS[key]
        least = needed(requirement)
        if (*version(value.replace("_", ".")), 0) < version(least):
            what = f"the app supports {system} {value}, but the package needs {system} {least}"
            yield problem(what, f"Set the minimum deployment to {system} {least}.", name)


def print_app(checkup: AppCheckup, console: Console) -> None:
    """Show the files that were read and the findings."""
    files = ", ".join(checkup.read) or "nothing"
    console.print(f"{checkup.app}: read {files}", markup=False, soft_wrap=True)
    if checkup.findings:
        print_findings(checkup.findings, console)
    verdict = "can be added to this app"
    if checkup.collides:
        verdict = "cannot be added to this app until you solve its problems"
    text = f"{counted(checkup.findings)}A package of h2o-pack {verdict}."
    console.print(text, markup=False, soft_wrap=True)
