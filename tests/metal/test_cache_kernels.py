"""Level 0: the cache on the Metal kernels, step by step, and reading beside them."""

import mlx.core as mx
import pytest

from h2o_py import H2OConfig, H2ORecall
from h2o_py.models import STORAGES
from tests.h2o_py.cases import (
    TOLERANCE,
    assert_same_state,
    kept,
    largest_difference,
    make_cache,
    random_tokens,
    step,
)
from tests.metal import metal_rule
from tests.metal.backend import evaluated
from tests.nightly import nightly_except

DTYPES = [mx.float32, mx.float16, mx.bfloat16]
STORED = [*STORAGES, "k4v8", "heavy=8,recent=8"]
CONFIG = H2OConfig(48, sink_size=2, heavy_budget=20, recent_budget=16, pinned=((5, 7),))


def both(kv, backend, config=CONFIG, group_size=32):
    """The cache on the kernels, and on the reference with Metal's rule of quantizing."""
    backends = (backend, metal_rule.reference)
    return [make_cache(kv, config, module, group_size) for module in backends]


def token_without_ties(kv):
    """A token that MLX's CPU and Metal quantize alike: they round halves differently."""
    form = make_cache(kv, CONFIG, metal_rule.reference).row_format
    through = [
        [bits for bits in dict.fromkeys((form.recent_bits or own, own)) if bits != 16]
        for own in (form.key_bits, form.value_bits)
    ]
    while True:
        token = random_tokens(1, batch=2)
        pairs = zip(token[1:], through, strict=True)
        if all(metal_rule.agrees_with_the_cpu(a, bits, 32) for a, bits in pairs):
            return token


def compare_step(host, gpu, oracle, new, context):
    out, expected = step(gpu, *new), step(oracle, *new)
    evaluated(host, out, *gpu.ledger)
    assert out.dtype == new[0].dtype
    assert largest_difference(out, expected) <= 2 * TOLERANCE[out.dtype], context
    assert kept(gpu) == kept(oracle), context


def compare_steps(host, gpu, oracle, count, tokens=1, **shape):
    """Feed both the same new tokens; return the names of the kernels that ran."""
    host.reset_counters()
    for i in range(count):
        compare_step(host, gpu, oracle, random_tokens(tokens, **shape), i)
    assert_same_state(gpu, oracle, 1e-4)
    return [entry["kernel"] for entry in host.counters()]


def assert_three_dispatches(kernels, steps):
    """Write, attention, ledger: nothing else, and growing the buffer once."""
    copies = [kernel for kernel in kernels if kernel.startswith("h2o_copy")]
    assert len(kernels) - len(copies) == 3 * steps
    assert len(copies) <= 2


# Each type with keys and values of 8 and of 4 bits, and with a ring of 16, 8 or 4.
OF_DTYPE = [
    (mx.float32, kv) for kv in ("16", "8", "4", "heavy=8,recent=16", "heavy=4,recent=8")
]
OF_DTYPE += [
    (mx.float16, kv) for kv in ("16", "k8v4", "k4v8", "heavy=4,recent=16", "heavy=8,recent=8")
]
OF_DTYPE += [
    (mx.bfloat16, kv) for kv in ("16", "8", "4", "heavy=8,recent=16", "heavy=8,recent=4")
]


EVERYDAY = [(mx.float32, "16"), (mx.float16, "k8v4"), (mx.bfloat16, "heavy=8,recent=4")]


@pytest.mark.parametrize(("dtype", "kv"), nightly_except(EVERYDAY, OF_DTYPE), ids=str)
def test_steps_past_the_budget_equal_the_reference_in_three_dispatches(
    host, backend, dtype, kv
):
    mx.random.seed(47)
    gpu, oracle = both(kv, backend)
    assert_three_dispatches(compare_steps(host, gpu, oracle, 70, dtype=dtype), 70)


# Groups of 64 do not divide 96.
HEAD_DIMS = [
    (kv, dim) for dim in (64, 128, 256) for kv in ("16", "8", "4", "heavy=8,recent=16")
]
HEAD_DIMS += [("16", 96), ("k8v4", 96)]


@pytest.mark.parametrize(
    ("kv", "dim"),
    nightly_except([("8", 64), ("16", 96), ("heavy=8,recent=16", 256)], HEAD_DIMS),
)
def test_every_head_dim_decodes(host, backend, kv, dim):
    mx.random.seed(dim)
    config = H2OConfig(24, sink_size=2, heavy_budget=10, recent_budget=8)
    gpu, oracle = both(kv, backend, config, group_size=32 if dim == 96 else 64)
    compare_steps(host, gpu, oracle, 34, batch=2, heads=6, dim=dim)


SCORES = ["peak", "softmax", "abs_logit"]


@pytest.mark.parametrize("score", SCORES)
def test_every_score_keeps_what_the_reference_keeps(host, backend, score):
    mx.random.seed(13)
    config = H2OConfig(40, sink_size=2, recent_budget=10, score=score)
    gpu, oracle = both(("16", "heavy=8,recent=16")[SCORES.index(score) % 2], backend, config)
    compare_steps(host, gpu, oracle, 80, heads=6, kv_heads=3)


