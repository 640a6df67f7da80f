"""Attention over quantized rows, rotated rows, and settings that are refused."""

import math

import mlx.core as mx
import pytest

from h2o_pack.parity import reference
from h2o_pack.parity.reference.rows import as_given, as_stored
from h2o_py import fast
from h2o_py.cache import H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
from h2o_py.models import STORAGES
from h2o_py.rows import RowFormat
from tests.h2o_py.cases import (
    SMALL,
    in_pairs,
    largest_difference,
    random_tokens,
    step,
)
from tests.nightly import nightly_except

BITS = [(8, 8), (4, 4), (8, 4), (4, 8)]
DTYPES = [mx.float32, mx.float16, mx.bfloat16]


def quantized(k, v, bits, group_size):
    keys = mx.quantize(k, group_size=group_size, bits=bits[0])
    values = mx.quantize(v, group_size=group_size, bits=bits[1])
    return [*keys, *values]


SHAPES = [(d, g) for d in (64, 96, 128, 256) for g in (32, 64, 128) if d % g == 0]


KINDS = in_pairs(BITS, SHAPES, ((mx.float32, 1e-5), (mx.float16, 1e-3)))


@pytest.mark.parametrize(("bits", "shape", "kind"), nightly_except(KINDS[::5], KINDS), ids=str)
def test_attention_equals_dequantize_then_dense(bits, shape, kind):
    (dim, group_size), (dtype, tolerance) = shape, kind
    mx.random.seed(dim + group_size)
    for queries, rows, mask in (
        (1, 1, None),
        (1, 333, None),
        (7, 130, "causal"),
        (2, 500, mx.random.uniform(shape=(2, 500)) > 0.5),
        (2, 4096, mx.random.normal((1, 4, 2, 4096))),
    ):
        q, _, _ = random_tokens(queries, dim=dim, dtype=dtype)
        _, k, v = random_tokens(rows, dim=dim, dtype=dtype)
        parts = quantized(k, v, bits, group_size)
        wide = [
            mx.dequantize(
                words, *(a.astype(mx.float32) for a in scales), group_size=group_size, bits=b
            )
            for (words, *scales), b in zip((parts[:3], parts[3:]), bits, strict=True)
        ]
        for sinks in (None, mx.random.normal((4,))):
            options = {"scale": dim**-0.5, "mask": mask, "sinks": sinks}
            out, scores = fast.scaled_dot_product_attention_quantized_with_scores(
                q, *parts, bits=bits, group_size=group_size, **options
            )
            expected, logits = reference.scaled_dot_product_attention_with_scores(
                q, *wide, **options
            )
            assert out.dtype == dtype
            assert largest_difference(out, expected) <= tolerance
            visible = logits > mx.finfo(mx.float32).min
            gap = mx.where(visible, scores - logits, 0.0)
            assert mx.abs(gap).max().item() <= tolerance
            assert ((scores > mx.finfo(mx.float32).min) == visible).all().item()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (QuantizedH2OKVCache, {"bits": 3}, "key_bits must be one of 4, 8, got 3."),
        (
            QuantizedH2OKVCache,
            {"bits": 8, "group_size": 48},
            "group_size must be one of 32, 64, 128, got 48.",
        ),
        (
            QuantizedH2OKVCache,
            {"key_bits": 16, "value_bits": 8},
            "key_bits must be one of 4, 8, got 16.",
        ),
        (MixedH2OKVCache, {"heavy_bits": 2}, "heavy_bits must be one of 4, 8, 16, got 2"),
    ],
)
def test_wrong_bits_and_groups_are_named(kind, options, message):
    with pytest.raises(ValueError) as error:
        kind(SMALL, **options)
    assert message in str(error.value)


def test_a_head_dim_that_is_no_multiple_of_the_group_is_named():
    cache = QuantizedH2OKVCache(SMALL, group_size=64)
    with pytest.raises(ValueError, match="keys has head dim 96; expected a multiple of group"):
        step(cache, *random_tokens(1, dim=96))


def test_wrong_quantized_arguments_are_named():
    q, k, v = random_tokens(1)
    parts = quantized(k, v, (8, 8), 64)
    attention = fast.scaled_dot_product_attention_quantized_with_scores
    with pytest.raises(ValueError, match="keys has scales of shape"):
        attention(q, parts[0], parts[1][..., :0], *parts[2:], scale=1.0, bits=8)
    with pytest.raises(ValueError, match="key_bits is 5; it must be 4, 8 or 16"):
        attention(q, *parts, scale=1.0, bits=5)
    with pytest.raises(ValueError, match="values has words of shape"):
        attention(q, *parts[:3], v, *parts[4:], scale=1.0, bits=8)


ROTATED = RowFormat(rotated=True)


def stated(dim):
    """The rotation as its definition says: signs, then Sylvester's matrix in blocks."""
    squares = {root * root % 2053 for root in range(2053)}
    block = math.gcd(dim, 1 << 20)
    signs = [1 if (i + 1) % 2053 in squares else -1 for i in range(dim)]
    return mx.array(
        [
            [
                signs[i] * (-1) ** (i % block & j % block).bit_count() / math.sqrt(block)
                if i // block == j // block
                else 0.0
                for j in range(dim)
            ]
            for i in range(dim)
        ]
    )


@pytest.mark.parametrize("dim", [1, 32, 64, 80, 96, 128, 256])
def test_the_rotation_is_the_stated_matrix_and_is_undone(dim):
    vectors = mx.random.normal((2, 3, 5, dim), key=mx.random.key(dim))
    matrix = stated(dim)
    assert largest_difference(matrix @ matrix.T, mx.eye(dim)) < 1e-6
    rotated = as_stored(vectors, ROTATED)
    assert largest_difference(rotated, vectors @ matrix) < 1e-5
    assert largest_difference(as_given(rotated, ROTATED), vectors) < 1e-5


def test_a_large_element_costs_the_others_less():
    """Most keys of real models have elements that are many times as large as the rest."""
    mx.random.seed(5)
    queries, keys, values = random_tokens(30)
    keys = keys * mx.where(mx.arange(64) % 32 == 7, 20.0, 1.0)
    queries = queries * mx.where(mx.arange(64) % 32 == 7, 0.05, 1.0)
    caches = (H2OKVCache(SMALL), QuantizedH2OKVCache(SMALL, 4, 32), STORAGES["4"](SMALL, 32))
    exact, plain, rotated = (step(cache, queries, keys, values) for cache in caches)
    lost, lost_rotated = (mx.square(out - exact).mean().item() for out in (plain, rotated))
    assert lost_rotated < lost / 2
