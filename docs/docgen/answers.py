"""Write what caches do to the answers of a real chat model, from docs/results/*/results.json.

`python -m docs.docgen.answers` writes the blocks between the marks in README.md and
docs/results/answers.md. `make real-results` measures docs/results/chat.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docs.docgen.markdown import replaced, table
from h2o_pack.measure.evaluation.evaluation_report import (
    TEXT_KL,
    Cell,
    EvaluationReport,
    GroupResult,
    read,
)
from h2o_pack.measure.evaluation.statistics import Estimate, compare, estimate

DOCS = Path(__file__).resolve().parents[1]
CHAT = DOCS / "results/chat/results.json"
REPORTS = (CHAT, *sorted(path for path in DOCS.glob("results/*/results.json") if path != CHAT))
SHORT, WHOLE = "answers", "all answers"
"""The marks of the short table, and of all tables."""
BUDGET, SHORTER, LONGER = "1/8", 1024, 4096
CACHES = {
    "full": "every token kept",
    "full/4": "the same in 4 bits",
    "rotating": "sliding window",
    "default": "eviction alone",
    "default+recall": "eviction and recall",
}
TASKS = {
    "asked": "a fact in the text",
    "wording": "a fact, asked in other words",
    "second_turn": "another fact, a turn later",
    "instruction": "an instruction far back",
    "earlier": "a fact in an earlier answer",
    "tool": "a fact in a tool's output",
    "middle": "a fact needed in the middle of an answer",
}
ALL_TASKS = {**TASKS, "named": "two of three facts named together"}
KL = "KL of text, in nats"
MOST_COLUMNS = 7
"""The most caches side by side that a page shows."""


def short_table(report: EvaluationReport) -> str:
    """Return a table of CACHES: the share of right answers in each task, and `sizes`."""
    cells = cells_of(report, SHORTER)
    rows = [(title, *(figure(c.metrics[task]) for c in cells)) for task, title in TASKS.items()]
    head = f"right in {samples_of(report)} conversations of {SHORTER:,} tokens"
    return table((head, *CACHES.values()), [*rows, *sizes(cells)])


def long_table(report: EvaluationReport) -> str:
    """Return a table of CACHES: the share of right answers, and `sizes`."""
    cells = cells_of(report, LONGER)
    right = [figure(estimate(cell.answers)) for cell in cells]
    head = f"{samples_of(report)} conversations of {LONGER:,} tokens"
    return table((head, *CACHES.values()), [("right answers", *right), *sizes(cells)])


def cells_of(report: EvaluationReport, length: int) -> list[Cell]:
    """Return the cells of CACHES that keep all tokens, or have the rows of BUDGET.

    length: of the conversations, in tokens.
    """
    measured = {
        cell.contender: cell
        for group in report.experiments[0].groups
        for cell in group.cells
        if cell.length == length and cell.budget in ("all", BUDGET)
    }
    return [measured[name] for name in CACHES]


def samples_of(report: EvaluationReport) -> int:
    """Return the number of conversations."""
    return report.experiments[0].samples * len(report.seeds)


def sizes(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    """Return rows of KL, in nats per token, and of the KB of memory and of the archive."""
    return [
        ("KL divergence of text, in nats", *(figure(c.metrics[TEXT_KL]) for c in cells)),
        ("memory, KB", *(f"{cell.bytes / 1024:,.0f}" for cell in cells)),
        ("flash, KB", *(f"{cell.archive_bytes / 1024:,.0f}" for cell in cells)),
    ]


def figure(estimate: Estimate, digits: int = 2) -> str:
    """Return a mean, with its interval if it has a width."""
    interval = f" [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
    return f"{estimate.mean:.{digits}f}{interval if estimate.low < estimate.high else ''}"


def sections(report: EvaluationReport) -> str:
    """Return all tables of a report: of each group the caches, and then the tasks."""
    seeds = ", ".join(map(str, report.seeds))
    origin = f"Model {report.model.name}; {report.text}; seeds {seeds}. {report.machine}."
    parts = [f"## {report.title}", origin]
    for experiment in report.experiments:
        for group in experiment.groups:
            length = f"{group.cells[0].length:,}"
            parts += [
                f"### {group.title}",
                f"{samples_of(report)} conversations of {length} tokens.",
                group_table(group),
                tasks_table(group),
            ]
    return "\n\n".join(part for part in parts if part)


def tasks_of(group: GroupResult) -> list[str]:
    """Return the names of the tasks that a group's caches were asked."""
    return [name for name in ALL_TASKS if name in group.cells[0].metrics]


WORDS = {"better": ", better", "worse": ", worse", "not distinguishable": ""}
"""How a table says a verdict."""


def group_table(group: GroupResult) -> str:
    """Return a group's caches with their size, their share of right answers and their loss."""
    baseline = next((c for c in group.cells if c.contender == group.baseline), None)
    rows = []
    for cell in group.cells:
        verdict = ""
        if baseline is not None and cell is not baseline:
            verdict = WORDS[
                compare(cell.answers, baseline.answers, lower_is_better=False).verdict
            ]
        divergence = cell.metrics.get(TEXT_KL)
        rows.append(
            (
                cell.title,
                f"{cell.rows:,}",
                f"{cell.bytes / 1024:,.0f}",
                f"{cell.archive_bytes / 1024:,.0f}",
                f"{figure(estimate(cell.answers))}{verdict}",
                figure(divergence, 3) if divergence else "",
            )
        )
    heads = ("cache", "rows", "KB", "flash, KB", "right answers", KL)
    return table(heads, rows)


def tasks_table(group: GroupResult) -> str:
    """Return the share of right answers of each task; nothing for one task or many caches."""
    tasks = tasks_of(group)
    if len(tasks) == 1 or len(group.cells) > MOST_COLUMNS:
        return ""
    rows = [
        (ALL_TASKS[task], *(f"{cell.metrics[task].mean:.2f}" for cell in group.cells))
        for task in tasks
    ]
    return table(("right answers", *(cell.title for cell in group.cells)), rows)


def files() -> dict[Path, str]:
    """Return the pages with their tables."""
    reports = [read(path) for path in REPORTS]
    short = f"{short_table(reports[0])}\n\n{long_table(reports[0])}"
    whole = "\n\n".join(map(sections, reports))
    blocks = (
        (DOCS.parent / "README.md", SHORT, short),
        (DOCS / "results/answers.md", WHOLE, whole),
    )
    return {path: replaced(path.read_text("utf-8"), *block) for path, *block in blocks}


def main() -> None:
    """Write the tables."""
    for path, text in files().items():
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
