"""The goals for speed, each beside what a run measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from h2o_pack.measure.bench.eviction import Eviction
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.pipelining import COUNTED_STEPS, Pipelining, UpstreamWrite
from h2o_pack.measure.bench.scaling import Scaling
from h2o_pack.measure.bench.steps import Steps
from h2o_pack.measure.bench.timing import Timing
from h2o_pack.measure.bench.upstream_write import ROWS

Direction = Literal["at least", "at most", "below"]

DENSE_OVER_ROTATING = {"float16": 10.0, "bfloat16": 8.0, "float32": 4.0}
LOW_PRECISION = ("float16", "bfloat16")


@dataclass(frozen=True)
class Claim:
    """A ratio of one run and its goal; without a goal it is there for comparison."""

    name: str
    dtype: str
    value: float
    direction: Direction | None = None
    goal: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the goal is met: "met", "not met", or "comparison" where there is none."""
        if self.goal is None:
            return "comparison"
        met = {
            "at least": self.value >= self.goal,
            "at most": self.value <= self.goal,
            "below": self.value < self.goal,
        }[self.direction or "at least"]
        return "met" if met else "not met"


def multiply_adds(options: Options) -> int:
    """Of one step: every query head's logits and output over C rows."""
    return options.heads * options.capacity * 2 * options.head_dim


def share_of_peak(step: Timing, options: Options, peak: float) -> float:
    """What share of `peak` multiply-adds a second one layer's step is."""
    return multiply_adds(options) / (step.median * 1e-6) / peak


def step_claims(steps: Steps, options: Options, peak: float) -> Iterator[Claim]:
    """What the decode step of one layer is held to; peak in multiply-adds a second."""
    of, dtype = steps.timings, steps.dtype
    yield Claim(
        "RotatingKVCache and SDPA / dense step",
        dtype,
        of["rotating"].over(of["dense"]),
        "at least",
        DENSE_OVER_ROTATING[dtype],
    )
    yield Claim(
        "dense step's share of the core's multiply-adds, on one core",
        dtype,
        share_of_peak(steps.dense_on_one_core, options, peak),
        "at least",
        0.25,
    )
    yield Claim(
        "dense step's share when its thread wakes on another core",
        dtype,
        share_of_peak(of["dense"], options, peak),
    )
    if dtype in LOW_PRECISION:
        yield Claim("8-bit / dense step", dtype, of["8bit"].over(of["dense"]), "at most", 1.5)
        goal = 20.0 if dtype == "bfloat16" else None
        ratio = of["kv-8bit"].over(of["8bit"])
        direction: Direction | None = "at least" if goal else None
        yield Claim("QuantizedKVCache / 8-bit step", dtype, ratio, direction, goal)


def eviction_claims(eviction: Eviction) -> Iterator[Claim]:
    """What a step that evicts is held to."""
    evicting, plain = eviction.ours_evicting, eviction.ours_not_evicting
    yield Claim(
        "dense step evicting / not", eviction.dtype, evicting.over(plain), "at most", 1.05
    )
    paper = eviction.paper_evicting.without(eviction.paper_not_evicting).median
    yield Claim(
        "extra cost of evicting, ours / the paper's way",
        eviction.dtype,
        evicting.without(plain).median / max(paper, 1e-3),
        "at most",
        1 / 3,
    )
    yield Claim(
        "evicting step, the paper's way / dense",
        eviction.dtype,
        eviction.paper_evicting.median / evicting.median,
    )


def pipelining_claims(measured: Pipelining, options: Options, peak: float) -> Iterator[Claim]:
    """What steps queued one ahead are held to."""
    name, dtype = measured.name, measured.dtype
    yield Claim(
        f"{name} step queued one ahead / alone",
        dtype,
        measured.queued.over(measured.alone),
        "at most",
        1.1,
    )
    if name == "dense":
        share = share_of_peak(measured.queued, options, peak)
        yield Claim("dense step's share when queued one ahead", dtype, share)
    yield Claim(
        f"{name}: memory taken in {COUNTED_STEPS:,} steps / the cache's size",
        dtype,
        measured.allocated_bytes / measured.cache_bytes,
        "below",
        1.0,
    )


def upstream_claims(measured: UpstreamWrite) -> Iterator[Claim]:
    """What mlx-lm's own cache does where ours is held to a goal."""
    yield Claim(
        f"KVCache's write at {ROWS:,} rows, queued one ahead / alone",
        measured.dtype,
        measured.queued.median / measured.alone.median,
    )


def scaling_claims(scaling: Scaling) -> Iterator[Claim]:
    """What growth is held to."""
    sizes = list(scaling.by_capacity)
    yield Claim(
        f"change of the slope in C, {sizes[0]} to {sizes[-1]} rows",
        scaling.dtype,
        scaling.slope_deviation,
        "at most",
        0.2,
    )
    times = list(scaling.by_tokens_seen)
    yield Claim(
        f"step after {times[0]} to {times[-1]} x C tokens, slowest / fastest",
        scaling.dtype,
        scaling.tokens_seen_deviation,
        "at most",
        1.05,
    )
