"""The table of what recall brings back, from the committed evaluation `recall`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docs.docgen.markdown import table

DOCS = Path(__file__).resolve().parents[1]
RESULTS = DOCS / "results" / "recall" / "results.json"
PAGE = DOCS / "what-h2o-does.md"
MARK = "recall"

GROUP, POLICY = "standard", "default"
BUDGETS = ("1/8", "1/16")
COLUMNS = {
    "full": "full cache",
    POLICY: "no recall",
    f"{POLICY}+recall": "at prompts",
    f"{POLICY}+recall8": "every 8 tokens",
    f"{POLICY}+recall4": "every 4 tokens",
}
ASKED = (
    ("one fact", "fact", "asked"),
    ("one of 13 similar facts", "alike", "asked"),
    ("one of 33 similar facts", "crowd", "asked"),
    ("one of 13 with numbers of 8 digits", "long", "asked"),
    ("an instruction anywhere in 512 tokens, not pinned", "instruction", "asked"),
    ("one of 13, after another was asked for", "alike", "second_turn"),
    ("one of 13, asked for in other words", "alike", "wording"),
    ("four of eight that a prompt names, one after another", "alike", "named"),
    ("one that an answer needs and its prompt did not name", "alike", "middle"),
    ("one that the prompt asks for before 40 tokens of other text", "alike", "late"),
)
PREDICTED = (
    ("copying from the text, nats per token", "alike", "copy_nll"),
    ("how the text goes on, nats per token", "alike", "text_nll"),
)


def text() -> str:
    """Return the Markdown that stands between the marks."""
    return summary(json.loads(RESULTS.read_text("utf-8")))


def summary(document: Mapping[str, Any]) -> str:
    """Return a table of the default policy, by when it recalls."""
    cells = {
        (each["id"], cell["contender"], cell["budget"]): cell
        for each in document["experiments"]
        for group in each["groups"]
        if group["id"] == GROUP
        for cell in group["cells"]
    }
    rows = [
        (what, *(shown(cells, experiment, name, metric, 2) for name in COLUMNS))
        for what, experiment, metric in ASKED
    ]
    rows += [
        (what, *(shown(cells, experiment, name, metric, 3) for name in COLUMNS))
        for what, experiment, metric in PREDICTED
    ]
    one = cells["alike", "full", "all"]
    samples = one["metrics"]["asked"]["samples"]
    said = (
        "The share of facts that are told right, for a model of 2 M parameters and "
        f"{one['length']:,} tokens read as prompts, {samples} samples: with {BUDGETS[0]} of "
        f"the rows / with {BUDGETS[1]}. The policy is `standard`, nothing is pinned, and the "
        "archive has 4 bits."
    )
    return f"{said}\n\n{table(('', *COLUMNS.values()), rows)}\n"


def shown(
    cells: Mapping[tuple[str, str, str], Mapping[str, Any]],
    experiment: str,
    contender: str,
    metric: str,
    digits: int,
) -> str:
    """Write a contender's means at all budgets, "-" where nothing was measured."""
    budgets = BUDGETS if contender != "full" else ("all",)
    found = [cells.get((experiment, contender, budget)) for budget in budgets]
    means = [cell["metrics"][metric]["mean"] if cell else None for cell in found]
    return " / ".join("-" if mean is None else f"{mean:.{digits}f}" for mean in means)
