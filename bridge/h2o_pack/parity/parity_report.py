"""The types of a parity report, which `h2o-pack parity --json` prints, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.markup import escape

from h2o_pack.measure.machine import Machine
from h2o_pack.printing import caption, plain_table
from h2o_pack.results import Count, Result, doc

Verdict = Literal["equal", "differs", "not run"]
EQUAL: Verdict = "equal"
DIFFERENT: Verdict = "differs"
NOT_RUN: Verdict = "not run"


@dataclass(frozen=True)
class Difference:
    """A difference between two implementations."""

    layer: Annotated[int | None, doc("Index of the layer; null if whole models are compared.")]
    step: Annotated[Count, doc("Number of the step; at level 0 of the text or conversation.")]
    kind: Annotated[str, doc("What differs, such as outputs or scores.")]
    detail: Annotated[str, doc("How the two differ, in words.")]
    item: Annotated[str, doc("Text or conversation at level 0; empty at other levels.")] = ""


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """The result of one case of a level.

    The outputs of level 3 are logits; it compares no scores. Level 0 compares no numbers.
    """

    name: Annotated[str, doc("The case's name.")]
    dtype: Annotated[str, doc('Data type of keys and values; "text" at level 0.')]
    layers: Annotated[Count, doc("Number of layers compared.")]
    steps: Annotated[Count, doc("Number of steps, texts or conversations compared.")]
    comparisons: Annotated[Count, doc("Number of comparisons.")] = 0
    largest_output_difference: Annotated[
        float,
        doc("Largest difference, divided by the step's largest output if that is above 1."),
    ] = 0.0
    largest_score_difference: Annotated[
        float | None, doc("Largest difference, divided by the score if that is above 1.")
    ] = None
    positions_equal: Annotated[bool, doc("Whether the same tokens were kept.")] = True
    tolerance: Annotated[float, doc("Allowed difference of outputs.")]
    first_difference: Annotated[
        Difference | None, doc("The first layer and step that differ.")
    ] = None
    ties: Annotated[
        tuple[Difference, ...],
        doc("Choices between two rows or tokens that rounding decided; not a difference."),
    ] = ()

    def compared(self, difference: Difference, size: float = 0.0) -> CaseResult:
        """Return the result with one more comparison.

        size: the difference, kept if it is the largest of its kind so far. A `difference` whose
        `detail` is "" is allowed.
        """
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
        """Return the result with a note of a choice that rounding decided."""
        return replace(self, ties=(*self.ties, Difference(layer, step, kind, detail)))

    @property
    def equal(self) -> bool:
        """Whether all differences are allowed and the kept positions are equal."""
        return (
            self.first_difference is None
            and self.positions_equal
            and self.largest_output_difference <= self.tolerance
        )


@dataclass(frozen=True)
class Level:
    """The result of one level of parity."""

    number: Annotated[Count, doc("0 to 3.")]
    name: Annotated[str, doc("text, op, trace or tokens.")]
    compared: Annotated[str, doc("The two implementations that were compared.")]
    cases: Annotated[tuple[CaseResult, ...], doc("The results of the level's cases.")]
    not_run: Annotated[str, doc("Why the level did not run; empty if it did.")] = ""
    model: Annotated[str, doc("The model's id in a package of several; else empty.")] = ""
    verdict: Annotated[Verdict, doc("Whether all cases agree.")] = field(init=False)

    def __post_init__(self) -> None:
        outcome = EQUAL if all(case.equal for case in self.cases) else DIFFERENT
        object.__setattr__(self, "verdict", NOT_RUN if self.not_run else outcome)


@dataclass(frozen=True)
class ParityReport(Result):
    """The results of parity on a package."""

    package: Annotated[str, doc("The package's folder.")]
    model: Annotated[str, doc("The model's id; with several models, the largest one's.")]
    max_kv: Annotated[Count, doc("Rows per KV head that the caches keep; 0: all.")]
    tokens: Annotated[Count, doc("Number of tokens of the recorded run.")]
    host: Annotated[str, doc("The MLX that the Swift package was built with.")]
    levels: Annotated[tuple[Level, ...], doc("The results of the levels.")]
    machine: Annotated[Machine, doc("The machine that compared.")]
    versions: Annotated[
        dict[str, str],
        doc("Versions of the package's sources, and of Swift and Xcode if they are here."),
    ]
    kernels: Annotated[
        tuple[str, ...], doc("Metal kernels that wrote scores in Python; none on a CPU.")
    ] = ()

    @property
    def differs(self) -> bool:
        """Whether any level that ran found a difference."""
        return any(level.verdict == DIFFERENT for level in self.levels)


def print_report(report: ParityReport, console: Console) -> None:
    """Show the report at a terminal; each of several models has a table."""
    bound = f"max_kv {report.max_kv}" if report.max_kv else "every token kept"
    title = f"{report.model}, {bound}"
    if report.tokens:
        title += f", {report.tokens} tokens of a real run: largest differences"
    models = tuple(dict.fromkeys(level.model for level in report.levels))
    if len(models) > 1:
        caption(title, console, "italic")
    for model in models:
        levels = [level for level in report.levels if level.model == model]
        print_levels(levels, model if len(models) > 1 else title, console)

    def say(text: str) -> None:
        caption(text, console, "")

    if 0 < report.tokens <= report.max_kv:
        say("note: the model's context is too short for the caches to evict anything")
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
    columns = ("level", "case", "checks", "outputs", "scores", "limit", "verdict")
    table = plain_table(*columns, text=("case",))
    table.title, table.title_justify = escape(title), "left"
    for level in levels:
        name = f"{level.number} {level.name}"
        if level.not_run:
            table.add_row(name, *["-"] * 5, NOT_RUN)
        for case in level.cases:
            table.add_row(
                name,
                case.name,
                str(case.comparisons),
                *sizes(level, case),
                EQUAL if case.equal else f"[red]{DIFFERENT}[/red]",
            )
    console.print(table)


def of_model(level: Level) -> str:
    """Return " of MODEL" if the package has several models, else ""."""
    return f" of {level.model}" if level.model else ""


def sizes(level: Level, case: CaseResult) -> tuple[str, str, str]:
    """Return the largest differences of outputs and scores, and the allowed one, as text."""
    if level.number == 0:
        return "-", "-", "-"
    size = case.largest_score_difference
    scores = "-" if size is None else f"{size:.1e}"
    return f"{case.largest_output_difference:.1e}", scores, f"{case.tolerance:.2g}"


def sentence(difference: Difference) -> str:
    """Describe the first difference in a sentence, with its layer and step."""
    return f"first difference at {place(difference)} ({difference.kind}): {difference.detail}"


def place(difference: Difference) -> str:
    """Return "layer 3, step 7", only the step without a layer, or the text or conversation."""
    if difference.item:
        return difference.item
    layer = "" if difference.layer is None else f"layer {difference.layer}, "
    return f"{layer}step {difference.step}"
