"""The cache of two precisions: same policy, rows in ring and pool, honest sizes."""

import mlx.core as mx
import pytest

from h2o_py.cache import H2OKVCache, MixedH2OKVCache
from h2o_py.config import H2OConfig
from tests.h2o_py.cases import (
    kept,
    largest_difference,
    random_tokens,
    step,
)

BITS = [(16, 16), (8, 16), (4, 16), (16, 8), (8, 8), (4, 8), (8, 4), (4, 4)]
SMALL = H2OConfig(
    40, sink_size=2, heavy_budget=10, recent_budget=12, observation_window=8, pinned=((5, 7),)
)


@pytest.mark.parametrize(
    "chunks", [[5, 1, 1, 9, 30, 1, 1, 5, 60, *[1] * 60, 7], [200], [1] * 120, [17] * 9]
)
def test_it_keeps_what_one_precision_keeps(chunks):
    mx.random.seed(2)
    mixed, dense = MixedH2OKVCache(SMALL, 16, 16), H2OKVCache(SMALL)
    for tokens in chunks:
        new = random_tokens(tokens)
        assert largest_difference(step(mixed, *new), step(dense, *new)) < 1e-5
        assert kept(mixed) == kept(dense)


def test_recent_tokens_are_in_the_ring_as_they_came_and_the_others_quantized_once():
    cache = MixedH2OKVCache(SMALL, heavy_bits=4, recent_bits=16)
    mx.random.seed(3)
    keys = []
    for _ in range(90):
        q, k, v = random_tokens(1, dtype=mx.float16)
        keys.append(k)
        step(cache, q, k, v)
    pool_size = 40 - 12
    for head in range(2):
        for row, position in enumerate(cache.positions[0, head].tolist()):
            key = keys[position][:, head : head + 1]
            if row >= pool_size:
                assert position == 90 - 12 + (position - 90) % 12
                assert position % 12 == row - pool_size
                assert (
                    (cache.rows.ring[0, head, row - pool_size, :64] == key[0, 0, 0])
                    .all()
                    .item()
                )
            else:
                words, _, _ = mx.quantize(key, group_size=64, bits=4)
                assert cache.rows.pool[0, head, row, :8].tolist() == words[0, 0, 0].tolist()


@pytest.mark.parametrize(
    ("heavy", "recent", "pool_bytes", "ring_bytes"),
    [(8, 16, 136, 256), (4, 16, 72, 256), (8, 4, 136, 72)],
)
def test_the_state_takes_the_bytes_it_promises(heavy, recent, pool_bytes, ring_bytes):
    config = H2OConfig(256, recent_budget=64)
    cache = MixedH2OKVCache(config, heavy, recent)
    mx.random.seed(5)
    step(cache, *random_tokens(300, dtype=mx.float16))
    mx.eval(cache.state)
    pool, ring = cache.arrays[:2]
    assert pool.nbytes == 2 * 192 * pool_bytes
    assert ring.nbytes == 2 * 64 * ring_bytes
    assert cache.nbytes == sum(a.nbytes for a in cache.arrays)


def test_it_exposes_no_bits_and_takes_nothing_back():
    cache = MixedH2OKVCache(SMALL, 8, 16)
    assert not hasattr(cache, "bits")
    step(cache, *random_tokens(3))
    assert not cache.is_trimmable()
    assert cache.trim(2) == 0
    with pytest.raises(ValueError, match="heavy_bits must be one of 4, 8, 16, got 2"):
        MixedH2OKVCache(SMALL, heavy_bits=2)
    with pytest.raises(ValueError) as error:
        MixedH2OKVCache.restored(cache.arrays[:3], cache.header)
    assert error.value.code == "other_state"


def test_a_ledger_of_another_size_is_named():
    cache = MixedH2OKVCache(SMALL)
    step(cache, *random_tokens(50))
    q, k, v = random_tokens(1)
    cache.update_and_fetch(k, v)
    with pytest.raises(ValueError, match=r"ledger\.scores has shape \(1,2,7\)"):
        cache.ledger = cache.ledger._replace(scores=cache.ledger.scores[:, :, :7])
    cache.attend(q, scale=0.125)
