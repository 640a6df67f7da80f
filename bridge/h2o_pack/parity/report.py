"""What parity found, and how people see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from h2o_pack.results import Count, Result, doc

WANTED = 4
Verdict = Literal["equal", "differs", "not run"]
EQUAL: Verdict = "equal"
DIFFERENT: Verdict = "differs"
NOT_RUN: Verdict = "not run"


@dataclass(frozen=True)
class Difference:
    """Where two implementations part."""

    layer: Annotated[int | None, doc("The layer; null of whole models.")]
    step: Annotated[Count, doc("The step.")]
    kind: Annotated[str, doc("What differs.")]
    detail: Annotated[str, doc("How.")]


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One case of a level; level 3 compares logits as outputs, and no scores."""

    name: Annotated[str, doc("Of the case.")]
    dtype: Annotated[str, doc("Of keys and values.")]
    layers: Annotated[Count, doc("Layers compared.")]
    steps: Annotated[Count, doc("Steps compared.")]
    comparisons: Annotated[Count, doc("Comparisons made.")] = 0
    largest_output_difference: Annotated[
        float, doc("Relative to the largest output of the step, where that is above 1.")
    ] = 0.0
    largest_score_difference: Annotated[
        float | None, doc("Relative to the score, where that is above 1.")
    ] = None
    positions_equal: Annotated[bool, doc("Whether the same tokens were kept.")] = True
    tolerance: Annotated[float, doc("Allowed difference of outputs.")]
    first_difference: Annotated[
        Difference | None, doc("The first layer and step that differ.")
    ] = None
    ties: Annotated[
        tuple[Difference, ...],
        doc("Where rounding alone decided between two rows or tokens: not a difference."),
    ] = ()

    def compared(self, difference: Difference, size: float = 0.0) -> CaseResult:
        """Add a comparison that gave so large a difference; the detail of one allowed is ""."""
        largest = {"output": "largest_output_difference", "scores": "largest_score_difference"}
        changes: dict[str, Any] = {"comparisons": self.comparisons + 1}
        if difference.kind in largest:
            name = largest[difference.kind]
            changes[name] = max(getattr(self, name) or 0.0, size)
        if difference.detail:
            changes["first_difference"] = self.first_difference or difference
            changes["positions_equal"] = self.positions_equal and difference.kind != "positions"
        return replace(self, **changes)

    def tie(self, layer: int | None, step: int, detail: str, kind: str = "tie") -> CaseResult:
        """Note where rounding alone decided."""
        return replace(self, ties=(*self.ties, Difference(layer, step, kind, detail)))

    @property
    def equal(self) -> bool:
        """Whether the case is within its tolerance, with equal positions."""
        return (
            self.first_difference is None
            and self.positions_equal
            and self.largest_output_difference <= self.tolerance
        )


@dataclass(frozen=True)
class Level:
    """One level of parity."""

    number: Annotated[Count, doc("0 to 3.")]
    name: Annotated[str, doc("op, trace or tokens.")]
    compared: Annotated[str, doc("What was compared with what.")]
    cases: Annotated[tuple[CaseResult, ...], doc("Its cases.")]
    not_run: Annotated[str, doc("Why it did not run; empty if it did.")] = ""
    model: Annotated[str, doc("Of which of several models; empty where there is one.")] = ""
    verdict: Annotated[Verdict, doc("Whether all cases agree.")] = field(init=False)

    def __post_init__(self) -> None:
        ran = EQUAL if all(case.equal for case in self.cases) else DIFFERENT
        object.__setattr__(self, "verdict", NOT_RUN if self.not_run else ran)


@dataclass(frozen=True)
class Report(Result):
    """What was compared."""

    package: Annotated[str, doc("The package's folder.")]
    model: Annotated[str, doc("The model's id; of several the largest one's.")]
    max_kv: Annotated[Count, doc("Rows kept.")]
    tokens: Annotated[Count, doc("Tokens of the recorded run.")]
    host: Annotated[str, doc("What ran the Swift half.")]
    levels: Annotated[tuple[Level, ...], doc("The levels.")]

    @property
    def differs(self) -> bool:
        """Whether any level that ran found a difference."""
        return any(level.verdict == DIFFERENT for level in self.levels)


def print_report(report: Report, console: Console) -> None:
    """Show the report to people, with a table for each of several models."""
    title = (
        f"{report.model}, max_kv {report.max_kv}, {report.tokens} tokens of a real run: "
        "largest differences"
    )
    models = tuple(dict.fromkeys(level.model for level in report.levels))
    if len(models) > 1:
        console.print(title, style="italic", markup=False, soft_wrap=False)
    for model in models:
        levels = [level for level in report.levels if level.model == model]
        print_levels(levels, model if len(models) > 1 else title, console)

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=False)

    if report.tokens < WANTED * report.max_kv:
        say(f"note: the model's context allows fewer than {WANTED} x max_kv tokens")
    for level in report.levels:
        say(f"level {level.number}{of_model(level)}: {level.compared}")
        for case in level.cases:
            if case.first_difference is not None:
                say(f"  {case.name}: {sentence(case.first_difference)}")
            for tie in case.ties:
                say(f"  {case.name}: {place(tie)}: {tie.detail}")
        if level.not_run:
            say(f"  {level.not_run}")


def print_levels(levels: Sequence[Level], title: str, console: Console) -> None:
    """Show the cases of some levels as a table."""
    table = Table(title=escape(title), title_justify="left")
    table.add_column("level", no_wrap=True)
    table.add_column("case", no_wrap=True)
    for column in ("checks", "outputs", "scores", "allowed", "verdict"):
        table.add_column(column, justify="right", no_wrap=True)
    for level in levels:
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


def of_model(level: Level) -> str:
    """Say which of several models a level is of."""
    return f" of {level.model}" if level.model else ""


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
