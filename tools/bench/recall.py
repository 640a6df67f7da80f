"""What recall costs in one layer of a model: at prompts, and while tokens are generated."""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import mlx.core as mx
import numpy as np

from h2o_pack.measure.allocated import active_memory
from h2o_pack.measure.bench import default_policy
from h2o_pack.measure.timing import Burst, Timing, interleave
from h2o_py.errors import H2OConfigWarning
from h2o_py.models import STORAGES
from h2o_py.policy_fields import PACKED_TOKENS, SEGMENT_TOKENS
from h2o_py.recall import H2ORecall
from tools.bench.caches import Layer, Options, RestOfLayer, group_size

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

    without: Timing
    recalling: Timing
    rest: Timing

    @property
    def ratio(self) -> float:
        """The whole layer's time with recall over that without, a median of ratios."""
        triples = zip(self.recalling.values, self.without.values, self.rest.values, strict=True)
        return float(np.median([(one + more) / (other + more) for one, other, more in triples]))


@dataclass(frozen=True)
class ArchivedCost(Cost):
    """Tokens that ask an archive: a chunk of 64, whose last 32 ask, or a single one."""

    archived: int
    came: int


@dataclass(frozen=True)
class RecallCost:
    """One layer with and without recall; all defaults, an archive of 4 bits in memory."""

    dtype: str
    chunks: tuple[ArchivedCost, ...]
    asking: tuple[ArchivedCost, ...]
    step: Cost


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
        config = replace(default_policy(options.capacity), recall=recall)
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


GENERATED, QUICK = 20_032, 1024
_SLOW = 99
_WAIT, _MOST_WAITS = 0.25, 80
_SETTLED = 4 * STEPS
"""Steps before memory is looked at."""


@dataclass(frozen=True)
class Writing:
    """Write, attention and ledger of single tokens, in microseconds by the clock."""

    store: str
    steps: int
    usual_packing: float
    packing: float
    others: float
    slow_others: float
    cpu_packing: float
    cpu_others: float
    rest: float
    archive: int
    growth: int

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
