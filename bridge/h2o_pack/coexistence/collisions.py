"""Conflicts between an app and a generated package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rich.console import Console

from h2o_pack.coexistence.app import (
    App,
    Dependency,
    between,
    compatible,
    exactly,
    read_app,
    version,
)
from h2o_pack.doctor.finding import Finding, counted, ok, print_findings, problem, warning
from h2o_pack.doctor.machine import Surroundings
from h2o_pack.facts import Pin, coexistence, pins
from h2o_pack.files import lock
from h2o_pack.files.paths import VENDOR_FOLDER
from h2o_pack.results import Result, doc


@dataclass(frozen=True)
class AppDependency:
    """A package that the app uses."""

    identity: Annotated[str, doc("Name by which SwiftPM identifies the package.")]
    location: Annotated[str, doc("Address or folder of the package.")]
    requirement: Annotated[
        str, doc("Versions that the app requires; empty if it requires none.")
    ]
    resolved: Annotated[str, doc("Version in Package.resolved; empty if it has none.")]
    direct: Annotated[bool, doc("Whether the app itself depends on it.")]


@dataclass(frozen=True, kw_only=True)
class AppCheckup(Result):
    """The conflicts between an app and a generated package."""

    app: Annotated[Path, doc("The app's folder.")]
    collides: Annotated[
        bool, doc("Whether one of the findings is a problem; the exit code is then 1.")
    ] = field(init=False)
    read: Annotated[tuple[str, ...], doc("Files that were read, relative to the folder.")]
    dependencies: Annotated[tuple[AppDependency, ...], doc("Packages that these files name.")]
    findings: Annotated[
        tuple[Finding, ...],
        doc("Packages of the app that the generated package also uses or conflicts with."),
    ]

    def __post_init__(self) -> None:
        problems = any(finding.status == "problem" for finding in self.findings)
        object.__setattr__(self, "collides", problems)


def check_app(folder: Path, machine: Surroundings, *, may_run: bool) -> AppCheckup:
    """Read an app and find conflicts; `may_run`: whether Swift may run the app's manifest."""
    app = read_app(folder, machine, may_run=may_run)
    return AppCheckup(
        app=app.folder,
        read=app.read,
        dependencies=tuple(
            AppDependency(
                identity=dependency.identity,
                location=dependency.location,
                requirement=dependency.requirement.text,
                resolved=dependency.resolved,
                direct=dependency.direct,
            )
            for dependency in app.dependencies
        ),
        findings=tuple(collisions(app)),
    )


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


def collisions(app: App) -> Iterator[Finding]:
    """Yield a finding for each dependency or module of the app that concerns the package."""
    for name, why in app.unread.items():
        note = warning if app.read else problem
        yield note(f"not read: {why}", "Correct the file and run the command again.", name)
    facts = coexistence()
    ours = [
        dependency
        for dependency in app.dependencies
        if dependency.folder and made_by_us(dependency.folder)
    ]
    pinned = pins()
    replaced = {package.name for package in facts.replaced}
    shared = {package.name: between(package.low, package.high) for package in facts.shared}
    refused = {package.name: package for package in facts.refused}
    for dependency in app.dependencies:
        if dependency.identity in replaced:
            yield replacement(dependency, pinned[dependency.identity])
        elif versions := shared.get(dependency.identity):
            if dependency.requirement.allows(versions):
                yield ok(f"SwiftPM chooses a version from {versions.text}", dependency.identity)
                continue
            theirs = dependency.requirement.text
            what = f"the app requires {theirs}, but the package requires {versions.text}"
            remedy = "Allow more versions in the app: SwiftPM needs a version that suits both."
            yield problem(what, remedy, dependency.identity)
        elif refusal := refused.get(dependency.identity):
            yield problem(refusal.what, refusal.remedy, dependency.identity)
    yield from second_packages(ours)
    yield from modules_in(app)
    yield from older_systems(app)


def replacement(package: Dependency, pinned: Pin) -> Finding:
    """Report what happens to a package that the copy in Vendor replaces."""
    name = package.identity
    instead = f"SwiftPM builds the package's edited copy of {pinned.version} for the whole app"
    if package.folder is not None:
        vendor = package.folder.parent
        if made_by_us(vendor.parent) and vendor.name == VENDOR_FOLDER:
            return ok("it is the copy in the package's Vendor folder", name)
        what = (
            f"SwiftPM would build the copy in {package.folder}, which lacks the edits for "
            "the cache"
        )
        remedy = f"Use {VENDOR_FOLDER}/{name} of the package instead of this copy."
        return problem(what, remedy, name)
    requirement = package.requirement
    if not requirement.text and version(package.resolved):
        requirement = compatible(package.resolved)
    release = pinned.follows or pinned.version
    if not requirement.allows(exactly(release)):
        what = f"{instead}, but the app requires {requirement.text}"
        remedy = f"Update the app to {name} {release}, or remove this dependency from the app."
        return problem(what, remedy, name)
    remedy = "This works."
    if package.direct:
        remedy += (
            f" To avoid the warning, use the folder {VENDOR_FOLDER}/{name} of the package."
        )
    return warning(f"{instead}, and warns of a conflicting identity", remedy, name)


def made_by_us(folder: Path) -> bool:
    """Whether a folder is a generated package."""
    return (folder / lock.NAME).is_file()


def second_packages(ours: list[Dependency]) -> Iterator[Finding]:
    """Yield the app's generated packages: one is allowed, more are a conflict."""
    for package in ours[:1]:
        yield ok(f"a package of h2o-pack, in {package.location}", package.identity)
    for package in ours[1:]:
        what = (
            f"a second package of h2o-pack, in {package.location}: both have the module H2OKit"
        )
        remedy = (
            "Add only one of the packages, and add the other package's model folder to the app."
        )
        yield problem(what, remedy, package.identity)


def modules_in(app: App) -> Iterator[Finding]:
    """Yield the app's own modules whose name a generated package also uses."""
    facts = coexistence()
    for package in (*facts.own, *facts.replaced, *facts.shared):
        for name in sorted(set(package.modules) & set(app.modules)):
            what = f"a target of the app has the same name as a module of {package.name}"
            yield problem(what, "Rename the app's target, or set PRODUCT_MODULE_NAME.", name)


SYSTEMS = {"ios": ("iOS", "17.0"), "macos": ("macOS", "14.0")}
"""The oldest systems of a generated package, as Package.swift.j2 declares them."""


def older_systems(app: App) -> Iterator[Finding]:
    """Yield the systems that the app supports and a generated package does not."""
    for system, supported, file in dict.fromkeys(app.systems):
        name, least = SYSTEMS.get(system, ("", ""))
        if least and version(supported) and version(supported) < version(least):
            yield problem(
                f"the app supports {name} {supported}, but the package needs {name} {least}",
                f"Set the app's minimum deployment to {name} {least} or newer.",
                file,
            )
