"""Level 0: the attention kernels, dispatched by eval_gpu, against h2o_pack.parity.reference."""

import itertools

import mlx.core as mx
import pytest

from h2o_pack.parity import reference
from tests.h2o_py.cases import TOLERANCE, in_pairs, largest_difference
from tests.metal.backend import evaluated, run
from tests.nightly import nightly_except

LOWEST = mx.finfo(mx.float32).min
DTYPES = [mx.float32, mx.float16, mx.bfloat16]
DIMS = [64, 96, 128, 256]
ROWS = [1, 31, 32, 33, 1023, 1024, 1025, 4097]
MASKS = ["none", "bool", "additive", "causal"]
PAIRS = in_pairs(ROWS, DIMS, DTYPES)
EVERYDAY = [PAIRS[i * len(DIMS) + i % len(DIMS)] for i in range(len(ROWS))]
"""Each number of rows, each head dim and each type."""
PHONE, MAX, ULTRA = "applegpu_g16p", "applegpu_g16s", "applegpu_g16d"


def make_mask(kind, batch, heads, tokens, rows, dtype):
    if kind == "none":
        return None
    if kind == "causal":
        return kind
    if kind == "bool":
        mask = mx.random.uniform(shape=(batch, heads, tokens, rows)) > 0.3
        mask[..., 0] = True
        return mask
    mask = mx.random.normal((batch, 1, tokens, rows)).astype(dtype)
    hidden = mx.random.uniform(shape=mask.shape) < 0.2
    return mx.where(hidden, mx.array(-float("inf"), dtype), mask)


def problem(tokens, rows, *, dim, dtype, heads=2, kv_heads=1, batch=1):
    make = lambda count, length: mx.random.normal((batch, count, length, dim)).astype(dtype)
    return make(heads, tokens), make(kv_heads, rows), make(kv_heads, rows)


def assert_equal(result, expected, dtype, context):
    out, scores = result
    wanted_out, wanted_scores = expected
    assert out.dtype == dtype
    assert scores.dtype == mx.float32
    assert scores.shape == wanted_scores.shape
    visible = wanted_scores > LOWEST
    assert (visible == (scores > LOWEST)).all().item(), context
    assert (mx.where(visible, LOWEST, scores) == LOWEST).all().item(), context
    gap = mx.where(visible, scores - wanted_scores, 0.0)
    assert mx.abs(gap).max().item() <= 4e-5, context
    assert largest_difference(out, wanted_out) <= 2 * TOLERANCE[dtype], context


def test_pipelines_that_write_scores_are_named(host, backend):
    q, k, v = problem(1, 40, dim=64, dtype=mx.float16)
    check_dense(host, backend, q, k, v, None, None, "")
    names = host.scoring_pipelines()  # those of the process, so other tests' too
    assert any(name.startswith("h2o_attend_float16_t_64_") for name in names)


def check_dense(host, backend, q, k, v, mask, sinks, context):
    scale = q.shape[-1] ** -0.5
    result = backend.scaled_dot_product_attention_with_scores(
        q, k, v, scale=scale, mask=mask, sinks=sinks
    )
    evaluated(host, *result)
    expected = reference.scaled_dot_product_attention_with_scores(
        q, k, v, scale=scale, mask=mask, sinks=sinks
    )
    assert_equal(result, expected, q.dtype, context)


def check_quantized(host, backend, q, k, v, bits, group, mask, sinks, context):
    scale = q.shape[-1] ** -0.5
    key_bits, value_bits = bits
    triples = [
        mx.quantize(a, group_size=group, bits=b) for a, b in ((k, key_bits), (v, value_bits))
    ]
    options = {"scale": scale, "mask": mask, "sinks": sinks}
    result = backend.scaled_dot_product_attention_quantized_with_scores(
        q, *triples[0], *triples[1], bits=bits, group_size=group, **options
    )
    evaluated(host, *result)
    wide = [
        mx.dequantize(words, scales.astype(mx.float32), biases.astype(mx.float32), group, b)
        for (words, scales, biases), b in zip(triples, bits, strict=True)
    ]
    expected = reference.scaled_dot_product_attention_with_scores(q, *wide, **options)
    assert_equal(result, expected, q.dtype, context)


def in_turn(cases, turn, rows):
    """All cases with their numbers; with many rows every other one, by turns."""
    return [(i, case) for i, case in enumerate(cases) if rows < 1000 or (turn + i) % 2 == 0]


