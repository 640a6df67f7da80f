"""Measures the cost of recall in one layer: at prompts, and while tokens are generated."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from h2o_pack.measure.bench import GROUP_SIZE, every_token, h2o_cache
from h2o_pack.measure.held import active_memory
from h2o_pack.measure.tables import Table
from h2o_pack.measure.timing import Burst, Timing, interleave
from h2o_py.config import H2ORecall
from h2o_py.policy_fields import ARCHIVE_GROUP, SEGMENT_TOKENS
from tools.bench.caches import Chunk, Layer, Options, RestOfLayer
from tools.bench.goals import Claim, Section

DTYPE = "float32"
CHUNKS = (64, 512)
ARCHIVED = (4096, 16384)
STEPS = SEGMENT_TOKENS
"""Tokens that an archive packs at once."""
READING_STEPS = 8
"""Steps of a burst."""
_READ = 1024
_REPETITIONS = 3
_BURSTS = 16


CHUNK_GOAL = 1.1
STEP_GOALS = {4096: 1.5, 16384: 2.0}
FULL_GOAL = 1.0
WRITING_GOAL = 1.2
GROWTH_GOAL = 0.02
_CHUNK_HEADER = (
    "tokens", "archived", "full cache", "dequantized", "with recall", "ratio"
)  # fmt: skip
_CHUNK_NOTE = (
    "Full cache: MLX's attention of these tokens to all tokens before them. Dequantized: "
    "dequantizing the archive's keys and values once. With recall: write, attention, ledger "
    "and archive of the chunk, whose tokens attend to all positions; the archive is in "
    f"memory, in {H2ORecall().archive_bits} bits. Ratio: with recall, divided by the sum of "
    "the two columns before."
)
_STEP_HEADER = (
    "archived", "archive in", "without recall", "with recall", "full cache in 4 bits",
    "with / without", "with / full cache",
)  # fmt: skip
_STEP_NOTE = "Write, attention and ledger of one token, which reads 64 archived tokens."
_WRITING_HEADER = (
    "what", "steps", "others", "slow others", "writers", "slow writers", "CPU time",
    "whole layer", "growth, MB", "archive, MB",
)  # fmt: skip
_WRITING_NOTE = (
    "Writers: the steps that pack 256 tokens, and the step after each; writers and others are "
    "medians. Slow: the 99th percentile, which other programs lengthen on a busy machine; "
    "the column of slow others shows by how much. CPU time: of slow writers; other programs do "
    "not affect it. Whole layer: slow writers divided by the median of the others, with the "
    "rest of the layer added to both. Growth: of MLX's memory, without archive and sketch."
)


def recall_sections(options: Options) -> list[Section]:
    """Measure one layer on the CPU, with recall and without."""
    rest = cpu_timed(partial(RestOfLayer(options).run, 1))
    tokens, token_rest = token_costs(options, rest)
    return [chunk_costs(options), tokens, archive_writing(options, token_rest)]


def chunk_costs(options: Options) -> Section:
    """Measure chunks whose tokens attend to all positions, and a full cache."""
    rows, claims = [], []
    for archived in ARCHIVED:
        layer = new_layer(options, H2ORecall())
        read(layer, archived)
        for tokens in CHUNKS:
            chunk = layer.chunk(tokens)
            bursts = {
                "full": full_attention(options, chunk, archived),
                "dequantized": dequantizing(options, archived),
                "recall": chunk_burst(layer, chunk),
            }
            of = interleave(bursts, _REPETITIONS, steps=1)
            full, dequantized, recall = times = [of[name].median for name in bursts]
            ratio = recall / (full + dequantized)
            cells = (f"{time / 1e3:,.2f}" for time in times)
            rows.append((f"{tokens}", f"{archived:,}", *cells, f"{ratio:.3f}"))
            what = f"{tokens} tokens of one layer, {archived:,} archived"
            claim = f"{what}, with recall / full cache and dequantization"
            claims.append(Claim(claim, DTYPE, ratio, "at most", CHUNK_GOAL))
    title = f"Chunks in one layer, {DTYPE}, milliseconds of CPU time"
    return Section(Table(title, _CHUNK_HEADER, tuple(rows), _CHUNK_NOTE), tuple(claims))


def token_costs(options: Options, rest: Burst) -> tuple[Section, Timing]:
    """Measure generated tokens with and without recall, and those of a full cache in 4 bits.

    Also return the time of the rest of the layer for one token.
    """
    rows, claims = [], []
    of: dict[str, Timing] = {}
    for archived in ARCHIVED:
        for store in ("memory", "files"):
            with tempfile.TemporaryDirectory() as folder:
                path = str(Path(folder) / "layer") if store == "files" else None
                cache = every_token("4")(options.capacity, GROUP_SIZE)
                full = Layer(cache, options)
                layers = {
                    "without": new_layer(options, None),
                    "with": new_layer(options, H2ORecall(store=path)),
                    "full": full,
                }
                for layer in layers.values():
                    read(layer, archived)
                bursts = {name: cpu_timed(layer.run) for name, layer in layers.items()}
                of = interleave({**bursts, "rest": rest}, _BURSTS, steps=READING_STEPS)
            without, reading, kept = (of[name].median for name in layers)
            ratios = {"the same rows without": (reading / without, STEP_GOALS[archived])}
            ratios["a full cache in 4 bits"] = (reading / kept, FULL_GOAL)
            rows.append((
                f"{archived:,}", store,
                *(f"{time / 1e3:,.3f}" for time in (without, reading, kept)),
                *(f"{ratio:.3f}" for ratio, _ in ratios.values()),
            ))  # fmt: skip
            for other, (ratio, goal) in ratios.items():
                what = f"a generated token, {archived:,} archived in {store}"
                claim = f"{what}, with recall / {other}"
                claims.append(Claim(claim, DTYPE, ratio, "at most", goal))
    title = f"Tokens in one layer, {DTYPE}, milliseconds of CPU time"
    section = Section(Table(title, _STEP_HEADER, tuple(rows), _STEP_NOTE), tuple(claims))
    return section, of["rest"]


def new_layer(options: Options, recall: H2ORecall | None) -> Layer:
    """Return a layer with an empty cache of rows in 16 bits."""
    return Layer(h2o_cache("16", recall)(options.capacity, GROUP_SIZE), options)


def read(layer: Layer, tokens: int) -> None:
    """Read random tokens with attention, in chunks, until the layer has seen `tokens`."""
    while (rest := tokens - layer.cache.offset) > 0:
        layer.attend(layer.chunk(min(rest, _READ)))


def full_attention(options: Options, chunk: Chunk, tokens: int) -> Burst:
    """Return bursts of a chunk's attention to itself and to `tokens` tokens before it."""
    queries, keys, values = chunk
    older = mx.random.normal((2, 1, options.kv_heads, tokens, options.head_dim))
    keys, values = (
        mx.concatenate([a, b], 2) for a, b in zip(older, (keys, values), strict=True)
    )
    mx.eval(keys, values)
    scale = options.head_dim**-0.5

    def attend() -> None:
        out = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=scale, mask="causal"
        )
        mx.eval(out)

    return cpu_timed(attend)


