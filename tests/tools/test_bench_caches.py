"""Every cache of the benchmark computes attention, over the rows that it keeps."""

import mlx.core as mx
import pytest

from h2o_py.routing import routed_attention
from tests.h2o_py.cases import largest_difference
from tools.bench import caches as layer
from tools.bench.caches import (
    BY_NAME,
    Layer,
    Options,
    steady,
)

TINY = Options(heads=4, kv_heads=2, head_dim=64, capacity=128, tokens=4, quick=True)


def wide(rows, bits=8):
    """Rows as plain arrays: mlx_lm's quantized cache hands out triples."""
    return (
        mx.dequantize(*rows, group_size=64, bits=bits)
        if isinstance(rows, tuple | list)
        else rows
    )


def plain_attention(queries, keys, values):
    heads, dim = queries.shape[1], queries.shape[3]
    keys, values = (mx.repeat(a, heads // a.shape[1], axis=1) for a in (keys, values))
    weights = mx.softmax((queries @ keys.swapaxes(-1, -2)) * dim**-0.5, axis=-1)
    return weights @ values


@pytest.mark.parametrize("name", BY_NAME)
def test_a_cache_attends_over_its_kept_rows_which_are_tokens_it_was_given(name, monkeypatch):
    mx.random.seed(1)
    given, seen = [], {}

    def attention(queries, keys, values, cache, scale):
        seen.update(queries=mx.array(queries), keys=wide(keys), values=wide(values))
        seen["out"] = routed_attention(queries, keys, values, cache, scale)
        return seen["out"]

    class Recorded(Layer):
        def __init__(self, cache, *arguments, **options):
            super().__init__(cache, *arguments, **options)
            write = cache.update_and_fetch
            cache.update_and_fetch = lambda k, v: (
                given.append((mx.array(k), mx.array(v))),
                write(k, v),
            )[1]

    monkeypatch.setattr(layer, "routed_attention", attention)
    monkeypatch.setattr(layer, "Layer", Recorded)
    steady(BY_NAME[name], TINY, mx.float32)

    wanted = plain_attention(seen["queries"], seen["keys"], seen["values"])
    assert largest_difference(seen["out"], wanted) < 1e-4
    assert seen["keys"].shape == (1, TINY.kv_heads, TINY.capacity, TINY.head_dim)
    all_keys, all_values = (mx.concatenate(part, axis=2) for part in zip(*given, strict=True))
    for head in range(TINY.kv_heads):
        gaps = seen["keys"][0, head][:, None] - all_keys[0, head][None]
        tokens = mx.argmin((gaps**2).sum(-1), axis=-1)
        keys, values = all_keys[0, head][tokens], all_values[0, head][tokens]
        tolerance = 1e-6 if "bit" not in name and name not in {"k8v4", "mixed"} else 0.5
        assert largest_difference(keys, seen["keys"][0, head]) < tolerance
        assert largest_difference(values, seen["values"][0, head]) < tolerance
        kept = set(tokens.tolist())
        assert len(kept) == TINY.capacity
        assert all_keys.shape[2] - 1 in kept
