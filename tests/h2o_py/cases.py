"""Small random attention problems and caches, shared by the tests of the core."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import cycle
from types import SimpleNamespace

import mlx.core as mx

from h2o_py._compiled import ext
from h2o_py.cache import H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.rows import DENSE, Attended, Ledger, Rows
from tests.h2o_py import core

SMALL = H2OConfig(32, sink_size=2, heavy_budget=10, recent_budget=12)
TOLERANCE = {mx.float32: 1e-5, mx.float16: 2e-3, mx.bfloat16: 1.6e-2}


def _fallback_layer(config, row_format):
    return ext.LayerCache(core._native(config, row_format), config.recall, in_operations=True)


def _fallback_attend(queries, rows, ledger, *, config, row_format=DENSE, **options):
    config = core._native(config, row_format)
    out, kept_rows, state = ext.attend_in_operations(
        queries, rows.buffers, ledger, config=config, **options
    )
    return Attended(out, Rows(*kept_rows), Ledger(*state))


# What a GPU runs for calls that the kernels do not take: the core in MLX operations.
fallback = SimpleNamespace(
    scaled_dot_product_attention_with_scores=ext.attention_in_operations,
    cache_attend=_fallback_attend,
    layer_cache=_fallback_layer,
    restored_layer_cache=core.restored_layer_cache,
)
BACKENDS = {"fast": core, "fallback": fallback}


def make_cache(kv, config, backend=None, group_size=64):
    """A cache by the name of its storage; beside those of users also k4v8 and equal bits."""
    if kv == "16":
        return H2OKVCache(config, backend)
    if "," in kv:
        heavy, recent = (int(word.partition("=")[2]) for word in kv.split(","))
        return MixedH2OKVCache(config, heavy, recent, group_size, backend=backend)
    keys, values = kv[1:].split("v") if "v" in kv else (kv, kv)
    options = {"key_bits": int(keys), "value_bits": int(values), "rotated": kv == "4"}
    return QuantizedH2OKVCache(config, group_size=group_size, backend=backend, **options)


def in_pairs(first, second, third):
    """Every pair of values of the first two axes, with the values of the third in turn.

    With a third axis that is not the longest, so are all pairs of it with the others.
    """
    third = list(third)
    return [
        (a, b, third[(i + j) % len(third)])
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]


def in_turn(families, storages, every=("qwen3",)):
    """Each family with one storage, by turns; those of `every` with all of them."""
    turn = cycle(storages)
    return [(f, kv) for f in families for kv in (storages if f in every else [next(turn)])]


def random_tokens(tokens, *, batch=1, heads=4, kv_heads=2, dim=64, dtype=mx.float32):
    """Queries, keys and values of new tokens."""
    normal = lambda count: mx.random.normal((batch, count, tokens, dim)).astype(dtype)
    return normal(heads), normal(kv_heads), normal(kv_heads)


def step(cache, queries, keys, values, mask="ask", sinks=None):
    """One call of the model: write, then attend with the mask the cache asks for."""
    if isinstance(mask, str) and mask == "ask":
        mask = cache.make_mask(keys.shape[2])
    cache.update_and_fetch(keys, values)
    return cache.attend(queries, scale=queries.shape[-1] ** -0.5, mask=mask, sinks=sinks)


def put(array, index, value):
    """Return a copy of the array with one element changed."""
    copy = mx.array(array)
    copy[index] = value
    return copy


def changed(header, **lines):
    """Return a header with other values in some lines; None removes a line.

    Names have `_of_` instead of a dot: `since_of_archive`.
    """
    values = dict(line.split("=", 1) for line in header.split("\n")[1:])
    for name, value in lines.items():
        last, _, first = name.partition("_of_")
        values[f"{first}.{last}" if first else last] = value
    kept = [f"{name}={value}" for name, value in values.items() if value is not None]
    return "\n".join([header.split("\n", maxsplit=1)[0], *kept])


def saved_of(archive):
    """What must be known beside an archive's arrays."""
    return {
        "bits": archive.bits,
        "dtype": str(archive.dtype),
        "first": archive.first,
        "group_size": archive.group_size,
    }


def kept(cache):
    """Positions each head keeps, sorted, as nested lists [B][Hkv][...]."""
    positions = mx.sort(cache.positions, axis=-1).tolist()
    return [[[p for p in head if p >= 0] for head in sequence] for sequence in positions]


@contextmanager
def using_instructions(name):
    """Let the core use one of the CPU's instruction sets."""
    before = ext.instruction_set()
    ext.use_instruction_set(name)
    try:
        yield
    finally:
        ext.use_instruction_set(before)


def in_use(cache):
    """Rows in use of pool and ring."""
    pool, ring = cache.rows
    ringed = 0 if ring is None else min(cache.offset, cache.config.recent_budget)
    parts = [pool[:, :, : cache.length - ringed]]
    return parts if ring is None else [*parts, ring[:, :, :ringed]]


def filled(config, tokens, *, seed=0, backend=None, chunk=16, **shape):
    """A cache that has seen `tokens` random tokens in chunks."""
    mx.random.seed(seed)
    cache = H2OKVCache(config, backend)
    while tokens > 0:
        count = min(chunk, tokens)
        mx.eval(step(cache, *random_tokens(count, **shape)))
        tokens -= count
    return cache


def largest_difference(a, b):
    return mx.abs(a.astype(mx.float32) - b.astype(mx.float32)).max().item()


def assert_same_state(first, second, tolerance=1e-5, context=""):
    """Positions equal row by row, scores close, same next victim."""
    assert first.offset == second.offset, context
    assert first.positions.tolist() == second.positions.tolist(), context
    assert first.ledger.victim.tolist() == second.ledger.victim.tolist(), context
    scale = max(1.0, mx.abs(second.scores).max().item())
    assert largest_difference(first.scores, second.scores) <= tolerance * scale, context


def assert_invariants(cache):
    """What holds whatever attention does."""
    config, count = cache.config, cache.offset
    always = set(range(min(config.sink_size, count)))
    always |= set(range(max(0, count - config.recent_budget), count))
    for begin, end in config.pinned:
        always |= set(range(begin, min(end, count)))
    assert cache.length == min(count, config.max_size)
    for sequence in kept(cache):
        for head in sequence:
            assert len(set(head)) == len(head) == cache.length
            assert always <= set(head)
            assert max(head) < count


def assert_same_archive(first, second):
    """Keys and values bit by bit, in the same segments."""
    assert saved_of(first) == saved_of(second)
    assert (first.length, first.nbytes) == (second.length, second.nbytes)
    for array, second_array in zip(first.arrays, second.arrays, strict=True):
        assert mx.array_equal(array, second_array)