def used_kernels(host):
    return [entry["kernel"] for entry in host.counters()]


@pytest.mark.parametrize(("rows", "dim", "dtype"), nightly_except(EVERYDAY, PAIRS), ids=str)
def test_dense_attention_equals_the_reference(host, backend, dtype, dim, rows):
    mx.random.seed(rows * 1000 + dim)
    # Every mask, with every number of tokens and both kinds of GPU over the dims and types.
    turn = DIMS.index(dim) + DTYPES.index(dtype) + ROWS.index(rows)
    for i, mask in in_turn(MASKS, turn, rows):
        tokens = min([1, 2, 5, 8][(turn + i) % 4] if rows < 4000 else 1 + i % 2, rows)
        if mask == "causal" and rows > 1:
            tokens = max(tokens, 2)
        host.set_architecture([PHONE, MAX, ULTRA][(turn + i) % 3])
        batch = 2 if rows < 100 else 1
        q, k, v = problem(tokens, rows, dim=dim, dtype=dtype, batch=batch)
        sinks = mx.random.normal((2,)).astype(dtype) if (turn + i) % 2 else None
        values = make_mask(mask, batch, 2, tokens, rows, dtype)
        check_dense(host, backend, q, k, v, values, sinks, (mask, tokens))


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [
        ("float", mx.float32, 1e-5),
        ("float16_t", mx.float16, 2e-3),
        ("bfloat16_t", mx.bfloat16, 2e-2),
    ],
)
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("order", ["forward", "reverse", 7])
def test_dense_attention_has_the_bits_of_mlx_own_kernel(
    host, backend, name, dtype, tolerance, dim, order
):
    mx.random.seed(dim)
    rows, scale = 77, dim**-0.5
    q, k, v = problem(1, rows, dim=dim, dtype=dtype, heads=8, kv_heads=2)
    host.set_order(order)
    numbers = {4: [4], 5: [rows], 10: [mx.array(scale).view(mx.int32).item()]}
    strides = {6 + i: [(rows * dim, dim)[i % 2], 0] for i in range(4)}
    upstream = run(
        host, f"upstream_sdpa_vector_{name}_{dim}", (8, 1, 1), (1024, 1, 1),
        {0: q, 1: k, 2: v}, {3: (q.shape, dtype)}, bytes=numbers | strides,
        constants=dict.fromkeys(range(20, 26), False),
    )[3]  # fmt: skip
    out, _ = backend.scaled_dot_product_attention_with_scores(q, k, v, scale=scale)
    assert mx.array_equal(evaluated(host, out), upstream).item()
    expected = mx.fast.scaled_dot_product_attention(q, k, v, scale=scale)
    assert mx.abs(upstream - expected).max().item() < tolerance


@pytest.mark.parametrize(("rows", "dim", "dtype"), nightly_except(EVERYDAY, PAIRS), ids=str)
def test_quantized_attention_equals_the_reference(host, backend, dtype, dim, rows):
    mx.random.seed(rows * 1000 + dim + 1)
    turn = DIMS.index(dim) + DTYPES.index(dtype) + ROWS.index(rows)
    groups = [g for g in (32, 64, 128) if dim % g == 0]
    for i, bits in in_turn(itertools.product((4, 8), repeat=2), turn, rows):
        mask = MASKS[(turn + i) % 4]
        tokens = min([1, 8, 2, 5][(turn + i) % 4] if rows < 4000 else 1 + i % 2, rows)
        host.set_architecture([PHONE, MAX, ULTRA][(turn + 2 * i) % 3])
        q, k, v = problem(tokens, rows, dim=dim, dtype=dtype, batch=2 if rows < 100 else 1)
        sinks = mx.random.normal((2,)).astype(dtype) if (turn + i) % 3 == 0 else None
        group = groups[(turn + i) % len(groups)]
        values = make_mask(mask, q.shape[0], 2, tokens, rows, dtype)
        context = (bits, group, mask, tokens)
        check_quantized(host, backend, q, k, v, bits, group, values, sinks, context)


