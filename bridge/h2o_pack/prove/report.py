"""What `h2o-pack prove` and an app made with `--proof` write: the same JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from h2o_pack.parity.report import DIFFERENT, Verdict
from h2o_pack.results import Count, Result, doc

if TYPE_CHECKING:
    from rich.console import Console

Identifier = Annotated[str, Meta(pattern=r"^\w[\w.,-]*$(?!\n)", max_length=80)]
Name = Annotated[str, Meta(pattern=r"^\w[\w.,:+/@() -]*$(?!\n)", max_length=200)]
Text = Annotated[str, Meta(max_length=400)]


@dataclass(frozen=True, kw_only=True)
class ProvenMachine:
    """The machine, without its name, its user or its serial number."""

    identifier: Annotated[Identifier, doc('As the system gives it: "Mac15,3", "iPhone17,1".')]
    chip: Annotated[
        Text, doc("Name of the processor; empty where the system does not say.")
    ] = ""
    gpu: Annotated[Text, doc("Name of the GPU that MLX runs on; empty on a CPU.")] = ""
    cores: Annotated[Count, doc("Cores that the process may use.")]
    memory_bytes: Annotated[Count, doc("Memory of the whole machine.")]
    system: Annotated[Literal["macOS", "iOS", "iPadOS", "Linux"], doc("Its system.")]
    system_version: Annotated[Name, doc("Version of the system.")]


@dataclass(frozen=True)
class ProvenLevel:
    """A level of parity."""

    number: Annotated[Literal[1, 2, 3], doc("As in `h2o-pack parity`.")]
    verdict: Annotated[Verdict, doc("Whether all cases agree.")]
    cases: Annotated[Count, doc("Cases compared.")] = 0
    largest_output_difference: Annotated[
        float, Meta(ge=0), doc("Relative to the largest output of the step, where above 1.")
    ] = 0.0
    detail: Annotated[Text, doc("Where it differs first, or why it was not run.")] = ""


@dataclass(frozen=True)
class ProvenMemory:
    """Bytes that something took."""

    name: Annotated[
        Name, doc("A term of the plan, or what else was counted, such as an app's limit.")
    ]
    bytes: Annotated[Count, doc("Counted.")]
    planned: Annotated[Count | None, doc("Of the plan; null where it has no such term.")] = None


@dataclass(frozen=True)
class ProvenSpeed:
    """How fast something ran."""

    name: Annotated[Name, doc("What was measured, and with which cache or when.")]
    tokens_per_second: Annotated[float, Meta(ge=0), doc("Tokens per second.")]


@dataclass(frozen=True, kw_only=True)
class ProofReport(Result):
    """What one machine showed."""

    tool: Annotated[Literal["h2o-pack", "app"], doc("What wrote the report.")]
    date: Annotated[
        Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$(?!\n)")], doc("In UTC.")
    ]
    machine: Annotated[ProvenMachine, doc("Where it ran.")]
    versions: Annotated[
        dict[Name, Name], doc("h2o-pack, and what it stands on: mlx, mlx-lm, swift, ....")
    ]
    model: Annotated[Name, doc("Alias or id of the model.")]
    max_kv: Annotated[Count, doc("Rows that a layer keeps.")]
    kv: Annotated[Name, doc("How rows are stored.")]
    levels: Annotated[tuple[ProvenLevel, ...], doc("Levels of parity.")]
    memory: Annotated[tuple[ProvenMemory, ...], doc("Memory beside the plan.")]
    speed: Annotated[tuple[ProvenSpeed, ...], doc("Speed of the whole model.")]
    kernels: Annotated[
        tuple[Name, ...], doc("Metal kernels that wrote scores; empty where it is not known.")
    ] = ()
    thermal_state: Annotated[
        Annotated[int, Meta(ge=0, le=3)] | None,
        doc("Of a device at the end: 0 nominal to 3 critical."),
    ] = None

    @property
    def differs(self) -> bool:
        """Whether a level of parity found a difference."""
        return any(level.verdict == DIFFERENT for level in self.levels)


def title_of(report: ProofReport) -> str:
    """Name the machine, the model and its cache."""
    machine = report.machine
    return (
        f"{machine.identifier}, {machine.system} {machine.system_version}: {report.model}, "
        f"max_kv {report.max_kv}, {report.kv} rows"
    )


def rows_of(report: ProofReport) -> list[tuple[str, str, str]]:
    """Return a report as rows: what, measured, planned or why not."""
    rows = [
        (f"level {level.number}", f"{level.verdict} ({level.cases} cases)", level.detail)
        for level in report.levels
    ]
    for term in report.memory:
        planned = "" if term.planned is None else megabytes(term.planned)
        rows.append((term.name, megabytes(term.bytes), planned))
    rows += [(part.name, f"{part.tokens_per_second:.1f} tokens/s", "") for part in report.speed]
    if report.thermal_state is not None:
        rows.append(("thermal state", f"{report.thermal_state} of 3", ""))
    return [*rows, ("Metal kernels", str(len(report.kernels)), "")]


def megabytes(size: int) -> str:
    """Write a number of bytes in MB."""
    return f"{size / 1e6:,.2f} MB"


def print_report(report: ProofReport, console: Console) -> None:
    """Show a report as a table."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title_of(report)), title_justify="left")
    for column in ("", "measured", "planned, or why not"):
        table.add_column(column, overflow="fold")
    for row in rows_of(report):
        table.add_row(*map(escape, row))
    console.print(table)
