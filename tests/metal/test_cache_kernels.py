"""Level 0: writing rows and keeping the ledger, by the Metal kernels, step by step."""

import mlx.core as mx
import pytest

from h2o_py import H2OConfig
from h2o_py.cache import H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
from tests.h2o_py.cases import (
    TOLERANCE,
    assert_same_state,
    kept,
    largest_difference,
    random_tokens,
    step,
)
from tests.h2o_py.test_held import held, hold
from tests.metal import metal_rule
from tests.metal.backend import evaluated

DTYPES = [mx.float32, mx.float16, mx.bfloat16]
FORMATS = {
    "dense": H2OKVCache,
    "8": lambda config, backend: QuantizedH2OKVCache(config, bits=8, backend=backend),
    "k8v4": lambda config, backend: QuantizedH2OKVCache(
        config, key_bits=8, value_bits=4, group_size=32, backend=backend
    ),
    "k4v8": lambda config, backend: QuantizedH2OKVCache(
        config, key_bits=4, value_bits=8, backend=backend
    ),
    "4": lambda config, backend: QuantizedH2OKVCache(config, bits=4, backend=backend),
    "r16h8": lambda config, backend: MixedH2OKVCache(config, 8, 16, backend=backend),
    "r16h4": lambda config, backend: MixedH2OKVCache(config, 4, 16, backend=backend),
    "r8h4": lambda config, backend: MixedH2OKVCache(config, 4, 8, backend=backend),
    "r4h8": lambda config, backend: MixedH2OKVCache(config, 8, 4, backend=backend),
    "r8h8": lambda config, backend: MixedH2OKVCache(config, 8, 8, backend=backend),
}
# What keys and values are quantized to, first in the ring and then in the pool.
QUANTIZED_TO = {
    "dense": ((), ()),
    "8": ((8,), (8,)),
    "k8v4": ((8,), (4,)),
    "k4v8": ((4,), (8,)),
    "4": ((4,), (4,)),
    "r16h8": ((8,), (8,)),
    "r16h4": ((4,), (4,)),
    "r8h4": ((8, 4), (8, 4)),
    "r4h8": ((4, 8), (4, 8)),
    "r8h8": ((8,), (8,)),
}
CONFIG = H2OConfig(
    48, sink_size=2, heavy_budget=20, recent_budget=16, observation_window=8, pinned=((5, 7),)
)


def both(name, backend, config=CONFIG):
    """The cache on the kernels, and on the reference with Metal's rule of quantizing."""
    return FORMATS[name](config, backend), FORMATS[name](config, metal_rule.reference)


def token_without_ties(name, batch=1):
    """A token that MLX's CPU and Metal quantize alike: they round halves differently."""
    keys_through, values_through = QUANTIZED_TO[name]
    group = 32 if name == "k8v4" else 64
    while True:
        q, k, v = random_tokens(1, batch=batch)
        if metal_rule.agrees_with_the_cpu(
            k, keys_through, group
        ) and metal_rule.agrees_with_the_cpu(v, values_through, group):
            return q, k, v


def compare_step(host, ours, theirs, new, dtype, context):
    out, wanted = step(ours, *new), step(theirs, *new)
    evaluated(host, out, *ours.ledger)
    assert out.dtype == dtype
    assert largest_difference(out, wanted) <= 2 * TOLERANCE[dtype], context
    assert kept(ours) == kept(theirs), context


@pytest.mark.parametrize("name", FORMATS)
def test_steps_far_past_the_budget_equal_the_cpu(host, backend, name):
    mx.random.seed(11)
    ours, theirs = FORMATS[name](CONFIG, backend), FORMATS[name](CONFIG, None)
    host.reset_counters()
    count = 100
    for i in range(count):
        compare_step(host, ours, theirs, token_without_ties(name), mx.float32, i)
    assert ours.offset == count
    assert ours.length == 48
    assert_same_state(ours, theirs, 1e-4, name)
    # Write, attention, ledger: nothing else, and growing the buffer once.
    kernels = [entry["kernel"].split("_float")[0] for entry in host.counters()]
    steps = [k for k in kernels if not k.startswith("h2o_copy")]
    assert len(steps) == 3 * count
    assert len(kernels) - len(steps) <= 2


# Groups of 64 do not divide 96.
HEAD_DIMS = [(name, dim) for dim in (64, 128, 256) for name in ("dense", "8", "4", "r16h8")]
HEAD_DIMS += [("dense", 96), ("k8v4", 96)]


@pytest.mark.parametrize(("name", "dim"), HEAD_DIMS)
def test_every_head_dim_decodes(host, backend, name, dim):
    mx.random.seed(dim)
    ours, theirs = both(name, backend)
    for i in range(64):
        new = random_tokens(1, batch=2, heads=6, kv_heads=2, dim=dim)
        compare_step(host, ours, theirs, new, mx.float32, i)


