"""The page and the figures of a run."""

from __future__ import annotations

from typing import Any

from h2o_pack.measure.evaluation.statistics import compare, estimate
from studies.policy.catalogue import BASELINE
from studies.policy.measure import KINDS

_HEAD = """\
# Which rows to keep: policies tried on the bundled demo model

Simulated step by step with the model's own arithmetic in float32 (`python -m studies.policy`;
the tests hold the simulation against the real cache). {count} samples of {length:,} tokens of
held-out source, seeds {seeds}; a fact is stated at a depth of 0.1, 0.2, 0.3 or 0.6 and asked
for at the end, alone or among 12 others of its form. nll is of the text alone, facts aside,
in nats per token; beside it the difference to sinks + recent on the same samples with its 95%
bootstrap interval; *better* and *worse* are outside of it.
"""


def figures(results: dict[str, dict[int, Any]]) -> dict[str, Any]:
    """Estimates of every policy at every number of rows, for JSON."""
    return {
        policy: {
            str(rows): {
                kind: _cell(found[kind], results[BASELINE][rows][kind]) for kind in KINDS
            }
            for rows, found in by_rows.items()
        }
        for policy, by_rows in results.items()
    }


def page(document: dict[str, Any]) -> str:
    """The figures as Markdown."""
    settings = document["settings"]
    count = settings["samples"] * len(settings["seeds"])
    seeds = ", ".join(map(str, settings["seeds"]))
    lines = [_HEAD.format(count=count, length=settings["length"], seeds=seeds)]
    for rows in settings["rows"]:
        lines += ["", f"## {rows} rows", ""]
        lines += ["| policy | recall, one fact | recall, 12 decoys | nll | to sinks + recent |"]
        lines += ["|---|---|---|---|---|"]
        for policy, by_rows in document["policies"].items():
            if str(rows) in by_rows:
                lines.append(_line(policy, by_rows[str(rows)]))
    return "\n".join(lines) + "\n"


def _line(policy: str, cell: dict[str, Any]) -> str:
    fact, decoys = cell["fact"], cell["decoys"]
    low, high = fact["interval"]
    against = f"{fact['difference']:+.3f} ({low:+.3f} to {high:+.3f}), {fact['verdict']}"
    recalls = f"{fact['recall']:.2f} | {decoys['recall']:.2f}"
    return f"| {policy} | {recalls} | {fact['nll']:.3f} | {against} |"


def _cell(found: dict[str, list[float]], baseline: dict[str, list[float]]) -> dict[str, Any]:
    difference = compare(found["nll"], baseline["nll"], lower_is_better=True)
    return {
        "recall": estimate(found["recall"]).mean,
        "nll": estimate(found["nll"]).mean,
        "difference": difference.mean,
        "interval": [difference.low, difference.high],
        "verdict": difference.verdict,
    }