def dequantizing(options: Options, tokens: int) -> Burst:
    """Return bursts that dequantize the keys and values of `tokens` tokens."""
    shape = (options.kv_heads, tokens, 2 * options.head_dim)
    packed = mx.quantize(mx.random.normal(shape), ARCHIVE_GROUP, 4)
    mx.eval(packed)
    return cpu_timed(lambda: mx.eval(mx.dequantize(*packed, ARCHIVE_GROUP, 4)))


def chunk_burst(layer: Layer, chunk: Chunk) -> Burst:
    """Return bursts that read a chunk in microseconds of CPU time, each with a new copy."""

    def burst(steps: int) -> float:
        spent = 0
        for _ in range(steps):
            copy = layer.copied()
            mx.eval(copy.cache.state)
            start = time.process_time_ns()
            copy.attend(chunk)
            spent += time.process_time_ns() - start
        return spent / 1e3 / steps

    return burst


def cpu_timed(step: Callable[[], None]) -> Burst:
    """Return bursts of `step` in microseconds of CPU time of all threads.

    Other programs do not affect CPU time, unlike time by the clock.
    """

    def burst(steps: int) -> float:
        start = time.process_time_ns()
        for _ in range(steps):
            step()
        return (time.process_time_ns() - start) / 1e3 / steps

    return burst


