"""What stops a generated package in an app: identities and versions, systems, the language.

The app's files are read as text, and none of them is run: Xcode's project, Package.swift, and
the versions that SwiftPM resolved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from h2o_pack.doctor.finding import Checkup, Finding, ok, problem
from h2o_pack.doctor.machine import needed, shown
from h2o_pack.errors import usage_error
from h2o_pack.facts import coexistence, identity, pins
from h2o_pack.files import lock
from h2o_pack.files.paths import VENDOR_FOLDER
from h2o_pack.vendoring.vendor import RESOLVED
from h2o_py.files import read_file

Version = tuple[int, ...]
IOS, MACOS = ("iOS", "ios-sdk"), ("macOS", "macos")
SYSTEMS = {"ios": IOS, "iphoneos": IOS, "macos": MACOS, "macosx": MACOS}
"""The systems of a generated package, and their names in facts/requirements.toml, by the names
that manifests and projects give systems."""
MODES = ("4", "4.2", "5", "6")
"""The language modes of the oldest Swift that can build a generated package."""

PACKAGES = {
    ".pbxproj": re.compile(
        r"isa = XC(?:Remote|Local)SwiftPackageReference;\s*"
        r'(repositoryURL|relativePath) = "?([^";]+)"?;(?:\s*requirement = \{([^}]*)\})?'
    ),
    ".swift": re.compile(r'\.package\(\s*(?:name:[^,]*,\s*)?(url|path):\s*"([^"]+)"([^\n]*)'),
}
"""How a file names a package: whether by an address or a folder, which, and the versions."""
SETTING = re.compile(r'\b(\w+_DEPLOYMENT_TARGET|SWIFT_VERSION) = "?([\d.]+)"?;')
PLATFORM = re.compile(r"\.(iOS|macOS)\(\s*\.?\"?v?([\d_.]+)")
LANGUAGE = re.compile(r"swiftLanguage(?:Modes|Versions):\s*\[([^\]]*)\]")

conflict = partial(problem, blocks=True)


@dataclass(frozen=True)
class Dependency:
    """A package that the app uses: the versions from `low` up to below `high`, or any.

    folder: of a local package. direct: whether the app itself depends on it.
    """

    name: str
    low: Version = ()
    high: Version = ()
    folder: Path | None = None
    direct: bool = True

    def __str__(self) -> str:
        low, high = shown(self.low), shown(self.high)
        return low if self.high == (*self.low, 0) else f"{low} ..< {high}"

    def allows(self, low: Version, high: Version) -> bool:
        """Whether a version from `low` up to below `high` satisfies the app."""
        return not self.high or max(self.low, low) < min(self.high, high)


def check_app(folder: Path) -> Checkup:
    """Read an app's files and find conflicts; UserError if there is no app."""
    folder = folder.absolute()
    if folder.suffix in (".xcodeproj", ".xcworkspace"):
        folder = folder.parent
    projects = sorted(folder.glob("*.xcodeproj"))
    workspaces = [*folder.glob("*.xcworkspace"), *(p / "project.xcworkspace" for p in projects)]
    resolved = [place / "xcshareddata/swiftpm" / RESOLVED for place in sorted(workspaces)]
    manifest = folder / "Package.swift"
    if not (manifest.is_file() or projects or workspaces):
        raise usage_error(
            "no Package.swift and no Xcode project in this folder",
            "Give the folder that contains the app's Package.swift or .xcodeproj.",
            where=str(folder),
        )
    files = [manifest, *(project / "project.pbxproj" for project in projects)]
    files += [folder / RESOLVED, *resolved]
    findings, packages = list[Finding](), list[Dependency]()
    for path in files:
        name = path.relative_to(folder).as_posix()
        if not path.is_file() and path.suffix != ".pbxproj":
            continue
        try:
            text = read_file(path).decode()
            packages += dependencies(path, text)
        # A path may also be a link to itself.
        except (OSError, ValueError, RuntimeError, AttributeError, KeyError, TypeError):
            findings.append(
                conflict("not read: its form is unknown", "Correct the file.", name)
            )
            continue
        findings += [ok("was read", name), *in_text(text, name)]
    named = {package.name for package in packages if package.direct}
    packages = [package for package in packages if package.direct or package.name not in named]
    packages = list(dict.fromkeys(packages))
    for package in packages:
        findings += collisions(package)
    findings += second_packages(packages)
    return Checkup(tuple(findings))


