"""scaled_dot_product_attention_with_scores against the reference and against MLX."""

import mlx.core as mx
import pytest

from h2o_pack.parity import reference
from h2o_py import fast
from h2o_py._compiled import ext
from tests.h2o_py.cases import BACKENDS, TOLERANCE, largest_difference, using_instructions

LOWEST = mx.finfo(mx.float32).min
DTYPES = [mx.float32, mx.float16, mx.bfloat16]


def problem(
    queries=1, rows=33, *, heads=8, kv_heads=2, dim=64, value_dim=None, dtype=mx.float32
):
    mx.random.seed(queries * 1000 + rows)
    q = mx.random.normal((2, heads, queries, dim)).astype(dtype)
    k = mx.random.normal((2, kv_heads, rows, dim)).astype(dtype)
    v = mx.random.normal((2, kv_heads, rows, value_dim or dim)).astype(dtype)
    return q, k, v


def check(attention, q, k, v, **options):
    out, scores = attention(q, k, v, scale=q.shape[-1] ** -0.5, **options)
    expected, wanted_scores = reference.scaled_dot_product_attention_with_scores(
        q, k, v, scale=q.shape[-1] ** -0.5, **options
    )
    assert out.dtype == q.dtype
    assert scores.dtype == mx.float32
    assert scores.shape == (q.shape[0] * q.shape[1] * q.shape[2], k.shape[2])
    visible = wanted_scores > LOWEST
    assert (visible == (scores > LOWEST)).all().item()
    gap = mx.where(visible, scores - wanted_scores, 0.0)
    assert mx.abs(gap).max().item() <= 1e-5 * max(1, q.shape[-1] / 64)
    # The fallback's output is MLX's own attention, which rounds its steps to the dtype.
    slack = 1 if attention is fast.scaled_dot_product_attention_with_scores else 2
    assert largest_difference(out, expected) <= slack * TOLERANCE[q.dtype]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("queries", "rows"), [(1, 1), (1, 33), (1, 513), (7, 40), (64, 300)])
def test_equals_the_reference(name, dtype, queries, rows):
    attention = BACKENDS[name].scaled_dot_product_attention_with_scores
    mask = "causal" if queries > 1 else None
    check(attention, *problem(queries, rows, dtype=dtype), mask=mask)


@pytest.mark.parametrize("instructions", ext.instruction_sets())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [8, 20, 64, 80, 96, 128, 256])
def test_every_instruction_set_gives_the_same(instructions, dtype, dim):
    attention = fast.scaled_dot_product_attention_with_scores
    with using_instructions(instructions):
        check(attention, *problem(3, 37, dim=dim, dtype=dtype), mask="causal")


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("shape", [(1, 1, 64), (4, 4, 64), (6, 2, 96), (5, 1, 64), (24, 1, 64)])
def test_any_group_size_works_and_values_of_another_head_dim(name, shape):
    heads, kv_heads, dim = shape
    attention = BACKENDS[name].scaled_dot_product_attention_with_scores
    arrays = problem(2, 21, heads=heads, kv_heads=kv_heads, dim=dim, value_dim=64)
    check(attention, *arrays, mask="causal")


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masks_hide_rows_or_are_part_of_the_logits(name, queries, dtype):
    attention = BACKENDS[name].scaled_dot_product_attention_with_scores
    q, k, v = problem(queries, 40, dtype=dtype)
    mask = mx.random.uniform(shape=(queries, 40)) > 0.4
    mask[:, 0] = True
    check(attention, q, k, v, mask=mask)
    check(attention, q, k, v, mask=mx.broadcast_to(mask, (2, 8, queries, 40)))
    check(attention, q, k, v, mask=mx.random.normal((2, 1, queries, 40)).astype(dtype))


def test_rows_that_an_additive_mask_puts_at_minus_infinity_are_hidden():
    q, k, v = problem(1, 10)
    mask = mx.where(mx.arange(10) < 4, 0.0, -float("inf")).reshape(1, 1, 1, 10)
    _, scores = fast.scaled_dot_product_attention_with_scores(q, k, v, scale=1.0, mask=mask)
    assert (scores[:, 4:] == LOWEST).all().item()
    assert (scores[:, :4] > LOWEST).all().item()