GENERATED = 20_224
_SLOW = 99
_WAIT, _MOST_WAITS = 0.25, 80
_SETTLED = 4 * STEPS
"""Number of steps before memory is measured."""


def archive_writing(options: Options, rest: Timing) -> Section:
    """Measure the same layer with its archive in memory and in files.

    rest: the time of the rest of the layer (`RestOfLayer`) for one token.
    """
    rows, claims = [], []
    for store in ("memory", "files"):
        row, row_claims = measure_writing(options, rest, store)
        rows.append(row)
        claims += row_claims
    title = f"Steps one by one, {DTYPE}, microseconds by the clock"
    table = Table(title, _WRITING_HEADER, tuple(rows), _WRITING_NOTE)
    return Section(table, tuple(claims))


def measure_writing(
    options: Options, rest: Timing, store: str
) -> tuple[tuple[str, ...], list[Claim]]:
    """Time each step; every 256th packs 256 archived tokens."""
    with tempfile.TemporaryDirectory() as folder:
        archive_folder = str(Path(folder) / "layer") if store == "files" else None
        layer = new_layer(options, H2ORecall(store=archive_folder))
        read(layer, 2 * options.capacity)
        archive = layer.cache.archive
        spent, worked = np.zeros(GENERATED), np.zeros(GENERATED)
        bytes_by_step: dict[int, int] = {}
        for step in range(GENERATED):
            begun, start = time.process_time_ns(), time.perf_counter_ns()
            layer.run()
            spent[step] = (time.perf_counter_ns() - start) / 1e3
            worked[step] = (time.process_time_ns() - begun) / 1e3
            if step in (_SETTLED - 1, GENERATED - 1):
                bytes_by_step[step] = settled_memory(layer, store)
        size = int(archive.nbytes)
        del layer, archive
    before, after = bytes_by_step.values()
    step_of_block = (np.arange(GENERATED) + 1) % STEPS
    packing = (step_of_block == 0) | (step_of_block == 1)
    others, packed = float(np.median(spent[~packing])), float(np.median(spent[packing]))
    slow, slow_others = (
        float(np.percentile(spent[steps], _SLOW)) for steps in (packing, ~packing)
    )
    slow_work = float(np.percentile(worked[packing], _SLOW))
    ratio = (slow + rest.median) / (others + rest.median)
    growth = after - before
    times = (others, slow_others, packed, slow, slow_work)
    row = (
        f"archive in {store}",
        f"{GENERATED:,}",
        *(f"{time:,.0f}" for time in times),
        f"{ratio:.3f}",
        f"{growth / 1e6:.2f}",
        f"{size / 1e6:.1f}",
    )
    slow_tokens = f"a layer's slow tokens that write a block in {store} / median of others"
    memory = f"memory that {GENERATED:,} tokens add, archive in {store} / its bytes"
    return row, [
        Claim(slow_tokens, DTYPE, ratio, "at most", WRITING_GOAL),
        Claim(memory, DTYPE, growth / size, "below", GROWTH_GOAL),
    ]


def settled_memory(layer: Layer, store: str) -> int:
    """Run steps until nothing waits for the disk; returns MLX's bytes.

    Those of archive and sketch are left out. Written tokens are freed at a later step. This
    runs whole blocks of STEPS steps, so that the timed steps pack at the same places as before.
    """
    archive = layer.cache.archive
    least = sys.maxsize
    for _ in range(_MOST_WAITS):
        time.sleep(_WAIT)
        for _ in range(STEPS):
            layer.run()
        active = active_memory()
        waiting = int(archive.nbytes)
        if store == "files":
            waiting = waiting * (archive.length % SEGMENT_TOKENS) // archive.length
        size = active - waiting - int(archive.sketch_bytes)
        if size >= least:
            break
        least = size
    return least
