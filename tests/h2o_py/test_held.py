"""Held rows: eviction passes over them, whoever computes it."""

import mlx.core as mx
import pytest

from h2o_pack.parity import reference
from h2o_py.cache import H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
from h2o_py.config import H2OConfig
from tests.h2o_py.cases import BACKENDS, assert_same_state, kept, random_tokens, step

MAKES = {"dense": H2OKVCache, "8": QuantizedH2OKVCache, "mixed": MixedH2OKVCache}
CONFIG = H2OConfig(37, sink_size=2, heavy_budget=12, recent_budget=10, pinned=((5, 7),))


def hold(cache, share=0.4, seed=1):
    """Hold some rows that no other rule protects; the same in caches with the same rows."""
    mx.random.seed(seed)
    positions = cache.ledger.positions
    chosen = mx.random.uniform(shape=positions.shape) < share
    victims = mx.arange(positions.shape[2]) == cache.ledger.victim[..., None]
    chosen = chosen & (positions < cache.offset - cache.config.recent_budget) & ~victims
    cache.ledger = cache.ledger._replace(held=chosen)
    return held(cache)


def held(cache):
    """The positions that each head holds."""
    positions, flags = cache.positions.tolist(), cache.ledger.held.tolist()
    return [
        [
            sorted(p for p, flag in zip(*head, strict=True) if flag)
            for head in zip(*both, strict=True)
        ]
        for both in zip(positions, flags, strict=True)
    ]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("storage", MAKES)
@pytest.mark.parametrize("novelty", [0.0, 2.0])
def test_steps_and_chunks_keep_what_is_held(name, storage, novelty):
    config = H2OConfig.from_dict({**CONFIG.to_dict(), "novelty": novelty})
    mx.random.seed(0)
    ours = MAKES[storage](config, backend=BACKENDS[name])
    oracle = MAKES[storage](config, backend=reference)
    first = random_tokens(60, batch=2, heads=4, kv_heads=2)
    for cache in (ours, oracle):
        step(cache, *first)
    held_from_now = hold(ours)
    assert hold(oracle) == held_from_now
    assert sum(len(head) for sequence in held_from_now for head in sequence) > 8
    for i, tokens in enumerate([1, 1, 1, 9, *[1] * 20, 50, 1, 2, *[1] * 15]):
        new = random_tokens(tokens, batch=2, heads=4, kv_heads=2)
        step(ours, *new)
        step(oracle, *new)
        assert_same_state(ours, oracle, 2e-5, context=i)
        assert held(ours) == held(oracle) == held_from_now, i
    for all_kept, all_held in zip(kept(ours), held_from_now, strict=True):
        for positions, stays in zip(all_kept, all_held, strict=True):
            assert set(stays) <= set(positions)


def test_without_the_hold_other_rows_stay():
    mx.random.seed(0)
    ours, free = (H2OKVCache(CONFIG) for _ in range(2))
    for cache in (ours, free):
        mx.random.seed(3)
        step(cache, *random_tokens(60))
    hold(ours)
    for _ in range(40):
        new = random_tokens(1)
        step(ours, *new)
        step(free, *new)
    assert kept(ours) != kept(free)
    assert free.ledger.held is None


@pytest.mark.parametrize("shape", [(1, 2, 36), (1, 1, 37), (2, 37)])
def test_a_hold_of_another_shape_is_refused(shape):
    cache = H2OKVCache(CONFIG)
    step(cache, *random_tokens(60))
    with pytest.raises(ValueError, match="held"):
        cache.ledger = cache.ledger._replace(held=mx.zeros(shape, mx.bool_))
    assert cache.ledger.held is None
