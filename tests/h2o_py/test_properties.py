"""Properties of every storage: equal to its reference, and what always holds."""

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_pack.parity import reference
from h2o_py import fast
from h2o_py.cache import H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
from h2o_py.config import H2OConfig
from tests.h2o_py.cases import (
    TOLERANCE,
    assert_same_state,
    fallback,
    kept,
    largest_difference,
    random_tokens,
    step,
)

STORAGES = {
    "dense": (H2OKVCache, reference),
    "dense, in MLX operations": (
        lambda c, b: H2OKVCache(c, fallback if b is fast else b),
        reference,
    ),
    "8": (lambda c, b: QuantizedH2OKVCache(c, 8, 32, backend=b), reference),
    "k8v4": (
        lambda c, b: QuantizedH2OKVCache(c, key_bits=8, value_bits=4, group_size=32, backend=b),
        reference,
    ),
    "4": (lambda c, b: QuantizedH2OKVCache(c, 4, 32, backend=b), reference),
    "rotated 4": (
        lambda c, b: QuantizedH2OKVCache(c, 4, 32, rotated=True, backend=b),
        reference,
    ),
    "mixed 8 and 16": (lambda c, b: MixedH2OKVCache(c, 8, 16, 32, backend=b), reference),
    "mixed 4 and 8": (lambda c, b: MixedH2OKVCache(c, 4, 8, 32, backend=b), reference),
}


@st.composite
def configs(draw):
    """Small policies; drawn as budgets so that each fits."""
    sink = draw(st.integers(0, 5), "sink")
    recent = draw(st.integers(1, 12), "recent")
    heavy = draw(st.integers(0, 12), "heavy")
    spare = draw(st.integers(1, 6), "spare")
    pins = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), max_size=2), "pins")
    return H2OConfig(
        sink + recent + heavy + spare + sum(count for _, count in pins),
        sink_size=sink,
        heavy_budget=heavy,
        recent_budget=recent,
        score=draw(st.sampled_from(["peak", "softmax", "abs_logit"]), "score"),
        decay=draw(st.sampled_from([0.0, 0.5, 0.95, 1.0]), "decay"),
        novelty=draw(st.sampled_from([0.0, 0.5, 2.0]), "novelty"),
        novelty_margin=draw(st.sampled_from([0.0, 0.05]), "novelty margin"),
        pinned=tuple((begin, begin + count) for begin, count in pins),
        observation_window=draw(st.integers(1, 20), "window"),
    )


def assert_invariants(cache):
    """What holds whatever attention does."""
    config, seen = cache.config, cache.offset
    always = set(range(min(config.sink_size, seen)))
    always |= set(range(max(0, seen - config.recent_budget), seen))
    for begin, end in config.pinned:
        always |= set(range(begin, min(end, seen)))
    assert cache.length == min(seen, config.max_size)
    for sequence in kept(cache):
        for head in sequence:
            assert len(set(head)) == len(head) == cache.length
            assert always <= set(head)
            assert max(head) < seen


@pytest.mark.parametrize("storage", STORAGES)
@given(data=st.data())
@settings(max_examples=25)
def test_the_core_equals_its_reference_whatever_the_policy_shape_and_chunking(storage, data):
    make, oracle_module = STORAGES[storage]
    config = data.draw(configs(), "config")
    kv_heads, group = (
        data.draw(st.integers(1, 2), "heads"),
        data.draw(st.integers(1, 5), "group"),
    )
    dtype = data.draw(st.sampled_from([mx.float32, mx.float16, mx.bfloat16]), "dtype")
    steps = data.draw(st.lists(st.sampled_from([1, 1, 1, 2, 5, 17]), min_size=1, max_size=10))
    mx.random.seed(data.draw(st.integers(0, 1000), "seed"))
    ours, oracle = make(config, fast), make(config, oracle_module)
    seen = 0
    for tokens in steps:
        new = random_tokens(
            tokens, heads=kv_heads * group, kv_heads=kv_heads, dim=32, dtype=dtype
        )
        out, wanted = step(ours, *new), step(oracle, *new)
        seen += tokens
        slack = 2 if storage == "dense, in MLX operations" else 1  # MLX's own attention
        assert largest_difference(out, wanted) <= slack * TOLERANCE[dtype]
        assert_same_state(ours, oracle, 5e-5)
        assert ours.offset == seen
        assert_invariants(ours)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_nan_and_infinity_neither_stop_eviction_nor_corrupt_positions(storage, poison):
    config = H2OConfig(16, sink_size=2, heavy_budget=4, recent_budget=8)
    cache = STORAGES[storage][0](config, fast)
    mx.random.seed(7)
    for t in range(60):
        q, k, v = random_tokens(1, dim=32)
        if t == 20:
            k = k * poison
        if t == 40:
            q = q * poison
        step(cache, q, k, v)
        mx.eval(cache.ledger)
        assert_invariants(cache)
    assert all(20 not in head for head in kept(cache)[0])
    assert mx.isfinite(cache.scores).all().item()
    assert mx.isfinite(step(cache, *random_tokens(1, dim=32))).all().item()