@pytest.mark.parametrize("tokens", nightly_except((1, 2, 8), range(1, 9)))
def test_every_number_of_tokens_works_in_one_pass_and_in_two(host, backend, tokens):
    mx.random.seed(tokens)
    dtype = DTYPES[tokens % 3]  # the tests above have the other pairs
    for architecture, rows in ((PHONE, 40), (MAX, 1030)):
        host.set_architecture(architecture)
        host.reset_counters()
        q, k, v = problem(tokens, rows, dim=64, dtype=dtype, heads=4)
        check_dense(host, backend, q, k, v, "causal", None, architecture)
        check_quantized(host, backend, q, k, v, (8, 4), 64, "causal", None, architecture)
        passes = sum("h2o_attend_block" in name for name in used_kernels(host))
        assert passes == (2 if tokens <= 8 and architecture == MAX else 0)


@pytest.mark.parametrize(
    ("architecture", "rows", "heads", "blocks"),
    [
        (PHONE, 1023, 4, None),
        (PHONE, 4096, 4, 64),
        (PHONE, 4095, 4, None),
        (PHONE, 4100, 1, None),  # no grouped queries: one pass
        (PHONE, 4100, 2, 32),
        (MAX, 1023, 4, None),
        (MAX, 1024, 4, 64),
        (MAX, 1025, 8, 128),
        (ULTRA, 1024, 4, 128),
    ],
)
def test_passes_and_blocks_are_those_that_mlx_would_choose(
    host, backend, architecture, rows, heads, blocks
):
    host.set_architecture(architecture)
    host.reset_counters()
    q, k, v = problem(1, rows, dim=64, dtype=mx.float32, heads=heads)
    check_dense(host, backend, q, k, v, None, None, (architecture, rows))
    grids = {entry["kernel"]: entry["grid"] for entry in host.counters()}
    two_pass = [grid for name, grid in grids.items() if "h2o_attend_block" in name]
    assert [grid[2] for grid in two_pass] == ([blocks] if blocks else [])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts_that_a_model_makes_need_no_care(host, backend, dtype):
    mx.random.seed(3)
    host.set_architecture(PHONE)
    # [B, L, H, D] in memory, as projections leave them: queries transposed, keys not
    # contiguous; and keys and values side by side in one buffer.
    make = lambda batch, count, rows: mx.random.normal((batch, rows, count, 64)).astype(dtype)
    for batch in (1, 2):
        q, k, v = (
            mx.swapaxes(make(batch, count, rows), 1, 2)
            for count, rows in ((4, 3), (2, 37), (2, 37))
        )
        check_dense(host, backend, q, k, v, "causal", None, batch)
        wide = mx.random.normal((batch, 2, 37, 128)).astype(dtype)
        mx.eval(wide)
        check_dense(host, backend, q, wide[..., :64], wide[..., 64:], "causal", None, "wide")
        backwards = mx.swapaxes(mx.contiguous(mx.swapaxes(k, 2, 3)), 2, 3)
        check_dense(host, backend, q, backwards, v, "causal", None, "backwards")


@pytest.mark.parametrize(
    ("heads", "kv_heads"),
    nightly_except([(6, 2), (32, 8)], [(1, 1), (4, 4), (6, 2), (24, 1), (32, 8)]),
)
def test_any_group_of_query_heads_up_to_32_works(host, backend, heads, kv_heads):
    mx.random.seed(5)
    for architecture, rows in ((PHONE, 50), (MAX, 1040)):
        host.set_architecture(architecture)
        q, k, v = problem(1, rows, dim=64, dtype=mx.float32, heads=heads, kv_heads=kv_heads)
        check_dense(host, backend, q, k, v, None, None, heads)
        check_quantized(host, backend, q, k, v, (4, 8), 32, None, None, heads)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"dim": 80}, "head dim"),
        ({"dim": 64, "tokens": 9}, "tokens"),
        ({"dim": 64, "tokens": 5, "heads": 8}, "queries of a group"),
    ],
)
def test_what_the_kernels_lack_is_computed_by_mlx_operations(host, backend, shape, reason):
    mx.random.seed(6)
    host.reset_counters()
    options = {"tokens": 1, "heads": 2, "rows": 20, "dtype": mx.float32, **shape}
    q, k, v = problem(**options)
    check_dense(host, backend, q, k, v, "causal", None, reason)
    assert used_kernels(host) == []


def test_a_query_that_sees_nothing_gets_nothing(host, backend):
    q, k, v = problem(1, 10, dim=64, dtype=mx.float32)
    out, scores = backend.scaled_dot_product_attention_with_scores(
        q, k, v, scale=1.0, mask=mx.zeros((1, 10), mx.bool_)
    )
    evaluated(host, out, scores)
    assert (out == 0).all().item()
    assert (scores == LOWEST).all().item()