def dependencies(path: Path, text: str) -> list[Dependency]:
    """Return the packages that a file names; an error if it does not have the file's form."""
    packages = []
    if path.name == RESOLVED:
        document = json.loads(text)
        # SwiftPM writes "object" where the manifest's tools version is older than 5.6.
        for pin in document.get("pins") or document["object"]["pins"]:
            location = str(pin.get("location") or pin["repositoryURL"])
            low, high = versions(str(pin["state"].get("version")), is_resolved=True)
            packages.append(Dependency(identity(location), low, high, direct=False))
        return packages
    folder = path.parent
    if path.suffix == ".swift":
        text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    elif "objects = {" in text:
        folder = folder.parent
    else:
        raise ValueError
    for kind, where, requirement in PACKAGES[path.suffix].findall(text):
        if kind in ("path", "relativePath"):
            place = (folder / where).resolve()
            place.exists()  # raises an error for a path that is too long
            packages.append(Dependency(identity(place.name), folder=place))
        else:
            packages.append(Dependency(identity(where), *versions(requirement)))
    return packages


def versions(text: str, *, is_resolved: bool = False) -> tuple[Version, Version]:
    """Return the lowest version that a text allows, and the lowest that is too high.

    is_resolved: the text is the version that SwiftPM chose; all compatible ones would do.
    """
    numbers = [version(number) for number in re.findall(r"\d+(?:\.\d+)+", text)]
    if not numbers or re.search(r"branch|revision", text):
        return (), ()
    low, (major, minor, *_) = numbers[0], (*numbers[0], 0, 0)
    if re.search("exact", text, re.IGNORECASE):
        return low, (*low, 0)
    if len(numbers) > 1 and not is_resolved:
        return low, numbers[1]
    is_minor = re.search("NextMinor", text, re.IGNORECASE) or (is_resolved and not major)
    return low, (major, minor + 1, 0) if is_minor else (major + 1, 0, 0)


def version(text: str) -> Version:
    """Return "16.3" and "16_3" as (16, 3)."""
    return tuple(int(part[:9]) for part in re.findall(r"\d+", text))


def collisions(package: Dependency) -> Iterator[Finding]:
    """Yield what is wrong with a package that a generated package replaces or uses too."""
    name, facts = package.name, coexistence()
    for entry in facts.refused:
        if entry.name == name:
            yield conflict(entry.what, entry.remedy, name)
    if name in {entry.name for entry in facts.replaced}:
        yield from replacement(package)
    for shared in facts.shared:
        suits = package.allows(version(shared.low), version(shared.high))
        if shared.name == name and package.direct and not suits:
            text = f"{shared.low} ..< {shared.high}"
            what = f"the app requires {package}, but the package requires {text}"
            remedy = "Allow more versions in the app: SwiftPM needs a version that suits both."
            yield conflict(what, remedy, name)


def replacement(package: Dependency) -> Iterator[Finding]:
    """Yield why the copy in Vendor cannot replace a package."""
    name, pinned = package.name, pins()[package.name]
    release = pinned.follows or pinned.version
    if package.folder is not None:
        vendor = package.folder.parent
        if not (made_by_us(vendor.parent) and vendor.name == VENDOR_FOLDER):
            what = f"SwiftPM would build {package.folder}, which lacks the edits for the cache"
            yield conflict(what, f"Use {VENDOR_FOLDER}/{name} of the package instead.", name)
    elif not package.allows(version(release), (*version(release), 0)):
        what = (
            f"SwiftPM builds the package's edited copy of {pinned.version} for the whole app, "
            f"but the app requires {package}"
        )
        remedy = f"Update the app to {name} {release}, or remove this dependency from the app."
        yield conflict(what, remedy, name)


def made_by_us(folder: Path) -> bool:
    """Whether a folder is a generated package."""
    return (folder / lock.NAME).is_file()


def second_packages(packages: list[Dependency]) -> Iterator[Finding]:
    """Yield the app's generated packages after the first: an app can have only one."""
    ours = [package for package in packages if package.folder and made_by_us(package.folder)]
    for package in ours[1:]:
        what = "a second package of h2o-pack: both have the module H2OKit"
        remedy = "Add only one, and the other's model folder to the app."
        yield conflict(what, remedy, package.name)


def in_text(text: str, name: str) -> Iterator[Finding]:
    """Yield what a project or manifest states itself: its systems and language."""
    settings = [(key.partition("_")[0].lower(), value) for key, value in SETTING.findall(text)]
    settings += [(system.lower(), value) for system, value in PLATFORM.findall(text)]
    listed = " ".join(LANGUAGE.findall(text)).replace("_", ".")
    settings += [("swift", mode) for mode in re.findall(r"\d+(?:\.\d+)?", listed)]
    for key, value in dict.fromkeys(settings):
        if key == "swift" and value.removesuffix(".0") not in MODES:
            what = f"the app is in Swift {value}, which the package's compiler does not build"
            yield conflict(what, f"Use language mode {MODES[-1]} or {MODES[-2]}.", name)
        if key not in SYSTEMS:
            continue
        system, requirement = SYSTEMS[key]
        least = needed(requirement)
        if (*version(value), 0) < version(least):
            what = f"the app supports {system} {value}, but the package needs {system} {least}"
            yield conflict(what, f"Set the minimum deployment to {system} {least}.", name)
