"""The cache of two precisions: same policy, rows in ring and pool, honest sizes."""

import mlx.core as mx
import pytest
from mlx_lm.models import cache as mlx_lm_cache

from h2o_py import reference
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.mixed_cache import MixedH2OKVCache
from h2o_py.store import load_cache, save_cache
from tests.h2o_py.cases import (
    TOLERANCE,
    assert_same_state,
    kept,
    largest_difference,
    random_tokens,
    step,
)

BITS = [(16, 16), (8, 16), (4, 16), (16, 8), (8, 8), (4, 8), (8, 4), (4, 4)]
SMALL = H2OConfig(
    40, sink_size=2, heavy_budget=10, recent_budget=12, observation_window=8, pinned=((5, 7),)
)
STEPS = [5, 1, 1, 9, 30, 1, 1, 1, 1, 5, 60, *[1] * 60, 7, *[1] * 5]


def in_use(cache):
    """Rows in use of pool and ring."""
    ringed = min(cache.offset, cache.config.recent_budget)
    return cache._rows.pool[:, :, : cache.length - ringed], cache._rows.ring[:, :, :ringed]


@pytest.mark.parametrize(("heavy", "recent"), BITS)
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_equals_the_reference_through_chunks_and_steps(heavy, recent, dtype):
    mx.random.seed(1)
    ours = MixedH2OKVCache(SMALL, heavy, recent)
    oracle = MixedH2OKVCache(SMALL, heavy, recent, backend=reference)
    for i, tokens in enumerate(STEPS):
        new = random_tokens(tokens, batch=2, dtype=dtype)
        out, wanted = step(ours, *new), step(oracle, *new)
        assert ours.length == oracle.length == min(ours.offset, 40)
        assert largest_difference(out, wanted) <= TOLERANCE[dtype], i
        assert_same_state(ours, oracle, 3e-5, (i, tokens))
        for mine, its in zip(in_use(ours), in_use(oracle), strict=True):
            assert mine.shape == its.shape
            assert (mine == its).all().item(), i


@pytest.mark.parametrize("chunks", [STEPS, [200], [1] * 120, [17] * 9])
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
                    (cache._rows.ring[0, head, row - pool_size, :64] == key[0, 0, 0])
                    .all()
                    .item()
                )
            else:
                words, _, _ = mx.quantize(key, group_size=64, bits=4)
                assert cache._rows.pool[0, head, row, :8].tolist() == words[0, 0, 0].tolist()


def test_a_step_moves_one_token_to_the_pool_and_no_other_row():
    cache = MixedH2OKVCache(SMALL, heavy_bits=8, recent_bits=16)
    mx.random.seed(4)
    for _ in range(60):
        step(cache, *random_tokens(1))
    before = [a.tolist() for a in cache._rows]
    step(cache, *random_tokens(1))
    after = [a.tolist() for a in cache._rows]
    for old, new, most in zip(before, after, (1, 1), strict=True):
        for head in range(2):
            changed = sum(a != b for a, b in zip(old[0][head], new[0][head], strict=True))
            assert changed <= most


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


def test_rows_handed_out_and_copies_stay_as_they_were():
    cache = MixedH2OKVCache(SMALL)
    mx.random.seed(6)
    for _ in range(60):
        mx.eval(step(cache, *random_tokens(1)))
    held, twin = cache.arrays, cache.copy()
    before = [a.tolist() for a in held]
    later = [random_tokens(1) for _ in range(20)]
    outs = [step(cache, *new) for new in later]
    mx.eval(outs)
    assert [a.tolist() for a in held] == before
    for new, out in zip(later, outs, strict=True):
        assert largest_difference(step(twin, *new), out) == 0
    assert_same_state(cache, twin, 0)


def test_unrouted_models_get_all_rows_and_still_evict():
    config = H2OConfig(40, sink_size=2, heavy_budget=10, recent_budget=12, novelty=0.0)
    cache = MixedH2OKVCache(config, 8, 16)
    mx.random.seed(7)
    for tokens in (50, *[1] * 20):
        _, k, v = random_tokens(tokens)
        keys, values = cache.update_and_fetch(k, v)
        assert keys.shape[2] == values.shape[2] == cache.length
        mx.eval(keys, values)
        cache.settle()
    assert kept(cache)[0] == [[0, 1, *range(32, 70)]] * 2


def test_files_continue_identically(tmp_path):
    cache = MixedH2OKVCache(SMALL, heavy_bits=8, recent_bits=4)
    mx.random.seed(8)
    for tokens in (50, *[1] * 9):
        step(cache, *random_tokens(tokens, dtype=mx.bfloat16))
    path = str(tmp_path / "mixed.safetensors")
    mlx_lm_cache.save_prompt_cache(path, [cache])
    [upstream] = mlx_lm_cache.load_prompt_cache(path)
    save_cache(tmp_path / "own.safetensors", [cache])
    [own], _ = load_cache(tmp_path / "own.safetensors")
    for _ in range(30):
        new = random_tokens(1, dtype=mx.bfloat16)
        outs = [step(c, *new) for c in (cache, upstream, own)]
        assert all(largest_difference(outs[0], out) == 0 for out in outs[1:])
    assert kept(cache) == kept(upstream) == kept(own)


def test_it_exposes_no_bits_and_takes_nothing_back():
    cache = MixedH2OKVCache(SMALL, 8, 16)
    assert not hasattr(cache, "bits")
    step(cache, *random_tokens(3))
    assert not cache.is_trimmable()
    assert cache.trim(2) == 0
    with pytest.raises(ValueError, match="heavy_bits must be one of 4, 8, 16, got 2"):
        MixedH2OKVCache(SMALL, heavy_bits=2)
    with pytest.raises(ValueError, match="the state has 3 arrays; a mixed H2O cache has pool"):
        MixedH2OKVCache.restored(cache.arrays[:3], cache.header)


def test_rows_are_written_in_place():
    config = H2OConfig(1024, recent_budget=256)
    cache = MixedH2OKVCache(config, 8, 16)
    shape = {"kv_heads": 8, "heads": 8, "dim": 128}
    mx.random.seed(9)
    step(cache, *random_tokens(1100, **shape))
    step(cache, *random_tokens(1, **shape))
    inputs = [random_tokens(1, **shape) for _ in range(50)]
    mx.eval(inputs, cache.ledger)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    previous = None
    for new in inputs:
        out = step(cache, *new)
        mx.async_eval(out)
        if previous is not None:
            mx.eval(previous)
        previous = out
    mx.eval(out)
    assert mx.get_peak_memory() - before < cache._rows.ring.nbytes / 4


def test_a_ledger_of_another_size_is_named():
    cache = MixedH2OKVCache(SMALL)
    step(cache, *random_tokens(50))
    q, k, v = random_tokens(1)
    cache.update_and_fetch(k, v)
    cache._ledger = cache._ledger._replace(scores=cache._ledger.scores[:, :, :7])
    with pytest.raises(ValueError, match=r"ledger\.scores has shape \(1,2,7\)"):
        cache.attend(q, scale=0.125)
