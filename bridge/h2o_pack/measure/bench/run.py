"""One run: every measurement in turn."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from h2o_pack.measure.bench import contenders, machine, peak, whole_model
from h2o_pack.measure.bench.claims import LOW_PRECISION
from h2o_pack.measure.bench.eviction import measure_eviction
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.pipelining import measure_pipelining, measure_upstream_write
from h2o_pack.measure.bench.report import Report
from h2o_pack.measure.bench.scaling import measure_scaling
from h2o_pack.measure.bench.steps import measure_evaluation, measure_steps

Progress = Callable[[str], None]


def run(options: Options, progress: Progress = lambda _text: None) -> Report:
    """Measure everything; layers on the CPU, the model where mlx_lm runs it.

    Args:
        options: what to measure.
        progress: told what is being measured.

    Raises:
        ValueError: the model cannot be loaded.

    """
    mx.random.seed(0)
    host = machine.describe()
    progress(f"loading {options.model}")
    model, tokenizer = whole_model.load(options.model)
    found, missing = contenders.available()
    one = options.dtypes[0]
    low = [dtype for dtype in options.dtypes if dtype in LOW_PRECISION] or [one]
    progress("what one core can do at most")
    before = peak.multiply_adds_per_second(host.instruction_set)
    with mx.stream(mx.Device(mx.cpu)):
        evaluation = measure_evaluation(options)
        steps = []
        for dtype in options.dtypes:
            progress(f"decode step of one layer, {dtype}")
            steps.append(measure_steps(found, options, dtype))
        progress("steps that evict")
        evictions = [measure_eviction(options, dtype) for dtype in low]
        progress("steps queued one ahead")
        pipelining = [measure_pipelining(options, dtype, "dense") for dtype in low]
        pipelining.append(measure_pipelining(options, low[0], "8bit"))
        upstream = measure_upstream_write(options, low[0])
        progress("growth with rows and with tokens seen")
        scaling = measure_scaling(options, one)
    progress(f"tokens a second of {options.model}")
    on_model = whole_model.measure_model(found, options, model, tokenizer)
    after = peak.multiply_adds_per_second(host.instruction_set)
    return Report(
        machine=host,
        options=options,
        peak=max(before, after),
        contenders={contender.name: contender.title for contender in found},
        not_run=missing,
        evaluation=evaluation,
        steps=tuple(steps),
        evictions=tuple(evictions),
        pipelining=tuple(pipelining),
        upstream_write=upstream,
        scaling=scaling,
        model=on_model,
    )
