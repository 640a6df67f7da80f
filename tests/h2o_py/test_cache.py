"""H2OKVCache and the contract that mlx_lm expects of a cache."""

import copy
import gc
import json

import mlx.core as mx
import pytest
from mlx_lm.models import cache as mlx_lm_cache

from h2o_py import fast, missing_scores, reference
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.missing_scores import H2OScoresMissingWarning
from tests.h2o_py.cases import (
    assert_same_state,
    filled,
    kept,
    largest_difference,
    random_tokens,
    step,
)

SMALL = H2OConfig(32, sink_size=2, heavy_budget=10, recent_budget=12)


def test_below_capacity_it_is_exact_attention():
    mx.random.seed(1)
    cache, plain = H2OKVCache(H2OConfig(300)), mlx_lm_cache.KVCache()
    for tokens in (100, 1, 1, 150, 1):
        q, k, v = random_tokens(tokens)
        out = step(cache, q, k, v)
        mask = plain.make_mask(tokens, return_array=False, window_size=None)
        keys, values = plain.update_and_fetch(k, v)
        wanted = mx.fast.scaled_dot_product_attention(q, keys, values, scale=0.125, mask=mask)
        assert largest_difference(out, wanted) < 1e-5


def test_the_buffer_grows_in_steps_of_256_up_to_max_size():
    cache = H2OKVCache(H2OConfig(600))
    capacities = []
    for tokens in (1, 255, 1, 255, 88, 1, 1):
        step(cache, *random_tokens(tokens))
        capacities.append(cache._rows.pool.shape[2])
    assert capacities == [256, 256, 512, 512, 600, 600, 600]


def test_offset_counts_tokens_and_size_counts_rows():
    cache = filled(SMALL, 100)
    assert (cache.offset, cache.size(), cache.length, cache.max_size) == (100, 32, 32, 32)


def test_a_full_cache_evicts_one_row_a_token_and_moves_none():
    cache = filled(SMALL, 100)
    before = cache.positions.tolist()
    step(cache, *random_tokens(1))
    after = cache.positions.tolist()
    for old, new in zip(before[0], after[0], strict=True):
        changed = [i for i in range(32) if old[i] != new[i]]
        assert len(changed) == 1
        assert new[changed[0]] == 100


def test_rows_are_written_in_place_whether_evaluated_alone_or_pipelined():
    config = H2OConfig(1024)
    cache = filled(config, 1100, chunk=550, kv_heads=8, heads=8, dim=128)
    step(cache, *random_tokens(1, kv_heads=8, heads=8, dim=128))
    mx.eval(cache.ledger)
    gc.collect()
    rows_bytes = cache._rows.pool.nbytes
    inputs = [random_tokens(1, kv_heads=8, heads=8, dim=128) for _ in range(50)]
    mx.eval(inputs)
    for pipelined in (False, True):
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        previous = None
        for new in inputs:
            out = step(cache, *new)
            if pipelined:
                mx.async_eval(out)
                if previous is not None:
                    mx.eval(previous)
                previous = out
            else:
                mx.eval(out)
        mx.eval(out)
        assert mx.get_peak_memory() - before < rows_bytes / 8, pipelined
        assert mx.get_active_memory() - before < rows_bytes / 8, pipelined


def test_a_thousand_steps_leave_no_graph_behind():
    cache = filled(SMALL, 40)
    new = random_tokens(1)
    mx.eval(new)
    outs = []
    for i in range(1000):
        out = step(cache, *new)
        mx.eval(out)  # as mlx_lm's decoding does: never the state itself
        if i in (10, 999):
            gc.collect()
            outs.append(mx.get_active_memory())
    assert outs[1] - outs[0] < 4096
    assert cache.offset == 1040


def test_rows_handed_out_stay_as_they_were():
    cache = filled(SMALL, 60)
    q, k, v = random_tokens(1)
    keys, values = cache.update_and_fetch(k, v)
    cache.attend(q, scale=0.125)
    held = cache.arrays
    rows = cache.keys
    mx.eval(keys, values, held, rows)
    before = [a.tolist() for a in (keys, values, held[0], rows)]
    for _ in range(5):
        mx.eval(step(cache, *random_tokens(1)))
    assert [a.tolist() for a in (keys, values, held[0], rows)] == before


def test_fetched_rows_evaluated_late_are_those_of_their_time():
    cache, twin = filled(SMALL, 60), filled(SMALL, 60)
    new = [random_tokens(1) for _ in range(4)]
    lazy = []
    for q, k, v in new:
        keys, _ = cache.update_and_fetch(k, v)
        lazy.append(keys)
        cache.attend(q, scale=0.125)
    for (q, k, v), late in zip(new, lazy, strict=True):
        keys, _ = twin.update_and_fetch(k, v)
        mx.eval(keys)
        wanted = keys.tolist()
        twin.attend(q, scale=0.125)
        assert late.tolist() == wanted


def test_masks_are_over_rows_not_over_positions():
    cache = filled(SMALL, 100)
    assert cache.make_mask(1) is None
    assert cache.make_mask(5) == "causal"
    mask = cache.make_mask(5, return_array=True)
    assert mask.shape == (5, 37)
    assert mask[0].tolist() == [True] * 33 + [False] * 4
    with pytest.raises(ValueError, match="cannot serve a layer with a sliding window"):
        cache.make_mask(1, window_size=16)
    young = filled(SMALL, 8)
    assert young.make_mask(2, window_size=4).shape == (2, 10)


