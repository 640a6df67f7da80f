"""A report as tables of text, for whatever shows them."""

from __future__ import annotations

from h2o_pack.measure.bench.claims import Claim
from h2o_pack.measure.bench.pipelining import COUNTED_STEPS
from h2o_pack.measure.bench.report import Report
from h2o_pack.measure.bench.section import Section, figures, not_run
from h2o_pack.measure.bench.steps import Steps
from h2o_pack.measure.bench.upstream_write import ROWS


def sections(report: Report) -> tuple[Section, ...]:
    """Every table of a report."""
    return (
        _goals(report),
        *(_steps(report, each) for each in report.steps),
        _model(report),
        _evictions(report),
        _pipelining(report),
        _growth(report),
    )


def _goals(report: Report) -> Section:
    rows = tuple(
        (each.name, each.dtype, f"{each.value:.3g}", _goal(each), each.verdict)
        for each in report.claims
    )
    header = ("ratio", "dtype", "measured", "goal", "verdict")
    return Section("Goals, each a ratio of this run", header, rows)


def _goal(claim: Claim) -> str:
    return "-" if claim.goal is None else f"{claim.direction} {claim.goal:.3g}"


def _steps(report: Report, steps: Steps) -> Section:
    dense = steps.timings["dense"]
    rows = tuple(
        (report.contenders[name], *figures(timing), f"{timing.over(dense):.2f}")
        for name, timing in steps.timings.items()
    )
    o = report.options
    return Section(
        f"Decode step of one layer in {steps.dtype}: {o.heads} query heads, {o.kv_heads} KV "
        f"heads of {o.head_dim}, {o.capacity} rows",
        ("cache", "us a step", "quartiles", "x dense"),
        rows,
        f"{report.evaluation.median:,.1f} us of each step are what mx.eval takes for next to "
        "nothing, mostly to wake its thread",
    )


def _model(report: Report) -> Section:
    model = report.model
    rows = tuple(
        (
            report.contenders[name],
            f"{1e6 / timing.median:,.1f}",
            *figures(timing),
            f"{timing.over(model.timings['dense']):.2f}",
        )
        for name, timing in model.timings.items()
    )
    return Section(
        f"Generating {model.tokens} tokens with {model.name} ({model.layers} layers, "
        f"{model.dtype}) after a prompt of {model.prompt_tokens}, {model.capacity} rows",
        ("cache", "tokens/s", "us a token", "quartiles", "x dense"),
        rows,
        "KVCache and QuantizedKVCache keep every token here. " + not_run(model.not_run),
    )


def _evictions(report: Report) -> Section:
    rows = []
    for each in report.evictions:
        for title, evicting, plain in (
            ("H2O dense", each.ours_evicting, each.ours_not_evicting),
            ("H2O as the paper does it", each.paper_evicting, each.paper_not_evicting),
        ):
            extra = figures(evicting.without(plain))
            times = f"{evicting.median:,.1f}", f"{plain.median:,.1f}"
            rows.append((title, each.dtype, *times, *extra))
    return Section(
        f"Evicting: a step with {report.options.capacity} rows, us",
        ("cache", "dtype", "evicts one", "evicts none", "extra", "quartiles"),
        tuple(rows),
    )


def _pipelining(report: Report) -> Section:
    rows = [
        (
            report.contenders[each.name],
            each.dtype,
            f"{each.alone.median:,.1f}",
            *figures(each.queued),
            f"{each.allocated_bytes / 1e6:.2f} of {each.cache_bytes / 1e6:.2f}",
        )
        for each in report.pipelining
    ]
    write = report.upstream_write
    alone = f"{write.alone.median:,.1f}"
    title = f"mlx-lm KVCache, {ROWS:,} rows, write"
    rows.append((title, write.dtype, alone, *figures(write.queued), "-"))
    return Section(
        "Queued one ahead by mx.async_eval, us a step, and the most memory that "
        f"{COUNTED_STEPS:,} such steps take",
        ("cache", "dtype", "alone", "queued", "quartiles", "MB"),
        tuple(rows),
    )


def _growth(report: Report) -> Section:
    scaling = report.scaling
    line = scaling.line
    by_rows = [
        (f"C = {size:,}, full", *figures(timing), f"{line.start + line.slope * size:,.1f}")
        for size, timing in scaling.by_capacity.items()
    ]
    by_tokens = [
        (f"C = {report.options.capacity}, {times} x C tokens seen", *figures(timing), "-")
        for times, timing in scaling.by_tokens_seen.items()
    ]
    return Section(
        f"Growth of the dense step, {scaling.dtype}",
        ("cache", "us a step", "quartiles", "line"),
        (*by_rows, *by_tokens),
        f"line: {line.start:.1f} us + {line.slope:.4f} us a row; the smaller half alone "
        f"{scaling.lower_line.slope:.4f}, the larger half {scaling.upper_line.slope:.4f}",
    )
