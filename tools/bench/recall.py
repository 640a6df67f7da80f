"""Measures the cost of recall in one layer: at prompts, and while tokens are generated."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from h2o_pack.measure.bench import GROUP_SIZE, h2o_cache
from h2o_pack.measure.held import active_memory
from h2o_pack.measure.tables import Table
from h2o_pack.measure.timing import Burst, Timing, interleave
from h2o_py.cache import join
from h2o_py.config import H2ORecall
from h2o_py.policy_fields import ARCHIVE_GROUP, PACKED_TOKENS, SEGMENT_TOKENS
from tools.bench.caches import Chunk, Layer, Options, RestOfLayer
from tools.bench.goals import Claim, Section

DTYPE = "float32"
CHUNKS = (64, 512)
ARCHIVED = (4096, 16384)
STEPS = PACKED_TOKENS
"""Steps per burst: as many as the tokens that an archive packs at once, so a burst packs
once."""
ASKING_STEPS = 4
_READ = 1024
_REPETITIONS = 3
_BURSTS = 16


CHUNK_GOAL = 1.1
CHOICE_GOAL = 0.01
ASKING_GOAL = 1.2
STEP_GOAL = 1.02
WRITING_GOAL = 1.2
GROWTH_GOAL = 0.02
_CHUNK_HEADER = (
    "tokens", "archived", "full cache", "dequantized", "with recall", "ratio", "the choice",
    "rest of layer", "choice of layer",
)  # fmt: skip
_CHUNK_NOTE = (
    "Full cache: MLX's attention of these tokens to all tokens before them. Dequantized: "
    "dequantizing the archive's keys and values once. With recall: write, attention, ledger "
    "and archive of the chunk, whose last 32 tokens attend to all positions; the archive is in "
    "memory, in 4 bits. Ratio: with recall, divided by the sum of the two columns before. The "
    "choice: the additional time of the next token, which brings the chosen rows back. Rest: "
    "the layer's projections and feed-forward, with 4-bit weights and float32 activations. "
    "Choice of layer: the choice, divided by the time of the whole layer with recall."
)
_STEP_HEADER = ("what", "other", "with recall", "ratio", "rest of layer")
_STEP_NOTE = (
    "Write, attention and ledger of one token. For a token between recalls, the ratio is of "
    "whole layers: the rest is added to both times."
)
_WRITING_HEADER = (
    "what", "steps", "others", "slow others", "writers", "slow writers", "CPU time",
    "whole layer", "growth, MB", "archive, MB",
)  # fmt: skip
_WRITING_NOTE = (
    "Writers: the steps that pack 64 tokens, and the step after each; writers and others are "
    "medians. Slow: the 99th percentile, which other programs lengthen on a busy machine; "
    "the column of slow others shows by how much. CPU time: of slow writers; other programs do "
    "not affect it. Whole layer: slow writers divided by the median of the others, with the "
    "rest of the layer added to both. Growth: of MLX's memory, without the archive."
)


def recall_sections(options: Options) -> list[Section]:
    """Measure one layer on the CPU, with recall and without."""
    rest = RestOfLayer(options)
    tokens, token_rest = token_costs(options, rest)
    return [chunk_costs(options, rest), tokens, archive_writing(options, token_rest)]


def chunk_costs(options: Options, rest: RestOfLayer) -> Section:
    """Measure chunks whose last tokens attend to all positions, and a full cache."""
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
                "next": next_token(layer, chunk),
                "token": cpu_timed(layer.copied().run),
                "rest": cpu_timed(partial(rest.run, tokens)),
            }
            of = interleave(bursts, _REPETITIONS, steps=1)
            full, dequantized, recall, after, token, more = (of[name].median for name in bursts)
            ratio, choice = recall / (full + dequantized), max(0.0, after - token)
            share = choice / (recall + more)
            times = (full, dequantized, recall)
            rows.append((
                f"{tokens}", f"{archived:,}", *(f"{time / 1e3:,.2f}" for time in times),
                f"{ratio:.3f}", f"{choice / 1e3:,.2f}", f"{more / 1e3:,.2f}", f"{share:.4f}",
            ))  # fmt: skip
            name = f"{tokens} tokens of one layer, {archived:,} archived"
            claims += [
                Claim(
                    f"{name}, with recall / full cache and dequantization",
                    DTYPE, ratio, "at most", CHUNK_GOAL,
                ),
                Claim(f"{name}, the choice / the layer", DTYPE, share, "at most", CHOICE_GOAL),
            ]  # fmt: skip
    title = f"Chunks in one layer, {DTYPE}, milliseconds of CPU time"
    return Section(Table(title, _CHUNK_HEADER, tuple(rows), _CHUNK_NOTE), tuple(claims))


def token_costs(options: Options, rest: RestOfLayer) -> tuple[Section, Timing]:
    """Measure tokens with and without a recall; also return the time of the layer's rest."""
    token_rest = cpu_timed(lambda: rest.run(1))
    rows, claims = [], []
    plain, recalling = (new_layer(options, recall) for recall in (None, H2ORecall()))
    for archived in ARCHIVED:
        asking = new_layer(options, H2ORecall(every=1))
        full = Layer(h2o_cache("4")(2 * archived, GROUP_SIZE), options, mx.float32)
        for layer in (plain, recalling, asking, full):
            read(layer, archived)
        bursts = {"full": cpu_timed(full.run), "asking": cpu_timed(asking.run)}
        of = interleave(bursts, _REPETITIONS, steps=ASKING_STEPS)
        ratio = of["asking"].median / of["full"].median
        name = f"a token that asks, {archived:,} archived / of a full cache in 4 bits"
        rows.append(token_row(name, of["full"], of["asking"], ratio))
        claims.append(Claim(name, DTYPE, ratio, "at most", ASKING_GOAL))
    bursts = {
        "without": cpu_timed(plain.run),
        "recalling": cpu_timed(recalling.run),
        "rest": lambda _steps: token_rest(1),
    }
    of = interleave(bursts, _BURSTS, steps=STEPS)
    ratio = whole_layer(of)
    name = "a layer's token between recalls, with recall / without"
    rows.append(token_row(name, of["without"], of["recalling"], ratio, of["rest"]))
    claims.append(Claim(name, DTYPE, ratio, "at most", STEP_GOAL))
    title = f"Tokens in one layer, {DTYPE}, milliseconds of CPU time"
    table = Table(title, _STEP_HEADER, tuple(rows), _STEP_NOTE)
    return Section(table, tuple(claims)), of["rest"]


