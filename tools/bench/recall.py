"""What recall costs in one layer of a model: at prompts, and while tokens are generated."""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np

from h2o_pack.measure.bench import default_policy
from h2o_pack.measure.held import active_memory
from h2o_pack.measure.tables import Table
from h2o_pack.measure.timing import Burst, Timing, interleave
from h2o_py.config import H2ORecall
from h2o_py.errors import H2OConfigWarning
from h2o_py.models import STORAGES
from h2o_py.policy_fields import PACKED_TOKENS, SEGMENT_TOKENS
from tools.bench.caches import Layer, Options, RestOfLayer, group_size
from tools.bench.goals import Claim, Section

CHUNK = 64
ARCHIVED = (1024, 4096, 16384)
STEPS = PACKED_TOKENS
"""Steps of a burst: an archive packs as many tokens together, so each burst packs once."""
ASKING_STEPS = 4
_READ = 1024
_REPETITIONS = 3
_BURSTS = 16


CHUNK_GOALS = {4096: 1.1, 16384: 1.4}
STEP_GOAL = 1.02
WRITING_GOAL = 1.2
GROWTH_GOAL = 0.02
_COST_HEADER = (
    "what", "without", "with recall", "rest of layer", "whole layer", "rows that came",
)  # fmt: skip
_COST_NOTE = (
    "Write, attention and ledger without and with recall: an archive of 4 bits in memory, 32 "
    "tokens ask, a quarter of the rows may come back. Rest: the layer's projections and "
    "feed-forward, 4-bit weights and float32 activations, MLX's fastest on a CPU. Whole layer: "
    "with recall over without, the median of each repetition's ratio. A token's share of "
    "packing 64 tokens is part of its time."
)
_WRITING_HEADER = (
    "what", "steps", "others", "slow others", "writers", "slow writers", "CPU time",
    "whole layer", "growth, MB", "archive, MB",
)  # fmt: skip
_WRITING_NOTE = (
    "Writers: the steps at which 64 tokens are packed, and the step after each; medians of "
    "them and of the others. Slow: the 99th percentile, which other programs decide on a busy "
    "machine, as the other steps show; CPU time: the same of writers without these. Whole "
    "layer: slow writers over the others' median, the rest of the layer added to both. Growth: "
    "of MLX's memory, the archive aside."
)


def recall_sections(options: Options, dtype: str) -> list[Section]:
    """Measure one layer on the CPU, with recall and without."""
    costs, rest = recall_cost(options, dtype)
    return [costs, archive_writing(options, dtype, rest)]


def recall_cost(options: Options, dtype: str) -> tuple[Section, Timing]:
    """Measure chunks and tokens that ask, and tokens that do not; also the rest of a token."""
    rest = RestOfLayer(options)
    kind = getattr(mx, dtype)
    plain, recalling, asking = (
        new_layer(options, kind, recall) for recall in (None, H2ORecall(), H2ORecall(every=1))
    )
    token_rest = cpu_timed(lambda: rest.run(1))
    rows, claims, ask_rows, ask_claims = [], [], [], []
    for archived in ARCHIVED[:1] if options.quick else ARCHIVED:
        for layer in (plain, recalling, asking):
            read(layer, archived)
        bursts = {
            "without": chunk_burst(plain),
            "recalling": chunk_burst(recalling),
            "rest": cpu_timed(lambda: rest.run(CHUNK)),
        }
        of = interleave(bursts, 2 if options.quick else _REPETITIONS, steps=1)
        what = f"{CHUNK} tokens, {archived:,} archived"
        rows.append(cost_row(what, of, rows_that_come(recalling)))
        name = f"{CHUNK} tokens of one layer, {archived:,} archived, with recall / without"
        goal = CHUNK_GOALS.get(archived)
        claims.append(Claim(name, dtype, whole_layer(of), "at most", goal))
        before = asking.cache.recalled
        bursts = {
            "without": cpu_timed(plain.run),
            "recalling": cpu_timed(asking.run),
            "rest": token_rest,
        }
        of = interleave(bursts, _REPETITIONS, steps=ASKING_STEPS)
        came = (asking.cache.recalled - before) // (_REPETITIONS * ASKING_STEPS)
        ask_rows.append(cost_row(f"1 token that asks, {archived:,} archived", of, came))
        name = f"a layer's token that asks, {archived:,} archived, with / without"
        ask_claims.append(Claim(name, dtype, whole_layer(of)))
    bursts = {
        "without": cpu_timed(plain.run),
        "recalling": cpu_timed(recalling.run),
        "rest": lambda _steps: token_rest(1),
    }
    of = interleave(bursts, 2 if options.quick else _BURSTS, steps=STEPS)
    name = "a layer's token between recalls, with recall / without"
    step = Claim(name, dtype, whole_layer(of), "at most", STEP_GOAL)
    table = Table(
        f"Recall in one layer, {dtype}, milliseconds of CPU time",
        _COST_HEADER,
        (*rows, *ask_rows, cost_row("1 token between recalls", of)),
        _COST_NOTE,
    )
    return Section(table, (*claims, *ask_claims, step)), of["rest"]


