"""What a run measured, as the tables of docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from h2o_pack.measure.bench import BenchResult, speed_table
from h2o_pack.measure.machine import BusyMachine
from h2o_pack.measure.tables import Table, timing_cells
from h2o_pack.measure.timing import Timing
from tools.bench.caches import CACHES, Options
from tools.bench.goals import Claim
from tools.bench.recall import CHUNK, Cost, RecallCost, Writing
from tools.bench.steps import (
    COUNTED_STEPS,
    ROWS,
    Eviction,
    Pipelining,
    Scaling,
    Steps,
    UpstreamWrite,
)

TITLES = {cache.name: cache.title for cache in CACHES}


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that a run measured.

    peak: float32 multiply-adds per second of one core. evaluation: mx.eval of one addition
    after a pause, which is part of every step evaluated alone.
    """

    machine: BusyMachine
    options: Options
    peak: float
    evaluation: Timing
    steps: tuple[Steps, ...]
    evictions: tuple[Eviction, ...]
    pipelining: tuple[Pipelining, ...]
    upstream_write: UpstreamWrite
    scaling: Scaling
    recall: RecallCost
    archive_writing: tuple[Writing, ...]
    model: BenchResult
    claims: tuple[Claim, ...]


def machine_line(report: Report) -> str:
    """Say in one sentence on which machine the run was."""
    does = f"{report.peak / 1e9:.0f}e9 multiply-adds per second"
    return f"{report.machine}; one core does {does}"


def summary(report: Report) -> str:
    """Say how many goals are met."""
    goals = [each for each in report.claims if each.goal is not None]
    met = sum(each.verdict == "met" for each in goals)
    return f"{met} of {len(goals)} goals are met"


def sections(report: Report) -> tuple[Table, ...]:
    """Return every table of a report."""
    return (
        goals(report.claims),
        *(_steps(report, each) for each in report.steps),
        speed_table(report.model),
        _evictions(report),
        _pipelining(report),
        _growth(report),
        *recall_tables(report.recall, report.archive_writing),
    )


def goals(claims: Iterable[Claim]) -> Table:
    """Return the table of goals."""
    rows = tuple(
        (each.name, each.dtype, f"{each.value:.3g}", _goal(each), each.verdict)
        for each in claims
    )
    header = ("ratio", "dtype", "measured", "goal", "verdict")
    return Table("Goals, each a ratio of this run", header, rows)


def _goal(claim: Claim) -> str:
    return "-" if claim.goal is None else f"{claim.direction} {claim.goal:.3g}"


def _steps(report: Report, steps: Steps) -> Table:
    dense = steps.timings["dense"]
    rows = tuple(
        (TITLES[name], *timing_cells(timing), f"{timing.over(dense):.2f}")
        for name, timing in steps.timings.items()
    )
    o = report.options
    return Table(
        f"Decode step of one layer in {steps.dtype}: {o.heads} query heads, {o.kv_heads} KV "
        f"heads of {o.head_dim}, {o.capacity} rows",
        ("cache", "us per step", "quartiles", "x dense"),
        rows,
        f"{report.evaluation.median:,.1f} us of each step are the fixed cost of mx.eval, "
        "mostly of waking its thread",
    )


def _evictions(report: Report) -> Table:
    rows = []
    for each in report.evictions:
        for title, evicting, plain in (
            ("H2O dense", each.ours_evicting, each.ours_not_evicting),
            ("H2O as the paper does it", each.paper_evicting, each.paper_not_evicting),
        ):
            extra = timing_cells(evicting.without(plain))
            times = f"{evicting.median:,.1f}", f"{plain.median:,.1f}"
            rows.append((title, each.dtype, *times, *extra))
    return Table(
        f"A step with {report.options.capacity} rows that evicts one and one that evicts none, "
        "us",
        ("cache", "dtype", "evicts one", "evicts none", "extra", "quartiles"),
        tuple(rows),
    )


