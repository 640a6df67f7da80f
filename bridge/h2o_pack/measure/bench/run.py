"""One run: every measurement in turn."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx

from h2o_pack.files.text import writing
from h2o_pack.measure import machine, models
from h2o_pack.measure.bench import page, peak, plot, whole_model
from h2o_pack.measure.bench.archive_writing import measure_all_writing
from h2o_pack.measure.bench.caches import CACHES
from h2o_pack.measure.bench.claims import LOW_PRECISION, all_claims
from h2o_pack.measure.bench.eviction import measure_eviction
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.pipelining import measure_pipelining, measure_upstream_write
from h2o_pack.measure.bench.recall import measure_recall
from h2o_pack.measure.bench.recall_claims import recall_claims
from h2o_pack.measure.bench.report import Report
from h2o_pack.measure.bench.scaling import measure_scaling
from h2o_pack.measure.bench.steps import measure_evaluation, measure_steps
from h2o_pack.measure.pictures import require_matplotlib
from h2o_pack.progress import ProgressReporter


def bench(
    options: Options, *, picture: Path | None, text: Path | None, say: ProgressReporter
) -> Report:
    """Measure, and write the files that are asked for.

    Args:
        options: what to measure.
        picture: PNG to draw the report in.
        text: Markdown page to write the report to.
        say: told what is being measured.

    Raises:
        UserError: the model cannot be loaded, a file cannot be written, or matplotlib is
            missing.

    """
    if picture is not None:
        require_matplotlib()
    report = run(options, say)
    if picture is not None:
        with writing(picture):
            picture.parent.mkdir(parents=True, exist_ok=True)
            plot.save(report, picture)
    if text is not None:
        with writing(text):
            page.write(report, text)
    return report


def run(options: Options, say: ProgressReporter) -> Report:
    """Measure everything; layers on the CPU, the model where mlx_lm runs it.

    Raises:
        UserError: the model cannot be loaded.

    """
    mx.random.seed(0)
    host = machine.describe_busy()
    say(f"loading {options.model}")
    model, tokenizer = models.load(options.model)
    one = options.dtypes[0]
    low = [dtype for dtype in options.dtypes if dtype in LOW_PRECISION] or [one]
    say("peak of one core")
    before = peak.multiply_adds_per_second(host.instruction_set)
    with mx.stream(mx.Device(mx.cpu)):
        evaluation = measure_evaluation(options)
        steps = []
        for dtype in options.dtypes:
            say(f"decode step of one layer, {dtype}")
            steps.append(measure_steps(CACHES, options, dtype))
        say("steps that evict")
        evictions = [measure_eviction(options, dtype) for dtype in low]
        say("steps queued one ahead")
        pipelining = [measure_pipelining(options, dtype, "dense") for dtype in low]
        pipelining.append(measure_pipelining(options, low[0], "8bit"))
        upstream = measure_upstream_write(options, low[0])
        say("growth with rows and with tokens seen")
        scaling = measure_scaling(options, one)
        say("recall")
        recall = measure_recall(options, one)
        written = measure_all_writing(options, recall)
    say(f"tokens per second of {options.model}")
    on_model = whole_model.measure_model(CACHES, options, model, tokenizer)
    best = max(before, peak.multiply_adds_per_second(host.instruction_set))
    return Report(
        machine=host,
        options=options,
        peak=best,
        contenders={each.name: each.title for each in CACHES},
        not_run={},
        evaluation=evaluation,
        steps=tuple(steps),
        evictions=tuple(evictions),
        pipelining=tuple(pipelining),
        upstream_write=upstream,
        scaling=scaling,
        recall=recall,
        archive_writing=written,
        model=on_model,
        claims=(
            *all_claims(options, best, steps, evictions, pipelining, upstream, scaling),
            *recall_claims(recall, written),
        ),
    )