def whole_layer(times: Mapping[str, Timing]) -> float:
    """Return the whole layer's time with recall over that without, a median of ratios."""
    triples = zip(*(times[n].values for n in ("recalling", "without", "rest")), strict=True)
    return float(np.median([(one + more) / (other + more) for one, other, more in triples]))


def cost_row(
    what: str, times: Mapping[str, Timing], came: int | None = None
) -> tuple[str, ...]:
    """Return a row of the table of costs; came: rows that recall brought back."""
    parts = (times[name].median for name in ("without", "recalling", "rest"))
    shown = "-" if came is None else f"{came:,}"
    return (what, *(f"{part / 1e3:,.3f}" for part in parts), f"{whole_layer(times):.3f}", shown)


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


def archive_writing(options: Options, dtype: str, rest: Timing) -> Section:
    """Measure the same layer with its archive in memory and in files.

    rest: of the layer, for one token.
    """
    rows, claims = [], []
    for store in ("memory", "files"):
        row, found = measure_writing(options, dtype, rest, store)
        rows.append(row)
        claims += found
    title = f"Steps one by one, {dtype}, microseconds by the clock"
    table = Table(title, _WRITING_HEADER, tuple(rows), _WRITING_NOTE)
    return Section(table, tuple(claims))


def measure_writing(
    options: Options, dtype: str, rest: Timing, store: str
) -> tuple[tuple[str, ...], list[Claim]]:
    """Time each of 20,032 steps, of which every 64th packs what the archive was given."""
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
    others, packed = float(np.median(spent[~packing])), float(np.median(spent[packing]))
    slow, slow_others = (float(np.percentile(spent[at], _SLOW)) for at in (packing, ~packing))
    slow_work = float(np.percentile(worked[packing], _SLOW))
    ratio = (slow + rest.median) / (others + rest.median)
    work_ratio = (slow_work + rest.median) / (float(np.median(worked[~packing])) + rest.median)
    growth = after - before
    times = (others, slow_others, packed, slow, slow_work)
    row = (
        f"archive in {store}",
        f"{steps:,}",
        *(f"{each:,.0f}" for each in times),
        f"{ratio:.3f}",
        f"{growth / 1e6:.2f}",
        f"{size / 1e6:.1f}",
    )
    slow_tokens = f"a layer's slow tokens that write a block in {store} / median of others"
    memory = f"memory that {steps:,} tokens add, archive in {store} / its bytes"
    return row, [
        Claim(slow_tokens, dtype, ratio, "at most", WRITING_GOAL),
        Claim("the same in CPU time", dtype, work_ratio),
        Claim(memory, dtype, growth / size, "below", GROWTH_GOAL),
    ]


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
