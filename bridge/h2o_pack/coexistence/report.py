"""What `doctor APP` tells, for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from h2o_pack.coexistence.collisions import collisions
from h2o_pack.coexistence.read import read_app
from h2o_pack.doctor.finding import Finding
from h2o_pack.doctor.surroundings import Surroundings
from h2o_pack.doctor.tables import counted, print_findings
from h2o_pack.results import Result, doc

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class AppDependency:
    """A package that the app uses."""

    identity: Annotated[str, doc("The name by which SwiftPM knows it.")]
    location: Annotated[str, doc("Its address, or its folder.")]
    requirement: Annotated[str, doc("The versions that the app asks for; empty for none.")]
    resolved: Annotated[str, doc("The version that was chosen last; empty where none was.")]
    direct: Annotated[bool, doc("Whether the app asks for it itself.")]


@dataclass(frozen=True, kw_only=True)
class AppCheckup(Result):
    """What of an app collides with a package made by h2o-pack."""

    app: Annotated[Path, doc("The app's folder.")]
    collides: Annotated[
        bool, doc("Whether one of the findings is a problem; then the exit code is 1.")
    ] = field(init=False)
    read: Annotated[tuple[str, ...], doc("Files that were read, relative to the folder.")]
    dependencies: Annotated[tuple[AppDependency, ...], doc("All that these files name.")]
    findings: Annotated[tuple[Finding, ...], doc("What meets something of the package's.")]

    def __post_init__(self) -> None:
        problems = any(each.status == "problem" for each in self.findings)
        object.__setattr__(self, "collides", problems)


def check_app(folder: Path, machine: Surroundings) -> AppCheckup:
    """Read an app and tell what collides.

    Raises:
        UserError: it is not an app's folder.

    """
    app = read_app(folder, machine)
    return AppCheckup(
        app=app.folder,
        read=app.read,
        dependencies=tuple(
            AppDependency(
                identity=each.identity,
                location=each.location,
                requirement=each.requirement.text if each.requirement else "",
                resolved=each.resolved,
                direct=each.direct,
            )
            for each in app.dependencies
        ),
        findings=tuple(collisions(app)),
    )


def print_app(checkup: AppCheckup, console: Console) -> None:
    """Show what was read and what was found."""
    read = ", ".join(checkup.read) or "nothing"
    console.print(f"{checkup.app}: read {read}", markup=False, soft_wrap=True)
    if checkup.findings:
        print_findings(checkup.findings, console)
    said = "A package of h2o-pack can be added to this app"
    if checkup.collides:
        said = "A package of h2o-pack cannot be added to this app until its problems are solved"
    console.print(f"{counted(checkup.findings)}{said}.", markup=False, soft_wrap=True)
