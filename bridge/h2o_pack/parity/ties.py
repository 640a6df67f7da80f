"""Ties of importance: two rows of which rounding alone decides which one is evicted."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from h2o_py.config import H2OConfig
from h2o_py.ledger import Ledger

# Importance is a sum of numbers of about 1 in float32, made of scores and novelties that
# other orders of summing change by up to 1e-6 (the largest tie seen: 8e-7). No two rows
# whose importances differ by more than this may be exchanged.
TIE = 2e-6


def tied(ours: Any, theirs: Any, before: Ledger | None, tokens: int) -> str:
    """Say which rows tie where two caches keep different positions; "" if it is no tie.

    ours, theirs: the caches after a step of `tokens` tokens; before: the ledger of one
    of them before it. A single token replaces the row that was least important then; a
    chunk is evicted from after its own scores.
    """
    if mx.array_equal(mx.sort(ours.positions), mx.sort(theirs.positions)):
        return ""
    said = ""
    heads = ours.positions.shape[1]
    for batch in range(ours.positions.shape[0]):
        for head in range(heads):
            mine, its = (kept(cache.ledger, batch, head) for cache in (ours, theirs))
            surplus, lacking = sorted(set(mine) - set(its)), sorted(set(its) - set(mine))
            if not surplus and not lacking:
                continue
            if tokens == 1 and before is not None:
                first = second = importances(before, batch, head, ours.config)
            else:
                first = importances(ours.ledger, batch, head, ours.config)
                second = importances(theirs.ledger, batch, head, ours.config)
            values = [first.get(p) for p in surplus] + [second.get(p) for p in lacking]
            known = [value for value in values if value is not None]
            if len(known) < len(values) or max(known) - min(known) > TIE:
                return ""
            said = said or (
                f"head {head} ties {surplus} with {lacking}: their importances differ by "
                f"{max(known) - min(known):.1g}"
            )
    return said


def kept(ledger: Ledger, batch: int, head: int) -> dict[int, int]:
    """Return {position: row} of the rows in use."""
    positions: Any = ledger.positions[batch, head].tolist()
    return {position: row for row, position in enumerate(positions) if position >= 0}


def importances(ledger: Ledger, batch: int, head: int, config: H2OConfig) -> dict[int, float]:
    """Return {position: importance}; see docs/decisions.md and h2o_py.reference."""
    scores: Any = ledger.scores[batch, head].tolist()
    novelty: Any = ledger.novelty[batch, head].tolist()
    rows = kept(ledger, batch, head)
    if not config.novelty:
        return {position: scores[row] for position, row in rows.items()}
    largest = max((scores[row] for row in rows.values()), default=0.0)
    scale = largest if largest > 0 else 1.0
    return {
        position: max(0.0, scores[row]) / scale + config.novelty * novelty[row]
        for position, row in rows.items()
    }
