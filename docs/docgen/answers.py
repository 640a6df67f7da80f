"""Write the README's table: how caches change the answers of a real chat model.

`python -m docs.docgen.answers` writes the block between the marks in README.md from
docs/results/chat, which `make real-results` measures.
"""

from __future__ import annotations

from pathlib import Path

from docs.docgen.markdown import replaced, table
from h2o_pack.measure.evaluation.evaluation_report import TEXT_KL, Report, read
from h2o_pack.measure.evaluation.statistics import Estimate

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "docs/results/chat/results.json", ROOT / "README.md"
MARK = "answers"
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


def answers(report: Report) -> str:
    """Return the table: the share of each task's samples answered right, and its interval.

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


def figure(estimate: Estimate) -> str:
    """Return a mean, with its interval if it has a width."""
    interval = f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.mean:.2f}{interval if estimate.low < estimate.high else ''}"


def main() -> None:
    """Write the table into README.md."""
    text = replaced(PAGE.read_text("utf-8"), MARK, answers(read(RESULTS)))
    PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