@pytest.mark.parametrize("size", [80, 1100])
def test_of_rows_that_matter_alike_the_oldest_goes(host, backend, size):
    config = H2OConfig(size, sink_size=2, recent_budget=10, score="abs_logit")
    cache = make_cache("16", config, backend)
    nothing = lambda tokens: [mx.zeros_like(a) for a in random_tokens(tokens, heads=2)]
    evaluated(host, step(cache, *nothing(size)), *cache.ledger)
    # Positions and rows apart: from the second round on, the oldest is anywhere.
    for i in range(30):
        evaluated(host, step(cache, *nothing(1)), *cache.ledger)
        newest = size + i
        assert kept(cache)[0][0] == [0, 1, *range(newest - size + 3, newest + 1)]


@pytest.mark.parametrize("kv", nightly_except(("16", "k4v8", "heavy=4,recent=16"), STORED))
def test_chunks_between_single_tokens_equal_the_reference(host, backend, kv):
    mx.random.seed(17)
    gpu, oracle = both(kv, backend)
    for tokens in [5, 1, 8, 3, 1, 20, 1, 9, 1, 2, *[1] * 8, 30, 1, 1]:
        # A long chunk is left to MLX, which quantizes here as its CPU does.
        several = [token_without_ties(kv) for _ in range(tokens)]
        new = [mx.concatenate(parts, axis=2) for parts in zip(*several, strict=True)]
        compare_step(host, gpu, oracle, new, tokens)
    assert_same_state(gpu, oracle, 1e-4)


