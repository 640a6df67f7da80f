"""A report as tables of text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from h2o_pack.measure.bench.claims import Claim
from h2o_pack.measure.bench.pipelining import COUNTED_STEPS
from h2o_pack.measure.bench.recall_tables import recall_tables
from h2o_pack.measure.bench.report import Report
from h2o_pack.measure.bench.steps import Steps
from h2o_pack.measure.bench.upstream_write import ROWS
from h2o_pack.measure.tables import Table, print_table, timing_cells


def print_report(report: Report, console: Console) -> None:
    """Show every table at a terminal."""
    for table in sections(report):
        print_table(table, console)
    console.print(machine_line(report), markup=False)
    console.print(summary(report), markup=False)


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
        _model(report),
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
        (report.contenders[name], *timing_cells(timing), f"{timing.over(dense):.2f}")
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


def _model(report: Report) -> Table:
    model = report.model
    rows = tuple(
        (
            report.contenders[name],
            f"{timing.tokens_per_second:,.1f}",
            *timing_cells(timing),
            f"{timing.over(model.timings['dense']):.2f}",
        )
        for name, timing in model.timings.items()
    )
    return Table(
        f"Generating {model.tokens} tokens with {model.name} ({model.layers} layers, "
        f"{model.dtype}) after a prompt of {model.prompt_tokens}, {model.capacity} rows",
        ("cache", "tokens/s", "us per token", "quartiles", "x dense"),
        rows,
        "KVCache and QuantizedKVCache keep every token here. "
        + "; ".join(f"not run: {name} ({why})" for name, why in model.not_run.items()),
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
            report.contenders[each.name],
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
