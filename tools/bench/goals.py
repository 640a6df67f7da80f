"""The goals for speed and for what recall costs, each beside what a run measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from h2o_pack.measure.timing import Timing
from tools.bench.caches import Options
from tools.bench.recall import CHUNK, RecallCost, Writing
from tools.bench.steps import (
    COUNTED_STEPS,
    ROWS,
    Eviction,
    Pipelining,
    Scaling,
    Steps,
    UpstreamWrite,
)

Direction = Literal["at least", "at most", "below"]

DENSE_OVER_ROTATING = {"float16": 10.0, "bfloat16": 8.0, "float32": 4.0}
LOW_PRECISION = ("float16", "bfloat16")


@dataclass(frozen=True)
class Claim:
    """A ratio of one run, and its goal if it has one."""

    name: str
    dtype: str
    value: float
    direction: Direction | None
    goal: float | None
    verdict: Literal["met", "not met", "comparison"]


def claim(
    name: str,
    dtype: str,
    value: float,
    direction: Direction = "at least",
    goal: float | None = None,
) -> Claim:
    """Compare a ratio with its goal, if there is one."""
    if goal is None:
        return Claim(name, dtype, value, None, None, "comparison")
    met = {"at least": value >= goal, "at most": value <= goal, "below": value < goal}
    return Claim(name, dtype, value, direction, goal, "met" if met[direction] else "not met")


def all_claims(
    options: Options,
    peak: float,
    steps: Iterable[Steps],
    evictions: Iterable[Eviction],
    pipelining: Iterable[Pipelining],
    upstream_write: UpstreamWrite,
    scaling: Scaling,
) -> tuple[Claim, ...]:
    """Return every goal beside its measured ratio; peak in multiply-adds per second."""
    return (
        *(c for each in steps for c in step_claims(each, options, peak)),
        *(c for each in evictions for c in eviction_claims(each)),
        *(c for each in pipelining for c in pipelining_claims(each, options, peak)),
        *upstream_claims(upstream_write),
        *scaling_claims(scaling),
    )


def multiply_adds(options: Options) -> int:
    """Return those of one step: every query head's logits and output over C rows."""
    return options.heads * options.capacity * 2 * options.head_dim


def share_of_peak(step: Timing, options: Options, peak: float) -> float:
    """Return the share of `peak` multiply-adds per second that one layer's step reaches."""
    return multiply_adds(options) / (step.median * 1e-6) / peak


def step_claims(steps: Steps, options: Options, peak: float) -> Iterator[Claim]:
    """Goals of the decode step of one layer."""
    of, dtype = steps.timings, steps.dtype
    yield claim(
        "RotatingKVCache and SDPA / dense step",
        dtype,
        of["rotating"].over(of["dense"]),
        "at least",
        DENSE_OVER_ROTATING[dtype],
    )
    yield claim(
        "dense step's share of the core's multiply-adds, on one core",
        dtype,
        share_of_peak(steps.dense_on_one_core, options, peak),
        "at least",
        0.25,
    )
    yield claim(
        "dense step's share when its thread wakes on another core",
        dtype,
        share_of_peak(of["dense"], options, peak),
    )
    if dtype in LOW_PRECISION:
        yield claim("8-bit / dense step", dtype, of["8bit"].over(of["dense"]), "at most", 1.5)
        goal = 20.0 if dtype == "bfloat16" else None
        ratio = of["kv-8bit"].over(of["8bit"])
        yield claim("QuantizedKVCache / 8-bit step", dtype, ratio, "at least", goal)


def eviction_claims(eviction: Eviction) -> Iterator[Claim]:
    """Goals of a step that evicts."""
    evicting, plain = eviction.ours_evicting, eviction.ours_not_evicting
    yield claim(
        "dense step, evicting / not evicting",
        eviction.dtype,
        evicting.over(plain),
        "at most",
        1.05,
    )
    paper = eviction.paper_evicting.without(eviction.paper_not_evicting).median
    yield claim(
        "extra cost of evicting, H2O dense / the paper's way",
        eviction.dtype,
        evicting.without(plain).median / max(paper, 1e-3),
        "at most",
        1 / 3,
    )
    yield claim(
        "evicting step, the paper's way / dense",
        eviction.dtype,
        eviction.paper_evicting.median / evicting.median,
    )


def pipelining_claims(measured: Pipelining, options: Options, peak: float) -> Iterator[Claim]:
    """Goals of steps queued one ahead."""
    name, dtype = measured.name, measured.dtype
    yield claim(
        f"{name} step queued one ahead / alone",
        dtype,
        measured.queued.over(measured.alone),
        "at most",
        1.1,
    )
    if name == "dense":
        share = share_of_peak(measured.queued, options, peak)
        yield claim("dense step's share when queued one ahead", dtype, share)
    yield claim(
        f"{name}: memory allocated in {COUNTED_STEPS:,} steps / size of the cache",
        dtype,
        measured.allocated_bytes / measured.cache_bytes,
        "below",
        1.0,
    )


def upstream_claims(measured: UpstreamWrite) -> Iterator[Claim]:
    """Compare with mlx-lm's own cache where ours has a goal."""
    yield claim(
        f"KVCache's write at {ROWS:,} rows, queued one ahead / alone",
        measured.dtype,
        measured.queued.median / measured.alone.median,
    )


def scaling_claims(scaling: Scaling) -> Iterator[Claim]:
    """Goals of growth with rows and with tokens seen."""
    sizes = list(scaling.by_capacity)
    yield claim(
        f"change of the slope over C, {sizes[0]} to {sizes[-1]} rows",
        scaling.dtype,
        round(scaling.slope_deviation, 9),  # the last digits differ from machine to machine
        "at most",
        0.2,
    )
    times = list(scaling.by_tokens_seen)
    yield claim(
        f"step after {times[0]} to {times[-1]} x C tokens, slowest / fastest",
        scaling.dtype,
        scaling.tokens_seen_deviation,
        "at most",
        1.05,
    )


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