@pytest.mark.parametrize("tokens", nightly_except((2, 5, 8), range(2, 9)))
def test_short_chunks_that_fit_are_the_kernels_work(host, backend, tokens):
    mx.random.seed(19)
    config = H2OConfig(36, recent_budget=12)
    for kv in ("16", "8"):
        gpu, oracle = both(kv, backend, config)
        kernels = compare_steps(host, gpu, oracle, 36 // tokens, tokens)
        assert sum("update_ledger" in kernel for kernel in kernels) == 36 // tokens


@pytest.mark.parametrize(
    ("dtype", "kvs"),
    nightly_except(
        [(mx.bool_, ("16",)), (mx.bfloat16, ("heavy=8,recent=16",))],
        [
            (mx.bool_, ("16",)),
            (mx.bool_, ("8", "heavy=8,recent=16")),
            (mx.float32, ("16",)),
            (mx.float16, ("8",)),
            (mx.bfloat16, ("heavy=8,recent=16",)),
        ],
    ),
    ids=str,
)
def test_rows_that_a_mask_hides_keep_their_score(host, backend, dtype, kvs):
    mx.random.seed(23)
    faint = -40000.0 if dtype == mx.float16 else -2e9
    for kv in kvs:
        gpu, oracle = both(kv, backend)
        for i in range(60):
            new = random_tokens(1, batch=2)
            mask = mx.random.uniform(shape=(2, 4, 1, min(i + 1, 48))) > 0.3
            mask[..., 0] = True
            if dtype != mx.bool_:
                mask = mx.where(mask, mx.random.normal(mask.shape), faint).astype(dtype)
            out, expected = step(gpu, *new, mask=mask), step(oracle, *new, mask=mask)
            evaluated(host, out, *gpu.ledger)
            assert largest_difference(out, expected) <= 1e-4, (kv, i)
            assert kept(gpu) == kept(oracle), (kv, i)
        assert_same_state(gpu, oracle, 1e-4, kv)


@pytest.mark.parametrize("kv", ["16", "4", "heavy=4,recent=8"])
def test_sinks_of_the_model_take_their_share_of_the_scores(host, backend, kv):
    mx.random.seed(29)
    sinks = mx.random.normal((4,))
    gpu, oracle = both(kv, backend)
    for _ in range(70):
        q, k, v = random_tokens(1)
        outs = []
        for cache in (gpu, oracle):
            cache.update_and_fetch(k, v)
            outs.append(cache.attend(q, scale=0.125, mask=None, sinks=sinks))
        evaluated(host, *outs, *gpu.ledger)
        assert largest_difference(*outs) <= 2e-5
    assert_same_state(gpu, oracle, 1e-4)


@pytest.mark.filterwarnings("ignore:This model's attention does not pass")
@pytest.mark.parametrize("kv", ["16", "8", "heavy=8,recent=16"])
def test_tokens_without_attention_enter_the_ledger(host, backend, kv):
    mx.random.seed(31)
    gpu, oracle = both(kv, backend)
    for i in range(90):
        _, k, v = random_tokens(1)
        for cache in (gpu, oracle):
            cache.update_and_fetch(k, v)
            mx.eval(cache.state)
        evaluated(host, *gpu.ledger)
        assert kept(gpu) == kept(oracle), i


def test_keys_that_are_zero_infinite_or_not_a_number_do_no_harm(host, backend):
    mx.random.seed(37)
    gpu, oracle = both("16", backend)
    odd = {10: 0.0, 20: float("inf"), 30: float("nan"), 60: 0.0}
    for i in range(70):
        q, k, v = random_tokens(1)
        if i in odd:
            k = mx.full(k.shape, odd[i])
        mx.eval(step(gpu, q, k, v), step(oracle, q, k, v))
        evaluated(host, *gpu.ledger)
        assert kept(gpu) == kept(oracle), i
        assert mx.isfinite(gpu.ledger.scores).all().item()


@pytest.mark.parametrize("kv", ["16", "8", "heavy=8,recent=16"])
def test_a_full_cache_is_written_in_place_and_a_shared_one_copied(host, backend, kv):
    mx.random.seed(41)
    gpu, oracle = both(kv, backend)
    compare_steps(host, gpu, oracle, 60)
    assert not any("h2o_copy" in name for name in compare_steps(host, gpu, oracle, 1))
    state = [a + 0 for a in gpu.arrays]
    shared = gpu.arrays
    mx.eval(state, shared)
    compare_steps(host, gpu, oracle, 1)
    for before, now in zip(state, shared, strict=True):
        assert mx.array_equal(before, now).item()


def test_steps_queued_without_waiting_equal_steps_one_by_one(host, backend):
    mx.random.seed(43)
    gpu, oracle = both("8", backend)
    outs = []
    for _ in range(100):
        new = random_tokens(1)
        outs.append((step(gpu, *new), step(oracle, *new)))
        mx.async_eval(outs[-1][0])
    evaluated(host, *gpu.ledger)
    for out, expected in outs:
        assert largest_difference(out, expected) <= 2e-5
    assert kept(gpu) == kept(oracle)


@pytest.mark.parametrize(("group", "dim"), [(32, 64), (64, 64), (128, 128), (32, 96)])
@pytest.mark.parametrize("bits", ["4", "8"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_quantized_as_mlx_does_on_metal_to_the_bit(
    host, backend, dtype, bits, group, dim
):
    mx.random.seed(53)
    gpu, oracle = both(bits, backend, H2OConfig(512), group)
    _, keys, values = random_tokens(200, dim=dim, dtype=dtype)
    keys[:, :, 0] = -mx.abs(keys[:, :, 0])  # a group without a positive value
    keys[:, :, 1] = 0.0
    values[:, :, 2] = mx.round(values[:, :, 2] * 4) / 4  # many ties
    for cache in (gpu, oracle):
        cache.update_and_fetch(keys, values)
    rows = evaluated(host, gpu.rows.pool[:, :, :200])
    assert mx.array_equal(rows, oracle.rows.pool[:, :, :200]).item()


TRAFFIC = [50, 1, 3, 40, 1, 1, 300, *[1] * 30, 9]
RECALLED = [(name, bits) for name in ("16", "heavy=8,recent=16") for bits in (4, 16)]


@pytest.mark.parametrize(("name", "bits"), nightly_except([("heavy=8,recent=16", 4)], RECALLED))
def test_reading_equals_the_cpus(host, backend, name, bits):
    mx.random.seed(31)
    recall = H2ORecall(ask=4, reach=5, archive_bits=bits)
    config = H2OConfig(40, sink_size=2, heavy_budget=14, recent_budget=9, recall=recall)
    gpu, oracle = (make_cache(name, config, module) for module in (backend, None))
    for i, tokens in enumerate(TRAFFIC):
        queries, keys, values = random_tokens(tokens)
        out, expected = (step(cache, 3 * queries, keys, values) for cache in (gpu, oracle))
        evaluated(host, out, *gpu.ledger)
        assert largest_difference(out, expected) <= 6 * TOLERANCE[mx.float32], i
        assert kept(gpu) == kept(oracle), i
    assert gpu.archive_reads == oracle.archive_reads > 0
    for rows, others in zip(gpu.archive.arrays, oracle.archive.arrays, strict=True):
        differing = (rows != others).sum().item() / rows.size
        assert differing < (0.01 if bits == 4 else 1e-9)  # halves are rounded differently


@pytest.mark.parametrize("kv", nightly_except(["k8v4"], ["8", "k8v4", "4"]))
def test_a_step_of_a_full_cache_equals_the_cpus_in_two_dispatches(host, backend, kv):
    mx.random.seed(3)
    every = H2OConfig.unbounded()
    gpu, oracle = (make_cache(kv, every, module, 32) for module in (backend, None))
    for tokens in (40, 1, 1, 5, 300, 1):
        new = random_tokens(tokens)
        host.reset_counters()
        out, expected = (step(cache, *new) for cache in (gpu, oracle))
        evaluated(host, out)
        assert largest_difference(out, expected) < 1e-5, tokens
        if tokens == 1:
            kernels = [entry["kernel"] for entry in host.counters()]
            assert kernels == ["h2o_write_row_float", "h2o_attend_float_64"]
