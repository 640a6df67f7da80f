"""Write the README's table: how caches change the answers of a real chat model.

`python -m docs.docgen.answers` writes the block between the marks in README.md from
docs/results/chat, which `make real-results` measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from docs.docgen.markdown import replaced, table
from h2o_pack.measure.evaluation.evaluation_report import Cell, read
from h2o_pack.measure.evaluation.statistics import Estimate

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "docs/results/chat/results.json", ROOT / "README.md"
MARK = "answers"
BUDGET = "1/8"
CACHES = {
    "full": "every token kept",
    "rotating": "sliding window",
    "default": "eviction alone",
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


def cells() -> dict[str, Cell]:
    """Return the measured cell of each of CACHES."""
    groups = read(RESULTS).experiments[0].groups
    return {
        cell.contender: cell
        for group in groups
        for cell in group.cells
        if cell.contender in CACHES and cell.budget in ("all", BUDGET)
    }


def answers(measured: Mapping[str, Cell]) -> str:
    """Return the table: the share of each task's samples answered right, and its interval."""
    rows = [
        (title, *(share(measured[name].metrics[task]) for name in CACHES))
        for task, title in TASKS.items()
    ]
    return table(("answered right", *CACHES.values()), rows)


def share(estimate: Estimate) -> str:
    """Return a share, with its interval if it has a width."""
    interval = f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.mean:.2f}{interval if estimate.low < estimate.high else ''}"


def main() -> None:
    """Write the table into README.md."""
    text = replaced(PAGE.read_text("utf-8"), MARK, answers(cells()))
    PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
