"""What recall costs in one layer of a model: at prompts, and while tokens are generated."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import mlx.core as mx
import numpy as np

from h2o_pack.measure.bench.caches import default
from h2o_pack.measure.bench.layer import Layer, group_size
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.rest_of_layer import RestOfLayer
from h2o_pack.measure.timing import Burst, Timing, interleave
from h2o_pack.results import doc
from h2o_py.errors import H2OConfigWarning
from h2o_py.models import STORAGES
from h2o_py.policy_fields import PACKED_TOKENS
from h2o_py.recall import H2ORecall

CHUNK = 64
ARCHIVED = (1024, 4096, 16384)
STEPS = PACKED_TOKENS
"""Steps of a burst: an archive packs as many tokens together, so each burst packs once."""
ASKING_STEPS = 4
_READ = 1024
_REPETITIONS = 3
_BURSTS = 16


@dataclass(frozen=True)
class Cost:
    """CPU microseconds of one layer with and without recall."""

    without: Annotated[Timing, doc("Write, attention and ledger without recall.")]
    recalling: Annotated[Timing, doc("The same with recall.")]
    rest: Annotated[Timing, doc("The layer's other matrix products.")]

    @property
    def ratio(self) -> float:
        """The whole layer's time with recall over that without, a median of ratios."""
        triples = zip(self.recalling.values, self.without.values, self.rest.values, strict=True)
        return float(np.median([(one + more) / (other + more) for one, other, more in triples]))


@dataclass(frozen=True)
class ArchivedCost(Cost):
    """Tokens that ask an archive: a chunk of 64, whose last 32 ask, or a single one."""

    archived: Annotated[int, doc("Tokens in the archive.")]
    came: Annotated[int, doc("Rows that the recall brought back, of all heads.")]


@dataclass(frozen=True)
class RecallCost:
    """One layer with and without recall; all defaults, an archive of 4 bits in memory."""

    dtype: str
    chunks: Annotated[tuple[ArchivedCost, ...], doc("A chunk, by the archive's length.")]
    asking: Annotated[
        tuple[ArchivedCost, ...], doc("A generated token that asks, by the archive's length.")
    ]
    step: Annotated[Cost, doc("A generated token between recalls, packing included.")]


def measure_recall(options: Options, dtype: str) -> RecallCost:
    """Measure one layer on the CPU."""
    rest = RestOfLayer(options)
    kind = getattr(mx, dtype)
    plain, recalling, asking = (
        new_layer(options, kind, recall) for recall in (None, H2ORecall(), H2ORecall(every=1))
    )
    chunks, steps = [], []
    for archived in ARCHIVED[:1] if options.quick else ARCHIVED:
        for layer in (plain, recalling, asking):
            read(layer, archived)
        bursts = {
            "without": chunk_burst(plain),
            "recalling": chunk_burst(recalling),
            "rest": cpu_timed(lambda: rest.run(CHUNK)),
        }
        of = interleave(bursts, 2 if options.quick else _REPETITIONS, steps=1)
        came = rows_that_come(recalling)
        chunks.append(ArchivedCost(**of, archived=archived, came=came))
        before = asking.cache.recalled
        bursts = {
            "without": cpu_timed(plain.run),
            "recalling": cpu_timed(asking.run),
            "rest": cpu_timed(lambda: rest.run(1)),
        }
        of = interleave(bursts, _REPETITIONS, steps=ASKING_STEPS)
        came = (asking.cache.recalled - before) // (_REPETITIONS * ASKING_STEPS)
        steps.append(ArchivedCost(**of, archived=archived, came=came))
    bursts = {
        "without": cpu_timed(plain.run),
        "recalling": cpu_timed(recalling.run),
        "rest": lambda _steps: cpu_timed(lambda: rest.run(1))(1),
    }
    of = interleave(bursts, 2 if options.quick else _BURSTS, steps=STEPS)
    return RecallCost(dtype, tuple(chunks), tuple(steps), Cost(**of))


def new_layer(options: Options, dtype: mx.Dtype, recall: H2ORecall | None) -> Layer:
    """Return a layer with an empty dense cache."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OConfigWarning)
        config = replace(default(options.capacity), recall=recall)
    return Layer(STORAGES["dense"](config, group_size(options)), options, dtype)


def read(layer: Layer, tokens: int) -> None:
    """Read random tokens with attention until so many were seen, in chunks."""
    while (left := tokens - layer.cache.offset) > 0:
        layer.attend(layer.chunk(min(left, _READ)))


def chunk_burst(layer: Layer) -> Burst:
    """Return bursts of a chunk, each in a copy of the cache as it is now."""
    chunk = layer.chunk(CHUNK)

    def burst(steps: int) -> float:
        spent = 0
        for _ in range(steps):
            cache = layer.cache.copy()
            mx.eval(cache.state)
            start = time.process_time_ns()
            layer.attend(chunk, cache)
            spent += time.process_time_ns() - start
        return spent / 1e3 / steps

    return burst


def rows_that_come(layer: Layer) -> int:
    """Return how many rows a chunk's recall brings back, of all heads."""
    cache = layer.cache.copy()
    before = cache.recalled
    layer.attend(layer.chunk(CHUNK), cache)
    return int(cache.recalled) - int(before)


def cpu_timed(step: Callable[[], None]) -> Burst:
    """Return bursts of `step` in microseconds of CPU time of all threads.

    Other programs take no part in it, as they do in time by the clock.
    """

    def burst(steps: int) -> float:
        start = time.process_time_ns()
        for _ in range(steps):
            step()
        return (time.process_time_ns() - start) / 1e3 / steps

    return burst
