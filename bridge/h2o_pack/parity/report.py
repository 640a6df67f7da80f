"""What parity found, as a table for people and as JSON for machines."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = 1
WANTED = 4
EQUAL, DIFFERENT, NOT_RUN = "equal", "differs", "not run"


@dataclass(frozen=True)
class Difference:
    """The first step of a case where two implementations part; no layer of whole models."""

    layer: int | None
    step: int
    kind: str
    detail: str


@dataclass(frozen=True)
class CaseResult:
    """One case of one level.

    Differences are relative where values are above 1: outputs to the largest
    output of the step, scores to themselves; level 3 has logits for outputs and no
    scores. tolerance is that of outputs; positions must be equal. ties: where rounding
    alone decided between two rows or tokens, which is no difference.
    """

    name: str
    dtype: str
    layers: int
    steps: int
    comparisons: int
    largest_output_difference: float
    largest_score_difference: float | None
    positions_equal: bool
    tolerance: float
    first_difference: Difference | None
    ties: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        """Tell whether the case is within its tolerance, with equal positions."""
        return (
            self.first_difference is None
            and self.positions_equal
            and self.largest_output_difference <= self.tolerance
        )


@dataclass(frozen=True)
class Level:
    """One level of parity; `compared` says what with what."""

    number: int
    name: str
    compared: str
    cases: tuple[CaseResult, ...]
    not_run: str = ""

    @property
    def verdict(self) -> str:
        """Say whether all cases agree."""
        if self.not_run:
            return NOT_RUN
        return EQUAL if all(case.equal for case in self.cases) else DIFFERENT


@dataclass(frozen=True)
class Report:
    """Everything that `h2o-pack parity` found. tokens: those of the recorded run."""

    package: str
    model: str
    max_kv: int
    tokens: int
    host: str
    levels: tuple[Level, ...]

    @property
    def differs(self) -> bool:
        """Tell whether any level that ran found a difference."""
        return any(level.verdict == DIFFERENT for level in self.levels)

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        levels = [{**asdict(level), "verdict": level.verdict} for level in self.levels]
        return {"format": FORMAT, **asdict(self), "levels": levels}


def print_report(report: Report, console: Console) -> None:
    """Show the report to people."""
    from rich.table import Table

    table = Table(
        title=f"{report.model}, max_kv {report.max_kv}, {report.tokens} tokens of a real run: "
        "largest differences",
        title_justify="left",
    )
    table.add_column("level", no_wrap=True)
    table.add_column("case", no_wrap=True)
    for column in ("checks", "outputs", "scores", "allowed", "verdict"):
        table.add_column(column, justify="right", no_wrap=True)
    for level in report.levels:
        name = f"{level.number} {level.name}"
        if level.not_run:
            table.add_row(name, *["-"] * 5, NOT_RUN)
        for case in level.cases:
            table.add_row(
                name,
                case.name,
                str(case.comparisons),
                f"{case.largest_output_difference:.1e}",
                scores(case),
                f"{case.tolerance:.2g}",
                EQUAL if case.equal else f"[red]{DIFFERENT}[/red]",
            )
    console.print(table)
    if report.tokens < WANTED * report.max_kv:
        console.print(f"note: the model's context allows fewer than {WANTED} x max_kv tokens")
    for level in report.levels:
        console.print(f"level {level.number}: {level.compared}", markup=False)
        for case in level.cases:
            if case.first_difference is not None:
                console.print(f"  {case.name}: {sentence(case.first_difference)}", markup=False)
            for tie in case.ties:
                said = f"  {case.name}: {place(tie)}: {tie.detail}"
                console.print(said, markup=False)
        if level.not_run:
            console.print(f"  {level.not_run}", markup=False)


def scores(case: CaseResult) -> str:
    """Show the largest difference of scores, where there are any."""
    size = case.largest_score_difference
    return "-" if size is None else f"{size:.1e}"


def sentence(difference: Difference) -> str:
    """Name the layer and the step of a difference."""
    return f"first difference at {place(difference)} ({difference.kind}): {difference.detail}"


def place(difference: Difference) -> str:
    """Say where a difference is: at a layer, or in a whole model."""
    layer = "" if difference.layer is None else f"layer {difference.layer}, "
    return f"{layer}step {difference.step}"