def test_trim_takes_tokens_back_until_the_first_eviction():
    cache, shorter = filled(SMALL, 20, chunk=1), filled(SMALL, 15, chunk=1)
    assert cache.is_trimmable()
    assert cache.trim(5) == 5
    assert (cache.offset, cache.length) == (15, 15)
    assert kept(cache) == kept(shorter)
    assert largest_difference(cache.ledger.key_sum, shorter.ledger.key_sum) < 1e-6
    for _ in range(40):
        step(cache, *random_tokens(1))
    assert not cache.is_trimmable()
    assert cache.trim(5) == 0
    assert cache.offset == 55
    assert mlx_lm_cache.trim_prompt_cache([cache], 5) == 0


def test_trimming_everything_leaves_a_working_cache():
    cache = filled(SMALL, 10)
    assert cache.trim(99) == 10
    assert cache.offset == 0
    step(cache, *random_tokens(4))
    assert kept(cache)[0][0] == [0, 1, 2, 3]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, H2OKVCache.copy])
@pytest.mark.parametrize("tokens", [10, 100])
def test_copies_are_independent(duplicate, tokens):
    cache, control = filled(SMALL, tokens), filled(SMALL, tokens)
    twin = duplicate(cache)
    mx.random.seed(9)
    later = [random_tokens(1) for _ in range(40)]
    for new in later[:20]:
        mx.eval(step(cache, *new))
    for new in later[20:]:
        mx.eval(step(twin, *new), step(control, *new))
    assert_same_state(twin, control)
    assert largest_difference(twin.keys, control.keys) == 0
    assert largest_difference(cache.keys, twin.keys) > 0.1


@pytest.mark.parametrize("tokens", [10, 100])
def test_state_goes_through_mlx_lm_prompt_cache_files(tokens, tmp_path):
    caches = [filled(SMALL, tokens, seed=s) for s in (1, 2)]
    path = str(tmp_path / "prompt.safetensors")
    mlx_lm_cache.save_prompt_cache(path, caches, {"model": "test"})
    loaded, metadata = mlx_lm_cache.load_prompt_cache(path, return_metadata=True)
    assert metadata == {"model": "test"}
    mx.random.seed(9)
    for new in [random_tokens(1) for _ in range(30)]:
        for ours, theirs in zip(caches, loaded, strict=True):
            assert largest_difference(step(ours, *new), step(theirs, *new)) == 0
    for ours, theirs in zip(caches, loaded, strict=True):
        assert_same_state(ours, theirs, 0)
        assert theirs.config == SMALL


def test_the_state_holds_arrays_and_strings_only():
    cache = filled(SMALL, 50)
    assert all(isinstance(a, mx.array) for a in cache.arrays)
    assert all(isinstance(s, str) for s in cache.header)
    assert json.loads(cache.header[4])["max_size"] == 32
    assert cache.nbytes == sum(a.nbytes for a in cache.arrays)
    assert not cache.empty()
    assert H2OKVCache(SMALL).empty()
    assert H2OKVCache(SMALL).arrays == []
    assert H2OKVCache(SMALL).nbytes == 0


def test_a_state_of_another_kind_is_refused_by_name():
    cache = filled(SMALL, 50)
    with pytest.raises(
        ValueError, match="the state has 2 arrays; an H2O cache has rows, scores"
    ):
        H2OKVCache.restored(cache.arrays[:2], cache.header)
    with pytest.raises(ValueError, match=r"format is 'h2o\.dense\.99'; this version reads"):
        H2OKVCache.restored(cache.arrays, ("h2o.dense.99", *cache.header[1:]))


def test_mlx_lm_does_not_take_it_for_one_of_its_own():
    cache = H2OKVCache(SMALL)
    for name in ("merge", "bits", "__len__"):
        assert not hasattr(cache, name), name
    assert not isinstance(cache, mlx_lm_cache.KVCache)


def test_without_attend_novelty_and_recency_decide_and_it_says_so_once(monkeypatch):
    monkeypatch.setattr(missing_scores, "_warned", False)
    config = H2OConfig(32, sink_size=2, heavy_budget=10, recent_budget=12, novelty=0.0)
    cache = H2OKVCache(config)
    _, k, v = random_tokens(50)
    keys, _ = cache.update_and_fetch(k, v)
    assert keys.shape[2] == 50
    with pytest.warns(H2OScoresMissingWarning, match="install_routing"):
        cache.update_and_fetch(*random_tokens(1)[1:])
    for _ in range(10):
        keys, _ = cache.update_and_fetch(*random_tokens(1)[1:])
        assert keys.shape[2] == 32
    cache.settle()
    assert kept(cache)[0] == [[0, 1, *range(31, 61)]] * 2
    assert (cache.scores == -1).all().item()


def test_attend_without_a_write_is_refused():
    cache = filled(SMALL, 10)
    with pytest.raises(ValueError, match="attend was called without a write"):
        cache.attend(random_tokens(1)[0], scale=1.0)


def test_a_loaded_cache_remembers_a_write_that_was_not_attended():
    cache = H2OKVCache(SMALL)
    cache.update_and_fetch(*random_tokens(50)[1:])
    twin = H2OKVCache.restored(cache.arrays, cache.header)
    cache.settle()
    twin.settle()
    assert_same_state(cache, twin, 0)


def test_scores_survive_a_second_turn():
    cache = filled(SMALL, 60)
    before = dict(zip(cache.positions[0, 0].tolist(), cache.scores[0, 0].tolist(), strict=True))
    cache.update_and_fetch(*random_tokens(1)[1:])
    cache.settle()
    after = dict(zip(cache.positions[0, 0].tolist(), cache.scores[0, 0].tolist(), strict=True))
    shared = set(before) & set(after)
    assert len(shared) == 31
    assert all(after[p] == before[p] for p in shared)


def test_the_reference_backend_is_a_drop_in():
    assert_same_state(
        filled(SMALL, 70, backend=reference), filled(SMALL, 70, backend=fast), 2e-5
    )
