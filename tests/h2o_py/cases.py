"""Small random attention problems and caches, shared by the tests of the core."""

from __future__ import annotations

from itertools import cycle
from types import SimpleNamespace

import mlx.core as mx

from h2o_pack.parity import reference
from h2o_pack.parity.reference.recall import Recalled
from h2o_py._compiled import ext
from h2o_py.cache import H2OKVCache
from h2o_py.rows import DENSE, Attended, Ledger, Rows
from tests.h2o_py import core

TOLERANCE = {mx.float32: 1e-5, mx.float16: 2e-3, mx.bfloat16: 1.6e-2}


def _fallback_layer(config, row_format):
    return ext.LayerCache(core._native(config, row_format), config.recall, in_operations=True)


def _fallback_recall(
    queries, keys, rows, ledger, archive, *, config, row_format=DENSE, **options
):
    kept, state, came = ext.recall(
        queries,
        keys,
        rows,
        ledger,
        archive,
        config=core._native(config, row_format),
        fallback=True,
        **options,
    )
    return Recalled(Rows(*kept), Ledger(*state), came)


def _fallback_attend(queries, rows, ledger, *, config, row_format=DENSE, **options):
    config = core._native(config, row_format)
    out, kept, state = ext.cache_attend(
        queries, rows, ledger, config=config, fallback=True, **options
    )
    return Attended(out, Rows(*kept), Ledger(*state))


def _fallback_attention(*arguments, **options):
    return ext.scaled_dot_product_attention_with_scores(*arguments, fallback=True, **options)


# What a GPU runs for calls that the kernels do not take: the core in MLX operations.
fallback = SimpleNamespace(
    scaled_dot_product_attention_with_scores=_fallback_attention,
    cache_attend=_fallback_attend,
    layer_cache=_fallback_layer,
    restored_layer_cache=core.restored_layer_cache,
    prompt_choice=core.prompt_choice,
    Archive=core.Archive,
    recall=_fallback_recall,
)
BACKENDS = {"fast": core, "fallback": fallback}


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
    make = lambda count: mx.random.normal((batch, count, tokens, dim)).astype(dtype)
    return make(heads), make(kv_heads), make(kv_heads)


def step(cache, queries, keys, values, mask="ask"):
    """One call of the model: write, then attend with the mask the cache asks for."""
    if isinstance(mask, str) and mask == "ask":
        mask = cache.make_mask(keys.shape[2])
    cache.update_and_fetch(keys, values)
    return cache.attend(queries, scale=queries.shape[-1] ** -0.5, mask=mask)


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


def assert_same_state(one, other, tolerance=1e-5, context=""):
    """Positions equal row by row, scores and novelty close, same next victim."""
    assert one.offset == other.offset, context
    assert one.positions.tolist() == other.positions.tolist(), context
    assert one.ledger.victim.tolist() == other.ledger.victim.tolist(), context
    for name in ("scores", "novelty", "key_sum"):
        a, b = getattr(one.ledger, name), getattr(other.ledger, name)
        scale = max(1.0, mx.abs(b).max().item())
        assert largest_difference(a, b) <= tolerance * scale, (context, name)


__all__ = [
    "BACKENDS",
    "TOLERANCE",
    "assert_same_state",
    "fallback",
    "filled",
    "in_pairs",
    "in_turn",
    "kept",
    "largest_difference",
    "random_tokens",
    "reference",
    "saved_of",
    "step",
]
