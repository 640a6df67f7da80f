"""The goals for what recall costs, each beside what a run measured."""

from __future__ import annotations

from collections.abc import Iterator

from h2o_pack.measure.bench.archive_writing import Writing
from h2o_pack.measure.bench.claims import Claim, claim
from h2o_pack.measure.bench.recall import CHUNK, RecallCost

CHUNK_GOALS = {4096: 1.1, 16384: 1.4}
STEP_GOAL = 1.02
WRITING_GOAL = 1.2
GROWTH_GOAL = 0.02


def recall_claims(recall: RecallCost, writing: tuple[Writing, ...]) -> Iterator[Claim]:
    """Compare layers with recall with layers without."""
    dtype = recall.dtype
    for chunk in recall.chunks:
        name = (
            f"{CHUNK} tokens of one layer, {chunk.archived:,} archived, with recall / without"
        )
        yield claim(name, dtype, chunk.ratio, "at most", CHUNK_GOALS.get(chunk.archived))
    for asking in recall.asking:
        name = f"a layer's token that asks, {asking.archived:,} archived, with / without"
        yield claim(name, dtype, asking.ratio)
    step = recall.step
    yield claim(
        "a layer's token between recalls, with recall / without",
        dtype,
        step.ratio,
        "at most",
        STEP_GOAL,
    )
    yield claim(
        "the same, write, attention and ledger alone", dtype, step.recalling.over(step.without)
    )
    for each in writing:
        name = f"a layer's slow tokens that write a block in {each.store} / median of others"
        yield claim(name, dtype, each.ratio, "at most", WRITING_GOAL)
        yield claim("the same in CPU time", dtype, each.cpu_ratio)
        yield claim(
            f"memory that {each.steps:,} tokens add, archive in {each.store} / its bytes",
            dtype,
            each.growth / each.archive,
            "below",
            GROWTH_GOAL,
        )
