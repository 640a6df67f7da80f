"""Write what caches do to the answers of a real chat model, from docs/results/*/results.json.

`python -m docs.docgen.answers` writes the blocks between the marks in README.md,
docs/index.md and docs/results/answers.md. `make real-results` measures docs/results/chat.
"""

from __future__ import annotations

from pathlib import Path

from docs.docgen.markdown import replaced, table
from h2o_pack.measure.evaluation.evaluation_report import (
    TEXT_KL,
    Cell,
    GroupResult,
    Report,
    read,
)
from h2o_pack.measure.evaluation.statistics import Estimate, compare, estimate

DOCS = Path(__file__).resolve().parents[1]
CHAT = DOCS / "results/chat/results.json"
REPORTS = (CHAT, *sorted(path for path in DOCS.glob("results/*/results.json") if path != CHAT))
SHORT, WHOLE = "answers", "all answers"
"""The marks of the short table, and of all tables."""
BUDGET = "1/8"
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


def short_table(report: Report) -> str:
    """Return a table of CACHES: the share of each task's samples answered right.

    Below are the KL divergence of predictions from the full cache's, in nats per token, and the
    KB of memory and of the archive.
    """
    experiment = report.experiments[0]
    measured = {
        cell.contender: cell
        for group in experiment.groups
        for cell in group.cells
        if cell.contender in CACHES and cell.budget in ("all", BUDGET)
    }
    cells = [measured[name] for name in CACHES]
    samples = experiment.samples * len(report.seeds)
    rows = [
        (title, *(figure(cell.metrics[task]) for cell in cells))
        for task, title in (*TASKS.items(), (TEXT_KL, "KL divergence of text, in nats"))
    ]
    rows += [
        ("memory, KB", *(f"{cell.bytes / 1024:,.0f}" for cell in cells)),
        ("flash, KB", *(f"{cell.archive_bytes / 1024:,.0f}" for cell in cells)),
    ]
    return table((f"right in {samples} conversations", *CACHES.values()), rows)


def figure(estimate: Estimate, digits: int = 2) -> str:
    """Return a mean, with its interval if it has a width."""
    interval = f" [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
    return f"{estimate.mean:.{digits}f}{interval if estimate.low < estimate.high else ''}"


def sections(report: Report) -> str:
    """Return all tables of a report: of each group the caches, and then the tasks."""
    seeds = ", ".join(map(str, report.seeds))
    origin = f"Model {report.model.name}; {report.text}; seeds {seeds}. {report.machine}."
    parts = [f"## {report.title}", origin]
    for experiment in report.experiments:
        for group in experiment.groups:
            length = f"{group.cells[0].length:,}"
            samples = experiment.samples * len(report.seeds)
            parts += [
                f"### {group.title}",
                f"{samples} conversations of {length} tokens.",
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
    right = {cell.contender: right_by_sample(group, cell) for cell in group.cells}
    baseline = right.get(group.baseline)
    rows = []
    for cell in group.cells:
        own = right[cell.contender]
        verdict = ""
        if baseline and cell.contender != group.baseline:
            verdict = WORDS[compare(own, baseline, lower_is_better=False).verdict]
        divergence = cell.metrics.get(TEXT_KL)
        rows.append(
            (
                cell.title,
                f"{cell.rows:,}",
                f"{cell.bytes / 1024:,.0f}",
                f"{cell.archive_bytes / 1024:,.0f}",
                f"{figure(estimate(own))}{verdict}",
                figure(divergence, 3) if divergence else "",
            )
        )
    heads = ("cache", "rows", "KB", "flash, KB", "right answers", KL)
    return table(heads, rows)


def right_by_sample(group: GroupResult, cell: Cell) -> list[float]:
    """Return the share of right answers of each sample, over all tasks."""
    tasks = zip(*(cell.by_sample[name] for name in tasks_of(group)), strict=True)
    return [sum(answers) / len(answers) for answers in tasks]


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
    short = short_table(read(CHAT))
    whole = "\n\n".join(sections(read(path)) for path in REPORTS)
    blocks = (
        (DOCS.parent / "README.md", SHORT, short),
        (DOCS / "index.md", SHORT, short),
        (DOCS / "results/answers.md", WHOLE, whole),
    )
    return {path: replaced(path.read_text("utf-8"), *block) for path, *block in blocks}


def main() -> None:
    """Write the tables."""
    for path, text in files().items():
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