@pytest.mark.parametrize("name", BACKENDS)
def test_sinks_take_their_share(name):
    attention = BACKENDS[name].scaled_dot_product_attention_with_scores
    q, k, v = problem(3, 17)
    check(attention, q, k, v, mask="causal", sinks=mx.random.normal((8,)))
    alone, _ = attention(q, k, v, scale=0.125, mask="causal", sinks=mx.full((8,), 60.0))
    assert mx.abs(alone).max().item() < 1e-6


def test_a_query_that_sees_nothing_gets_nothing():
    q, k, v = problem(1, 10)
    out, _ = fast.scaled_dot_product_attention_with_scores(
        q, k, v, scale=1.0, mask=mx.zeros((1, 10), mx.bool_)
    )
    assert (out == 0).all().item()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strided_inputs_need_no_copy_by_the_caller(dtype):
    q, k, v = problem(5, 30, dtype=dtype)
    transposed = [a.transpose(0, 2, 1, 3) for a in (q, k, v)]
    mx.eval(transposed)
    q2, k2, v2 = ((a + 0).transpose(0, 2, 1, 3) for a in transposed)
    check(fast.scaled_dot_product_attention_with_scores, q2, k2, v2, mask="causal")
    wide = mx.concatenate([k, v], axis=-1)
    check(
        fast.scaled_dot_product_attention_with_scores,
        q, wide[..., : k.shape[-1]], wide[..., k.shape[-1] :], mask="causal",
    )  # fmt: skip
    flipped = mx.swapaxes(mx.contiguous(mx.swapaxes(k, 2, 3)), 2, 3)
    check(fast.scaled_dot_product_attention_with_scores, q, flipped, v, mask="causal")


def test_large_logits_do_not_overflow():
    q, k, v = problem(1, 50)
    check(fast.scaled_dot_product_attention_with_scores, q * 0.0 + 1.0, k, v)
    out, _ = fast.scaled_dot_product_attention_with_scores(q, k, v, scale=1e4)
    assert mx.isfinite(out).all().item()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": (2, 8, 64)}, "queries has shape (2,8,64); expected [B, Hq, L, Dk]."),
        ({"k": (2, 2, 33, 32)}, "the keys have batch size 2 and head dim 32."),
        (
            {"k": (2, 3, 33, 64), "v": (2, 3, 33, 64)},
            "queries has 8 heads; expected a multiple of the 3 KV heads.",
        ),
        ({"v": (2, 2, 30, 64)}, "keys has shape (2,2,33,64) and values (2,2,30,64)"),
    ],
)  # fmt: skip
def test_wrong_shapes_are_named(change, message):
    shapes = {"q": (2, 8, 1, 64), "k": (2, 2, 33, 64), "v": (2, 2, 33, 64), **change}
    arrays = [mx.zeros(shapes[name]) for name in "qkv"]
    with pytest.raises(ValueError) as error:
        fast.scaled_dot_product_attention_with_scores(*arrays, scale=1.0)
    assert message in str(error.value)


def test_wrong_dtypes_and_masks_are_named():
    q, k, v = problem()
    attention = fast.scaled_dot_product_attention_with_scores
    with pytest.raises(ValueError, match="keys has dtype int32; expected float32, float16"):
        attention(q, k.astype(mx.int32), v, scale=1.0)
    with pytest.raises(
        ValueError, match=r"mask has shape \(1,7\); expected one that broadcasts"
    ):
        attention(q, k, v, scale=1.0, mask=mx.zeros((1, 7)))
    with pytest.raises(ValueError, match='mask mode is "windowed"'):
        attention(q, k, v, scale=1.0, mask="windowed")
    with pytest.raises(ValueError, match=r"sinks has shape \(3\)"):
        attention(q, k, v, scale=1.0, sinks=mx.zeros((3,)))
