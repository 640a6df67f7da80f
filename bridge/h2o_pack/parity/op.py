"""Level 1: compares the C++ core's recorded steps with h2o_pack.parity.reference.

If two rows are equally important except for rounding, either may be evicted. This is a tie.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import mlx.core as mx

from h2o_pack.parity import reference
from h2o_pack.parity.parity_report import CaseResult, Difference
from h2o_pack.parity.trace import SCORE_TOLERANCE, Case, Trace, advance, make_caches
from h2o_py.rows import Ledger

# The largest difference of importance at which two rows tie: another order of summing changes
# a score, a float32 of at most about 1, by up to 1e-6 (the largest difference measured in a tie
# is 8e-7).
TIE = 2e-6


def compare(trace: Trace, case: Case) -> CaseResult:
    """Replay a case with the reference, and compare it with the core after each step.

    The result names the first difference.
    If the two keep different positions because of a tie, the result has a note of it rather
    than a difference, and the reference goes on from the core's state.
    """
    caches, cores = make_caches(case, reference), make_caches(case)
    result = CaseResult(
        name=case.name,
        dtype=case.dtype,
        layers=len(case.layers),
        steps=len(case.steps),
        largest_score_difference=0.0,
        tolerance=case.tolerance,
    )
    for step, tokens in enumerate(case.steps):
        arrays = trace.arrays(case, step)
        recorded = [
            {
                name: arrays[f"{layer}.{name}"]
                for name in ("q", "k", "v", "out", "positions", "scores")
                if f"{layer}.{name}" in arrays
            }
            for layer in case.layers
        ]
        before = [cache.ledger for cache in caches]
        outs = [advance(*pair, case.scale) for pair in zip(caches, recorded, strict=True)]
        for pair in zip(cores, recorded, strict=True):
            advance(*pair, case.scale)
        ties = []
        for i, (cache, core) in enumerate(zip(caches, cores, strict=True)):
            tie = tied(cache, core, before[i], tokens)
            ties += [i] if tie else []
            result = result.tie(case.layers[i], step, tie) if tie else result
            for kind, difference, detail in differences(
                core if tie else cache, outs[i], recorded[i], case.tolerance
            ):
                first = Difference(case.layers[i], step, kind, detail)
                result = result.compared(first, difference)
        for i in ties:
            caches[i].arrays, caches[i].header = cores[i].arrays, cores[i].header
    return result


def differences(
    cache: Any, out: mx.array | None, recorded: dict[str, mx.array], tolerance: float
) -> Iterator[tuple[str, float, str]]:
    """Yield (kind, difference, message) of each comparison after a step.

    The message is "" if the difference is allowed.
    """
    if out is not None:
        size = relative(out, recorded["out"])
        detail = f"the outputs differ by {size:.2g}, allowed is {tolerance:.2g}"
        yield "output", size, detail if size > tolerance else ""
    positions, expected = mx.sort(cache.positions), mx.sort(recorded["positions"])
    if not mx.array_equal(positions, expected):
        yield "positions", 0.0, first_head(positions, expected)
        return
    yield "positions", 0.0, ""
    if out is not None:
        scores, expected_scores = (
            mx.take_along_axis(scores, mx.argsort(positions), axis=-1)
            for scores, positions in (
                (cache.scores, cache.positions),
                (recorded["scores"], recorded["positions"]),
            )
        )
        scaled = mx.maximum(1.0, mx.abs(expected_scores))
        size = largest(scores / scaled, expected_scores / scaled)
        detail = f"the scores differ by {size:.2g}, allowed is {SCORE_TOLERANCE:.2g}"
        yield "scores", size, detail if size > SCORE_TOLERANCE else ""


def relative(values: mx.array, expected: mx.array) -> float:
    """Return the largest difference, divided by the largest expected value if it is above 1."""
    scale = mx.maximum(1.0, mx.abs(expected.astype(mx.float32)).max())
    return largest(values / scale, expected / scale)


def largest(values: mx.array, expected: mx.array) -> float:
    """Return the largest difference of two arrays, in float32; NaN counts as infinite."""
    size = float(mx.abs(values.astype(mx.float32) - expected.astype(mx.float32)).max())
    return float("inf") if size != size else size  # noqa: PLR0124 - NaN


def first_head(
    positions: mx.array, expected: mx.array, expected_name: str = "the trace"
) -> str:
    """Say which positions the first differing head keeps, and which are expected instead."""
    rows = positions.shape[-1]
    differing = mx.max(mx.abs(positions - expected), axis=-1).reshape(-1)
    head = int(mx.argmax(differing > 0))
    first_kept, expected_kept = (
        set(cast("list[int]", array.reshape(-1, rows)[head].tolist()))
        for array in (positions, expected)
    )
    surplus, lacking = sorted(first_kept - expected_kept), sorted(expected_kept - first_kept)
    return f"head {head} keeps {surplus}, {expected_name} {lacking} instead"


def tied(cache: Any, core: Any, before: Ledger | None, tokens: int) -> str:
    """Name the rows that tie if two caches keep different positions; "" if none tie.

    cache, core: the caches of the reference and of the core after a step of `tokens` tokens.
    before: the ledger of `cache` before the step. A single token replaces the row that was
    least important before the step; after a chunk, rows are evicted by importances that include
    the chunk's scores.
    """
    if mx.array_equal(mx.sort(cache.positions), mx.sort(core.positions)):
        return ""
    remark = ""
    heads = cache.positions.shape[1]
    for batch in range(cache.positions.shape[0]):
        for head in range(heads):
            in_cache, in_core = (set(rows_held(c.ledger, batch, head)) for c in (cache, core))
            surplus, lacking = sorted(in_cache - in_core), sorted(in_core - in_cache)
            if not surplus and not lacking:
                continue
            if tokens == 1 and before is not None:
                of_cache = of_core = importances(before, batch, head)
            else:
                of_cache = importances(cache.ledger, batch, head)
                of_core = importances(core.ledger, batch, head)
            values = [of_cache.get(p) for p in surplus] + [of_core.get(p) for p in lacking]
            present = [value for value in values if value is not None]
            if len(present) < len(values) or max(present) - min(present) > TIE:
                return ""
            remark = remark or (
                f"in head {head} {surplus} ties with {lacking}: their importances differ by "
                f"{max(present) - min(present):.1g}"
            )
    return remark


def rows_held(ledger: Ledger, batch: int, head: int) -> dict[int, int]:
    """Return the row of each position that a head keeps, {position: row}."""
    positions: Any = ledger.positions[batch, head].tolist()
    return {position: row for row, position in enumerate(positions) if position >= 0}


def importances(ledger: Ledger, batch: int, head: int) -> dict[int, float]:
    """Return {position: importance}, also of protected positions."""
    values: Any = ledger.scores[batch, head].tolist()
    return {position: values[row] for position, row in rows_held(ledger, batch, head).items()}