def _pipelining(report: Report) -> Table:
    rows = [
        (
            TITLES[each.name],
            each.dtype,
            f"{each.alone.median:,.1f}",
            *timing_cells(each.queued),
            f"{each.allocated_bytes / 1e6:.2f} of {each.cache_bytes / 1e6:.2f}",
        )
        for each in report.pipelining
    ]
    write = report.upstream_write
    alone = f"{write.alone.median:,.1f}"
    title = f"mlx-lm KVCache, {ROWS:,} rows, write"
    rows.append((title, write.dtype, alone, *timing_cells(write.queued), "-"))
    return Table(
        "Steps queued one ahead by mx.async_eval, us per step, and the most memory of "
        f"{COUNTED_STEPS:,} such steps",
        ("cache", "dtype", "alone", "queued", "quartiles", "MB"),
        tuple(rows),
    )


def _growth(report: Report) -> Table:
    scaling = report.scaling
    by_rows = [
        (
            f"C = {size:,}, full",
            *timing_cells(timing),
            f"{scaling.start + scaling.slope * size:,.1f}",
        )
        for size, timing in scaling.by_capacity.items()
    ]
    by_tokens = [
        (f"C = {report.options.capacity}, {times} x C tokens seen", *timing_cells(timing), "-")
        for times, timing in scaling.by_tokens_seen.items()
    ]
    return Table(
        f"Growth of the dense step, {scaling.dtype}",
        ("cache", "us per step", "quartiles", "line"),
        (*by_rows, *by_tokens),
        f"line: {scaling.start:.1f} us + {scaling.slope:.4f} us per row; the smaller half "
        f"alone {scaling.lower_line.slope:.4f}, the larger half {scaling.upper_line.slope:.4f}",
    )


def recall_tables(recall: RecallCost, writing: tuple[Writing, ...]) -> tuple[Table, ...]:
    """Return a table of chunks and steps, and one of steps that write a block."""
    return _costs(recall), _writing(recall, writing)


def _costs(recall: RecallCost) -> Table:
    rows = [
        (f"{CHUNK} tokens, {each.archived:,} archived", *_cells(each), f"{each.came:,}")
        for each in recall.chunks
    ]
    rows += [
        (f"1 token that asks, {each.archived:,} archived", *_cells(each), f"{each.came:,}")
        for each in recall.asking
    ]
    rows.append(("1 token between recalls", *_cells(recall.step), "-"))
    header = (
        "what",
        "without",
        "with recall",
        "rest of layer",
        "whole layer",
        "rows that came",
    )
    return Table(
        f"Recall in one layer, {recall.dtype}, milliseconds of CPU time",
        header,
        tuple(rows),
        "Write, attention and ledger without and with recall: an archive of 4 bits in memory, "
        "32 tokens ask, a quarter of the rows may come back. Rest: the layer's projections and "
        "feed-forward, 4-bit weights and float32 activations, MLX's fastest on a CPU. "
        "Whole layer: with recall over without, the median of each repetition's ratio. A "
        "token's share of packing 64 tokens is part of its time.",
    )


def _cells(cost: Cost) -> tuple[str, ...]:
    times: tuple[Timing, ...] = (cost.without, cost.recalling, cost.rest)
    return (*(f"{each.median / 1e3:,.3f}" for each in times), f"{cost.ratio:.3f}")


def _writing(recall: RecallCost, writing: tuple[Writing, ...]) -> Table:
    rows = tuple(
        (
            f"archive in {each.store}",
            f"{each.steps:,}",
            f"{each.others:,.0f}",
            f"{each.slow_others:,.0f}",
            f"{each.usual_packing:,.0f}",
            f"{each.packing:,.0f}",
            f"{each.cpu_packing:,.0f}",
            f"{each.ratio:.3f}",
            f"{each.growth / 1e6:.2f}",
            f"{each.archive / 1e6:.1f}",
        )
        for each in writing
    )
    header = (
        "what", "steps", "others", "slow others", "writers", "slow writers", "CPU time",
        "whole layer", "growth, MB", "archive, MB",
    )  # fmt: skip
    return Table(
        f"Steps one by one, {recall.dtype}, microseconds by the clock",
        header,
        rows,
        "Writers: the steps at which 64 tokens are packed, and the step after each; medians of "
        "them and of the others. Slow: the 99th percentile, which other programs decide on a "
        "busy machine, as the other steps show; CPU time: the same of writers without these. "
        "Whole layer: slow writers over the others' median, the rest of the layer added to "
        "both. Growth: of MLX's memory, the archive aside.",
    )