@pytest.mark.parametrize("score", ["peak", "softmax", "abs_logit"])
@pytest.mark.parametrize(("novelty", "margin"), [(0.0, 0.0), (2.0, 0.0), (2.0, 0.01)])
def test_every_score_and_novelty_keeps_what_the_reference_keeps(
    host, backend, score, novelty, margin
):
    mx.random.seed(13)
    config = H2OConfig(
        40, sink_size=2, recent_budget=10, score=score, novelty=novelty, novelty_margin=margin
    )
    for name in ("dense", "r16h8"):
        ours, theirs = both(name, backend, config)
        for i in range(80):
            new = random_tokens(1, heads=6, kv_heads=3)
            compare_step(host, ours, theirs, new, mx.float32, (name, i))
        assert_same_state(ours, theirs, 1e-4, name)


@pytest.mark.parametrize("size", [80, 1100])
def test_of_rows_that_matter_alike_the_oldest_goes(host, backend, size):
    mx.random.seed(15)
    config = H2OConfig(size, sink_size=2, recent_budget=10, score="abs_logit", novelty=0.0)
    cache = H2OKVCache(config, backend)
    nothing = lambda tokens: [mx.zeros_like(a) for a in random_tokens(tokens, heads=2)]
    evaluated(host, step(cache, *nothing(size)), *cache.ledger)
    # Positions and rows apart: from the second round on, the oldest is anywhere.
    for i in range(30):
        evaluated(host, step(cache, *nothing(1)), *cache.ledger)
        newest = size + i
        assert kept(cache)[0][0] == [0, 1, *range(newest - size + 3, newest + 1)]


@pytest.mark.parametrize("name", FORMATS)
def test_chunks_between_single_tokens_equal_the_reference(host, backend, name):
    mx.random.seed(17)
    ours, theirs = both(name, backend)
    for tokens in [5, 1, 1, 8, 3, 1, 1, 1, 20, 1, 9, 1, 1, 1, 2, *[1] * 20, 30, 1, 1]:
        # A long chunk is left to MLX, which quantizes here as its CPU does.
        several = [token_without_ties(name, batch=2) for _ in range(tokens)]
        new = [mx.concatenate(parts, axis=2) for parts in zip(*several, strict=True)]
        compare_step(host, ours, theirs, new, mx.float32, tokens)
    assert_same_state(ours, theirs, 1e-4, name)


