"""Quantized attention and caches: bit-exact rows, close outputs, honest sizes."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache

from h2o_pack.parity import reference
from h2o_py import fast
from h2o_py.cache import H2OKVCache, QuantizedH2OKVCache
from h2o_py.config import H2OConfig
from tests.h2o_py.cases import (
    in_pairs,
    largest_difference,
    random_tokens,
    step,
)

BITS = [(8, 8), (4, 4), (8, 4), (4, 8)]
DTYPES = [mx.float32, mx.float16, mx.bfloat16]
SMALL = H2OConfig(32, sink_size=2, heavy_budget=10, recent_budget=12)


def quantized(k, v, bits, group_size):
    keys = mx.quantize(k, group_size=group_size, bits=bits[0])
    values = mx.quantize(v, group_size=group_size, bits=bits[1])
    wide = [
        mx.dequantize(*triple, group_size=group_size, bits=b)
        for triple, b in zip((keys, values), bits, strict=True)
    ]
    return [*keys, *values], wide


SHAPES = [(d, g) for d in (64, 96, 128, 256) for g in (32, 64, 128) if d % g == 0]


@pytest.mark.parametrize(
    ("bits", "shape", "kind"),
    in_pairs(BITS, SHAPES, ((mx.float32, 1e-5), (mx.float16, 1e-3))),
    ids=str,
)
def test_attention_equals_dequantize_then_dense(bits, shape, kind):
    (dim, group_size), (dtype, tolerance) = shape, kind
    mx.random.seed(dim + group_size)
    for queries, rows, mask in ((1, 1, None), (1, 333, None), (7, 130, "causal")):
        q, _, _ = random_tokens(queries, dim=dim, dtype=dtype)
        _, k, v = random_tokens(rows, dim=dim, dtype=dtype)
        packed, _ = quantized(k, v, bits, group_size)
        exact = (
            [a.astype(mx.float32) for a in packed[1:3]],
            [a.astype(mx.float32) for a in packed[4:6]],
        )
        wide = [
            mx.dequantize(words, *scales, group_size=group_size, bits=b)
            for words, scales, b in zip((packed[0], packed[3]), exact, bits, strict=True)
        ]
        for sinks in (None, mx.random.normal((4,))):
            options = {"scale": dim**-0.5, "mask": mask, "sinks": sinks}
            out, scores = fast.scaled_dot_product_attention_quantized_with_scores(
                q, *packed, bits=bits, group_size=group_size, **options
            )
            wanted, logits = reference.scaled_dot_product_attention_with_scores(
                q, *wide, **options
            )
            assert out.dtype == dtype
            assert largest_difference(out, wanted) <= tolerance
            seen = logits > mx.finfo(mx.float32).min
            gap = mx.where(seen, scores - logits, 0.0)
            assert mx.abs(gap).max().item() <= tolerance
            assert ((scores > mx.finfo(mx.float32).min) == seen).all().item()


@pytest.mark.parametrize("bits", BITS)
def test_4096_rows_and_masks(bits):
    mx.random.seed(4)
    q, _, _ = random_tokens(2, dim=128, dtype=mx.float16)
    _, k, v = random_tokens(4096, dim=128, dtype=mx.float16)
    packed, wide = quantized(k, v, bits, 64)
    for mask in (mx.random.uniform(shape=(2, 4096)) > 0.5, mx.random.normal((1, 4, 2, 4096))):
        out, _ = fast.scaled_dot_product_attention_quantized_with_scores(
            q, *packed, scale=0.09, bits=bits, mask=mask
        )
        wanted, _ = reference.scaled_dot_product_attention_with_scores(
            q, *wide, scale=0.09, mask=mask
        )
        assert largest_difference(out, wanted) <= 1e-3


def test_rows_are_quantized_once_and_never_moved():
    cache = QuantizedH2OKVCache(SMALL, bits=4)
    mx.random.seed(3)
    written = {}
    for position in range(80):
        q, k, v = random_tokens(1, dtype=mx.float16)
        words, _, _ = mx.quantize(k, group_size=64, bits=4)
        written[position] = words[0, :, 0].tolist()
        step(cache, q, k, v)
        for head in range(2):
            row = cache.positions[0, head].tolist().index(position)
            assert cache.rows.pool[0, head, row, :8].tolist() == written[position][head]
    for head in range(2):
        for row, position in enumerate(cache.positions[0, head].tolist()):
            assert cache.rows.pool[0, head, row, :8].tolist() == written[position][head]


@pytest.mark.parametrize(
    ("bits", "group_size", "ratio"),
    [
        ((8, 8), 64, 136 / 256),
        ((8, 4), 64, 104 / 256),
        ((4, 4), 64, 72 / 256),
        ((4, 4), 32, 80 / 256),
    ],
)
def test_the_state_takes_the_bytes_it_promises(bits, group_size, ratio):
    config = H2OConfig(256)
    dense = H2OKVCache(config)
    packed = QuantizedH2OKVCache(
        config, key_bits=bits[0], value_bits=bits[1], group_size=group_size
    )
    for cache in (dense, packed):
        mx.random.seed(5)
        step(cache, *random_tokens(300, dtype=mx.float16))
        mx.eval(cache.state)
    assert packed.arrays[0].nbytes == dense.arrays[0].nbytes * ratio
    assert packed.nbytes < dense.nbytes
    plain = KVCache()
    plain.update_and_fetch(*random_tokens(2048, dtype=mx.float16)[1:])
    assert packed.arrays[0].nbytes == plain.nbytes * ratio / 8


def test_unrouted_models_get_dequantized_rows():
    cache = QuantizedH2OKVCache(SMALL, bits=8)
    _, k, v = random_tokens(9, dtype=mx.float16)
    keys, values = cache.update_and_fetch(k, v)
    _, wide = quantized(k, v, (8, 8), 64)
    assert keys.dtype == mx.float16
    assert largest_difference(keys, wide[0]) <= 2e-3
    assert largest_difference(values, wide[1]) <= 2e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 3}, "key_bits must be one of 4, 8, got 3."),
        ({"bits": 8, "group_size": 48}, "group_size must be one of 32, 64, 128, got 48."),
        ({"key_bits": 16, "value_bits": 8}, "key_bits must be one of 4, 8, got 16."),
    ],
)
def test_wrong_bits_and_groups_are_named(options, message):
    with pytest.raises(ValueError) as caught:
        QuantizedH2OKVCache(SMALL, **options)
    assert message in str(caught.value)


def test_a_head_dim_that_is_no_multiple_of_the_group_is_named():
    cache = QuantizedH2OKVCache(SMALL, group_size=64)
    with pytest.raises(ValueError, match="keys has head dim 96; expected a multiple of group"):
        step(cache, *random_tokens(1, dim=96))


def test_wrong_quantized_arguments_are_named():
    q, k, v = random_tokens(1)
    packed, _ = quantized(k, v, (8, 8), 64)
    attention = fast.scaled_dot_product_attention_quantized_with_scores
    with pytest.raises(ValueError, match="keys has scales of shape"):
        attention(q, packed[0], packed[1][..., :0], *packed[2:], scale=1.0, bits=8)
    with pytest.raises(ValueError, match="key_bits is 5; it must be 4, 8 or 16"):
        attention(q, *packed, scale=1.0, bits=5)
    with pytest.raises(ValueError, match="values has words of shape"):
        attention(q, *packed[:3], v, *packed[4:], scale=1.0, bits=8)