def whole_layer(times: Mapping[str, Timing]) -> float:
    """Return the whole layer's time with recall, divided by its time without recall."""
    recalling, without, rest = (
        np.array(times[name].values) for name in ("recalling", "without", "rest")
    )
    return float(np.median((recalling + rest) / (without + rest)))


def token_row(
    name: str, other: Timing, with_recall: Timing, ratio: float, rest: Timing | None = None
) -> tuple[str, ...]:
    """Return a row of the table of tokens; other: the time to compare `with_recall` with."""
    more = "-" if rest is None else f"{rest.median / 1e3:,.3f}"
    times = (f"{timing.median / 1e3:,.3f}" for timing in (other, with_recall))
    return (name, *times, f"{ratio:.3f}", more)


def new_layer(options: Options, recall: H2ORecall | None) -> Layer:
    """Return a layer with an empty dense cache, joined to a prompt choice if it recalls."""
    cache = h2o_cache("dense", recall)(options.capacity, GROUP_SIZE)
    join([cache])
    return Layer(cache, options, mx.float32)


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
    """Return bursts that read a chunk, each with a new copy of the present cache."""
    return over_copies(layer, lambda _copy: None, lambda copy: copy.attend(chunk))


def next_token(layer: Layer, chunk: Chunk) -> Burst:
    """Return bursts of the token after a chunk, which first brings the chosen rows back."""
    return over_copies(layer, lambda copy: copy.attend(chunk), Layer.run)


def over_copies(
    layer: Layer, prepare: Callable[[Layer], object], work: Callable[[Layer], object]
) -> Burst:
    """Return bursts of `work` in microseconds of CPU time, each on a prepared copy."""

    def burst(steps: int) -> float:
        spent = 0
        for _ in range(steps):
            copy = layer.copied()
            mx.eval(copy.cache.state)
            prepare(copy)
            start = time.process_time_ns()
            work(copy)
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


GENERATED = 20_032
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
    """Time each of 20,032 steps; every 64th packs 64 archived tokens."""
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
    work_ratio = (slow_work + rest.median) / (float(np.median(worked[~packing])) + rest.median)
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
        Claim("the same in CPU time", DTYPE, work_ratio),
        Claim(memory, DTYPE, growth / size, "below", GROWTH_GOAL),
    ]


def settled_memory(layer: Layer, store: str) -> int:
    """Run steps until nothing waits for the disk; returns MLX's bytes without the archive.

    Written tokens are freed at a later step. This runs whole blocks of STEPS steps, so that the
    timed steps pack at the same places as before.
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
        size = active - waiting
        if size >= least:
            break
        least = size
    return least