@pytest.mark.parametrize("tokens", range(2, 9))
def test_short_chunks_that_fit_are_the_kernels_work(host, backend, tokens):
    mx.random.seed(19)
    config = H2OConfig(64, recent_budget=16, observation_window=3)
    for name in ("dense", "8"):
        ours, theirs = both(name, backend, config)
        host.reset_counters()
        for i in range(64 // tokens):
            compare_step(host, ours, theirs, random_tokens(tokens), mx.float32, i)
        kernels = [entry["kernel"] for entry in host.counters()]
        assert sum("update_ledger" in kernel for kernel in kernels) == 64 // tokens
        assert_same_state(ours, theirs, 1e-4, name)


@pytest.mark.parametrize("kind", ["bool", "float32", "float16", "bfloat16"])
def test_rows_that_a_mask_hides_keep_their_score(host, backend, kind):
    mx.random.seed(23)
    for name in ("dense", "8", "r16h8"):
        ours, theirs = both(name, backend)
        for i in range(60):
            new = random_tokens(1, batch=2)
            rows = min(i + 1, 48)
            seen = mx.random.uniform(shape=(2, 4, 1, rows)) > 0.3
            seen[..., 0] = True
            mask = seen
            if kind != "bool":
                dtype = getattr(mx, kind)
                faint = {"float16": -40000.0}.get(kind, -2e9)
                mask = mx.where(seen, mx.random.normal(seen.shape), faint).astype(dtype)
            mine, its = step(ours, *new, mask=mask), step(theirs, *new, mask=mask)
            evaluated(host, mine, *ours.ledger)
            assert largest_difference(mine, its) <= 1e-4, (name, i)
            assert kept(ours) == kept(theirs), (name, i)
        assert_same_state(ours, theirs, 1e-4, name)


def test_sinks_of_the_model_take_their_share_of_the_scores(host, backend):
    mx.random.seed(29)
    sinks = mx.random.normal((4,))
    for name in ("dense", "4", "r8h4"):
        ours, theirs = both(name, backend)
        for _ in range(70):
            q, k, v = random_tokens(1)
            for cache in (ours, theirs):
                cache.update_and_fetch(k, v)
            options = {"scale": 0.125, "mask": None, "sinks": sinks}
            mine, its = ours.attend(q, **options), theirs.attend(q, **options)
            evaluated(host, mine, *ours.ledger)
            assert largest_difference(mine, its) <= 2e-5
        assert_same_state(ours, theirs, 1e-4, name)


@pytest.mark.filterwarnings("ignore:This model's attention does not pass")
@pytest.mark.parametrize("name", ["dense", "8", "r16h8"])
def test_tokens_without_attention_enter_the_ledger(host, backend, name):
    mx.random.seed(31)
    ours, theirs = both(name, backend)
    for i in range(90):
        _, k, v = random_tokens(1)
        for cache in (ours, theirs):
            cache.update_and_fetch(k, v)
            mx.eval(cache.state)
        evaluated(host, *ours.ledger)
        assert kept(ours) == kept(theirs), i


def test_keys_that_are_zero_infinite_or_not_a_number_do_no_harm(host, backend):
    mx.random.seed(37)
    ours, theirs = both("dense", backend)
    odd = {10: 0.0, 20: float("inf"), 30: float("nan"), 60: 0.0}
    for i in range(70):
        q, k, v = random_tokens(1)
        if i in odd:
            k = mx.full(k.shape, odd[i])
        for cache in (ours, theirs):
            cache.update_and_fetch(k, v)
            mx.eval(cache.attend(q, scale=0.125, mask=None))
        evaluated(host, *ours.ledger)
        assert kept(ours) == kept(theirs), i
        assert mx.isfinite(ours.ledger.scores).all().item()
        assert mx.isfinite(ours.ledger.novelty).all().item()


@pytest.mark.parametrize("name", ["dense", "8", "r16h8"])
def test_a_full_cache_is_written_in_place_and_a_shared_one_copied(host, backend, name):
    mx.random.seed(41)
    ours, theirs = both(name, backend)
    for _ in range(60):
        new = random_tokens(1)
        compare_step(host, ours, theirs, new, mx.float32, name)
    host.reset_counters()
    compare_step(host, ours, theirs, random_tokens(1), mx.float32, name)
    assert not any("h2o_copy" in entry["kernel"] for entry in host.counters())
    state = [a + 0 for a in ours.arrays]
    held = ours.arrays
    mx.eval(state, held)
    compare_step(host, ours, theirs, random_tokens(1), mx.float32, name)
    for before, now in zip(state, held, strict=True):
        assert mx.array_equal(before, now).item()


def test_steps_queued_without_waiting_equal_steps_one_by_one(host, backend):
    mx.random.seed(43)
    ours, theirs = both("8", backend)
    outs = []
    for _ in range(100):
        new = random_tokens(1)
        out, wanted = step(ours, *new), step(theirs, *new)
        mx.async_eval(out)
        outs.append((out, wanted))
    evaluated(host, *ours.ledger)
    for out, wanted in outs:
        assert largest_difference(out, wanted) <= 2e-5
    assert kept(ours) == kept(theirs)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_steps_past_the_budget_equal_the_reference(host, backend, dtype, name):
    mx.random.seed(47)
    ours, theirs = both(name, backend)
    for i in range(70):
        compare_step(host, ours, theirs, random_tokens(1, dtype=dtype), dtype, i)
    assert_same_state(ours, theirs, 1e-4, name)


@pytest.mark.parametrize(("group", "dim"), [(32, 64), (64, 64), (128, 128), (32, 96)])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_quantized_as_mlx_does_on_metal_to_the_bit(
    host, backend, dtype, bits, group, dim
):
    mx.random.seed(53)
    ours = QuantizedH2OKVCache(H2OConfig(512), bits, group, backend=backend)
    theirs = QuantizedH2OKVCache(H2OConfig(512), bits, group, backend=metal_rule.reference)
    _, keys, values = random_tokens(200, dim=dim, dtype=dtype)
    keys[:, :, 0] = -mx.abs(keys[:, :, 0])  # a group without a positive value
    keys[:, :, 1] = 0.0
    values[:, :, 2] = mx.round(values[:, :, 2] * 4) / 4  # many ties
    for cache in (ours, theirs):
        cache.update_and_fetch(keys, values)
    rows = evaluated(host, ours.rows.pool[:, :, :200])
    assert mx.array_equal(rows, theirs.rows.pool[:, :, :200]).item()


@pytest.mark.parametrize("name", ["dense", "4", "r16h8"])
def test_held_rows_stay_in_three_dispatches_a_step(host, backend, name):
    mx.random.seed(23)
    ours, theirs = both(name, backend)
    first = random_tokens(60)
    for cache in (ours, theirs):
        mx.eval(step(cache, *first))
    wanted = hold(ours)
    assert hold(theirs) == wanted
    assert any(head for sequence in wanted for head in sequence)
    host.reset_counters()
    for i in range(60):
        compare_step(host, ours, theirs, token_without_ties(name), mx.float32, i)
        assert held(ours) == held(theirs) == wanted, i
    kernels = [entry["kernel"] for entry in host.counters()]
    assert len([k for k in kernels if not k.startswith("h2o_copy")]) == 3 * 60
    assert len(kernels) <= 3 * 60 + 2
