"""Steps of generation one by one: whether the archive's blocks make any of them wait."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import mlx.core as mx
import numpy as np

from h2o_pack.measure.allocated import active_memory
from h2o_pack.measure.bench.layer import Layer
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.recall import STEPS, RecallCost, new_layer, read
from h2o_pack.measure.timing import Timing
from h2o_pack.results import doc
from h2o_py.policy_fields import SEGMENT_TOKENS
from h2o_py.recall import H2ORecall

GENERATED, QUICK = 20_032, 1024
_SLOW = 99
_WAIT, _MOST_WAITS = 0.25, 80
_SETTLED = 4 * STEPS
"""Steps before memory is looked at."""


@dataclass(frozen=True)
class Writing:
    """Write, attention and ledger of single tokens, in microseconds by the clock."""

    store: Annotated[str, doc("Where the archive is: memory or files.")]
    steps: Annotated[int, doc("That were timed.")]
    usual_packing: Annotated[
        float, doc("Median of the steps at which a block is written, and of those after.")
    ]
    packing: Annotated[float, doc("Their 99th percentile.")]
    others: Annotated[float, doc("Median of the other steps.")]
    slow_others: Annotated[float, doc("99th percentile of the other steps.")]
    cpu_packing: Annotated[float, doc("99th percentile of writing steps in CPU time.")]
    cpu_others: Annotated[float, doc("Median of the other steps in CPU time.")]
    rest: Annotated[float, doc("Of the layer's other matrix products, CPU microseconds.")]
    archive: Annotated[int, doc("Bytes of the archive at the end.")]
    growth: Annotated[
        int, doc("Bytes by which memory grew while steps ran, what is archived there aside.")
    ]

    @property
    def cpu_ratio(self) -> float:
        """The same in CPU time, in which other programs take no part."""
        return (self.cpu_packing + self.rest) / (self.cpu_others + self.rest)

    @property
    def ratio(self) -> float:
        """The slow writing steps over the others' median, of a whole layer."""
        return (self.packing + self.rest) / (self.others + self.rest)


def measure_writing(options: Options, dtype: str, rest: Timing, store: str) -> Writing:
    """Time each of 20,032 steps, of which every 64th packs what the archive was given.

    rest: of the layer, for one token.
    """
    steps = QUICK if options.quick else GENERATED
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "layer") if store == "files" else None
        layer = new_layer(options, getattr(mx, dtype), H2ORecall(store=place))
        read(layer, 2 * options.capacity)
        archive = layer.cache.archive
        spent, worked = np.zeros(steps), np.zeros(steps)
        held: dict[int, int] = {}
        for step in range(steps):
            begun, start = time.process_time_ns(), time.perf_counter_ns()
            layer.run()
            spent[step] = (time.perf_counter_ns() - start) / 1e3
            worked[step] = (time.process_time_ns() - begun) / 1e3
            if step in (_SETTLED - 1, steps - 1):
                held[step] = settled_memory(layer, store)
        size = int(archive.nbytes)
        del layer, archive
    before, after = held.values()
    at = (np.arange(steps) + 1) % STEPS
    packing = (at == 0) | (at == 1)
    return Writing(
        store=store,
        steps=steps,
        usual_packing=float(np.median(spent[packing])),
        packing=float(np.percentile(spent[packing], _SLOW)),
        others=float(np.median(spent[~packing])),
        slow_others=float(np.percentile(spent[~packing], _SLOW)),
        cpu_packing=float(np.percentile(worked[packing], _SLOW)),
        cpu_others=float(np.median(worked[~packing])),
        rest=rest.median,
        archive=size,
        growth=after - before,
    )


def settled_memory(layer: Layer, store: str) -> int:
    """Run steps until nothing waits for the disk; returns MLX's bytes, the archive aside.

    What was written is let go at a later step. Whole blocks of steps, so that the timed ones
    pack where they did.
    """
    archive = layer.cache.archive
    least = sys.maxsize
    for _ in range(_MOST_WAITS):
        time.sleep(_WAIT)
        for _ in range(STEPS):
            layer.run()
        active = active_memory()
        kept = int(archive.nbytes)
        if store == "files":
            kept = kept * (archive.length % SEGMENT_TOKENS) // archive.length
        held = active - kept
        if held >= least:
            break
        least = held
    return least


def measure_all_writing(options: Options, recall: RecallCost) -> tuple[Writing, ...]:
    """Measure the same layer with its archive in memory and in files."""
    return tuple(
        measure_writing(options, recall.dtype, recall.step.rest, store)
        for store in ("memory", "files")
    )
