"""The page and the figures of a run."""

from __future__ import annotations

from typing import Any

from h2o_pack.measure.evaluation.lockstep import Outcome
from h2o_pack.measure.evaluation.statistics import compare, estimate
from h2o_pack.measure.tables import markdown_table
from studies.rotation.tried import Level, Tried

HEAD = """\
# Rows rotated before they are quantized

Written by `python -m studies.rotation` on the bundled demo model. {count} samples of \
{length:,} tokens of held-out source (seeds {seeds}), each with one fact to be found among 12 \
others of its form, read token by token through the real caches. A rotated cache gets queries, \
keys and values that a Hadamard matrix with random signs has turned, and its output is turned \
back; 3 bits are rounded to on writing. KL is to the full cache's predictions, in nats per \
token, with its 95% bootstrap interval. The first verdict compares a rotated cache with the \
plain one of the same storage, the second every cache with the one of least KL in the table.
"""
HEADER = ("cache", "KB", "KL, nats", "rotated against plain", "against the best", "facts")


def figures(levels: list[Level], found: dict[Tried, list[Outcome]]) -> list[dict[str, Any]]:
    """Return every cache's figures by level, for JSON."""
    document = []
    for level in levels:
        values = {each: [outcome.kl for outcome in found[each]] for each in level.tried}
        best = min(values, key=lambda each: sum(values[each]))
        cells = [cell(each, found[each], values, best) for each in level.tried]
        document.append({"title": level.title, "bytes": level.limit, "caches": cells})
    return document


def cell(
    each: Tried, outcomes: list[Outcome], values: dict[Tried, list[float]], best: Tried
) -> dict[str, Any]:
    """Return one cache's figures."""
    plain = next(
        other
        for other in values
        if (other.stored, other.whole, other.rotated) == (each.stored, each.whole, False)
    )
    mean = estimate(values[each]).rounded()
    return {
        "cache": each.name,
        "rows": each.rows,
        "kl": mean.mean,
        "interval": [mean.low, mean.high],
        "facts": sum(outcome.recalled[0] for outcome in outcomes) / len(outcomes),
        "to_plain": against(values[each], values[plain]) if each.rotated else "",
        "to_best": "best" if each is best else against(values[each], values[best]),
    }


def against(values: list[float], others: list[float]) -> str:
    """Say what the difference on the same samples is worth."""
    difference = compare(values, others, lower_is_better=True).rounded()
    return f"{difference.verdict} ({difference.low:+.4f} to {difference.high:+.4f})"


def page(document: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [HEAD.format(**document["settings"])]
    for level in document["levels"]:
        rows = [
            (
                each["cache"],
                f"{level['bytes'] / 1024:,.0f}",
                "{:.4f} [{:.4f}, {:.4f}]".format(each["kl"], *each["interval"]),
                each["to_plain"],
                each["to_best"],
                f"{each['facts']:.2f}",
            )
            for each in level["caches"]
        ]
        lines += ["", f"## At the {level['title']}", "", *markdown_table(HEADER, rows)]
    return "\n".join(lines) + "\n"
