"""The measured part of docs/choosing-max-kv.md, from made-up and committed evaluations."""

from __future__ import annotations

import pytest

from docs.docgen import guidance
from docs.docgen.guidance import Results, measured
from docs.docgen.markdown import replaced


def cell(contender, budget, recall, nll, verdict="better", rows=256, title=None):
    def value(mean):
        return {"mean": mean, "low": mean - 0.01, "high": mean + 0.01, "samples": 12}

    difference = {} if verdict is None else {"nll": {**value(0), "verdict": verdict}}
    return {
        "contender": contender,
        "title": title or contender,
        "budget": budget,
        "rows": rows,
        "metrics": {"recall": value(recall), "nll": value(nll)},
        "difference": difference,
    }


def evaluation(fact_recalls, decoy_recalls) -> Results:
    def policies(recalls):
        cells = [cell("full", "all", 1.0, 1.8)]
        for budget, recall in recalls.items():
            cells += [
                cell("sinks_recent", budget, 0.0, 2.0, verdict=None),
                cell("paper_heavy", budget, 0.1, 2.1, "worse"),
                cell("default", budget, recall, 1.9),
            ]
        return {"id": "policies", "cells": cells}

    stored = [cell("default/8", "1/4", 1.0, 1.85, rows=481, title="8-bit | rows")]
    return Results(
        {
            "preset": "demo",
            "model": {"name": "demo"},
            "text": "source code",
            "confidence": 0.95,
            "experiments": [
                {
                    "id": "fact",
                    "groups": [policies(fact_recalls), {"id": "bytes", "cells": stored}],
                },
                {"id": "decoys", "groups": [policies(decoy_recalls)]},
            ],
        }
    )


def test_recall_that_comes_back_at_a_smaller_budget_is_not_believed():
    text = measured(evaluation({"1/2": 1.0, "1/4": 0.5, "1/8": 1.0}, {}))
    assert "down to 1/2 of the text. At 1/4 it is lower." in text


def test_recall_that_is_lost_everywhere_is_said():
    text = measured(evaluation({"1/2": 0.6, "1/4": 0.5}, {"1/4": 0.0}))
    assert "Recall of one fact is below that of the full cache at every budget" in text
    assert "Recall of one of many similar facts is below" in text


def test_a_page_without_its_marks_is_refused():
    with pytest.raises(ValueError, match="lacks the marks"):
        replaced("# Nothing\n", "measured", "text")


@pytest.mark.parametrize(
    "part", list(guidance.parts()), ids=lambda part: f"{part[0].name}-{part[1]}"
)
def test_a_page_is_what_the_program_writes(part):
    page, mark, made = part
    text = page.read_text("utf-8")
    assert replaced(text, mark, made) == text, "run python -m docs.docgen.guidance --write"


def test_the_summary_has_a_column_a_policy_and_says_what_is_lost():
    text = guidance.text(guidance.DOCS / "what-h2o-does.md")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    assert {len(row) for row in rows} == {1 + len(guidance.COLUMNS)}
    assert "| an instruction at the start of 512 tokens, 1/4 of the rows | 0.00 |" in text
