"""Recall through the cache: what asks, which layers, what copies share, when it ends."""

import warnings

import mlx.core as mx
import numpy as np
import pytest

from h2o_pack.parity import reference
from h2o_py import (
    H2OConfig,
    H2OConfigError,
    H2OModelError,
    H2ORecall,
    H2ORecallWarning,
    H2OScoresMissingWarning,
    errors,
    fast,
    make_h2o_cache,
)
from h2o_py.cache import H2OKVCache
from h2o_py.models import STORAGES
from tests.h2o_py.cases import kept, random_tokens, step
from tests.h2o_py.small_models import small_model
from tests.h2o_py.test_recall_properties import held

RECALL = H2ORecall(ask=4, spread=2)
SIZES = {"sink_size": 2, "heavy_budget": 10, "recent_budget": 8}


@pytest.fixture(autouse=True)
def _nothing_was_said_yet(monkeypatch):
    monkeypatch.setattr(errors, "_reported", set())


def config(**changes):
    """Return the settings of 24 rows with recall."""
    return H2OConfig(24, **SIZES, recall=H2ORecall(**{**vars(RECALL), **changes}))


def filled(settings=None, chunks=(30, 1, 1, 20), make=H2OKVCache):
    """Return a cache that has seen these chunks."""
    mx.random.seed(3)
    cache = make(settings or config())
    for tokens in chunks:
        mx.eval(step(cache, *random_tokens(tokens)))
    return cache


def same(one, other):
    """Whether two caches keep, hold and have archived the same."""
    state = zip(one.arrays, other.arrays, strict=True)
    return one.header == other.header and all(mx.array_equal(a, b) for a, b in state)


def addresses(archive):
    """Where the elements of its arrays lie in memory."""
    mx.eval(archive.arrays)
    return [np.array(a, copy=False).ctypes.data for a in archive.arrays]


def test_only_chunks_and_every_so_many_steps_recall_once_something_was_evicted():
    mx.random.seed(1)
    came = []
    cache = H2OKVCache(config(every=3))
    for tokens in (20, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1):
        steps = cache._layer.since
        mx.eval(step(cache, *random_tokens(tokens)))
        came.append(cache._layer.since == 0 < steps)
    # 24 rows are full after 24 tokens; a step is due after three.
    assert came == [False] * 6 + [True, False, False, True, False, False, True]


def test_a_recalled_row_stays_until_the_next_recall():
    cache = filled()
    before = held(cache)
    assert cache.recalled > 0
    assert before == held(filled(chunks=(30, 1, 1, 20, *[1] * 40)))
    mx.eval(step(cache, *random_tokens(5)))
    assert held(cache) != before


@pytest.mark.parametrize("kv", STORAGES)
def test_an_array_mask_that_says_causal_gives_what_causal_gives(kv):
    mx.random.seed(2)
    caches = [STORAGES[kv](config(), 64) for _ in range(3)]
    for tokens in (30, 1, 12, 3):
        new = random_tokens(tokens)
        asked = [None, caches[1].make_mask(tokens, return_array=True)]
        if asked[1] is not None:
            asked.append(mx.where(asked[1], 0.0, -1e30))
        outs = [
            step(cache, *new, mask="ask" if mask is None else mask)
            for cache, mask in zip(caches, [*asked, None], strict=False)
        ]
        for out in outs[1:]:
            np.testing.assert_allclose(np.array(outs[0]), np.array(out), atol=1e-5)
    assert kept(caches[0]) == kept(caches[1]) == kept(caches[2])
    assert held(caches[0]) == held(caches[1]) == held(caches[2])


def test_a_copy_goes_its_own_way_and_shares_whole_segments():
    cache = filled(chunks=(700, 1))
    twin = cache.copy()
    assert addresses(cache.archive)[:4] == addresses(twin.archive)[:4]
    mx.random.seed(8)
    more = [random_tokens(tokens) for tokens in (1, 20)]
    for new in more:
        mx.eval(step(twin, *new))
    assert (cache.offset, cache.archive.length) == (701, 701)
    for new in more:
        mx.eval(step(cache, *new))
    assert same(cache, twin)


def test_what_is_evaluated_after_a_chunk_has_the_segments_as_they_were():
    cache = filled(chunks=(600,))
    before = addresses(cache.archive)
    for _ in range(3):
        mx.eval(step(cache, *random_tokens(50)), cache.arrays)
    after = cache.archive.arrays
    assert addresses(cache.archive)[:4] == before[:4]
    assert [a.shape[2] for a in after] == [256, 256, 256, 256, 238, 238]


def test_tokens_taken_back_before_an_eviction_leave_the_archive():
    cache = filled(chunks=(10,))
    mx.random.seed(4)
    more = random_tokens(8)
    mx.eval(step(cache, *more))
    assert cache.trim(8) == 8
    assert cache.archive.length == 10
    fresh = filled(chunks=(10,)).archive.arrays
    assert all(mx.array_equal(*both) for both in zip(cache.archive.arrays, fresh, strict=True))
    mx.eval(step(cache, *more))
    assert cache.archive.length == 18


def test_a_limit_drops_the_oldest_segments_and_says_so_once():
    token = 2 * (2 * 64 * 4 + 4)
    settings = config(archive_bits=16, limit=600 * token)
    with pytest.warns(H2ORecallWarning, match="limit = .* its oldest tokens") as caught:
        cache = filled(settings, chunks=(300, 301, 40, 700))
    assert len(caught) == 1
    assert (cache.archive.first, cache.archive.length) == (768, 1341)
    assert cache.archive.nbytes <= settings.recall.limit
    one_by_one = filled(settings, chunks=(300, *[1] * 341, 700))  # warnings are errors
    assert one_by_one.archive.first == 768
    held_positions = {p for heads in held(cache) for head in heads for p in head}
    assert min(held_positions) >= 768


def test_tokens_are_not_taken_back_from_an_archive_that_dropped_its_oldest():
    settings = H2OConfig(700, recall=H2ORecall(archive_bits=16, limit=300 * 2 * 516))
    with pytest.warns(H2ORecallWarning):
        cache = filled(settings, chunks=(600,))
    assert cache.archive.first == 512
    assert (cache.is_trimmable(), cache.trim(200)) == (False, 0)


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("backend", [reference, fast])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_keys_that_are_not_finite_never_come_back(poison, backend, bits):
    """Though all else of them is what every query asks for."""
    mx.random.seed(7)
    cache = H2OKVCache(config(rows=7, spread=0, archive_bits=bits), backend)
    marked = mx.array([3, 8, 11])
    wanted = mx.ones((64,))
    for tokens in (30, 12, 1, 9, 9):
        _, keys, values = random_tokens(tokens)
        if cache.offset == 0:
            here = (mx.arange(tokens)[:, None] == marked).any(axis=1, keepdims=True)
            keys = mx.where(here, wanted, 0.1 * keys)
            keys = mx.where(here & (mx.arange(64) == 20), poison, keys)
        queries = mx.broadcast_to(wanted, (1, 4, tokens, 64))
        mx.eval(step(cache, queries, keys, values))
        archived = cache.archive.rows(0, 30)[0]
        finite = mx.isfinite(archived).all(axis=-1)
        assert mx.array_equal(
            finite[0, 0], mx.logical_not((mx.arange(30)[:, None] == marked).any(1))
        )
    assert cache.recalled > 0
    assert not {p for head in held(cache)[0] for p in head} & set(marked.tolist())


def test_a_model_that_is_not_routed_goes_on_without_recall_and_is_told_once():
    mx.random.seed(6)
    cache, plain = H2OKVCache(config()), H2OKVCache(H2OConfig(24, **SIZES))
    new = [random_tokens(tokens)[1:] for tokens in (30, 1, 9)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for keys, values in new:
            rows = cache.update_and_fetch(keys, values)
            assert rows[0].shape[2] >= keys.shape[2]
        cache.settle()
    codes = [each.message.code for each in caught]
    assert codes.count("recall_not_asked") == 1
    assert cache.archive is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "expects_scores", False)
        for keys, values in new:
            plain.update_and_fetch(keys, values)
        plain.settle()
    assert kept(cache) == kept(plain)
    assert "+recall" not in cache.header[0]


def test_rows_that_attention_would_have_got_are_those_in_use_and_the_new_ones():
    cache = filled()
    old = cache.keys
    _, keys, values = random_tokens(6)
    fetched, _ = cache.update_and_fetch(keys, values)
    np.testing.assert_array_equal(np.array(fetched), np.array(mx.concatenate([old, keys], 2)))
    assert (cache.offset, cache.size()) == (58, 24)


def test_head_dims_that_no_group_divides_need_16_bits():
    keys = mx.zeros((1, 1, 4, 40))
    with pytest.raises(H2OConfigError) as caught:
        H2OKVCache(config()).update_and_fetch(keys, keys)
    assert caught.value.code == "archive_group"
    H2OKVCache(config(archive_bits=16)).update_and_fetch(keys, keys)


def test_only_the_named_layers_recall_and_sliding_ones_stay_what_they_are():
    model = small_model("gemma3_text")
    plain = make_h2o_cache(model, H2OConfig(24, **SIZES))
    kinds = [type(cache) for cache in plain]
    evicting = [i for i, cache in enumerate(plain) if isinstance(cache, H2OKVCache)]
    assert 0 < len(evicting) < len(plain)
    caches = make_h2o_cache(model, config(layers=(evicting[-1],)))
    assert [type(cache) for cache in caches] == kinds
    recalls = [i for i in evicting if caches[i].config.recall is not None]
    assert recalls == evicting[-1:]
    sliding = next(i for i in range(len(plain)) if i not in evicting)
    with pytest.raises(H2OModelError) as caught:
        make_h2o_cache(model, config(layers=(sliding,)))
    assert (caught.value.code, caught.value.values["layer"]) == ("recall_layers", sliding)


def test_a_model_whose_attention_does_not_pass_through_the_cache_is_refused_by_name():
    model = small_model("stablelm")
    with pytest.raises(H2OModelError) as caught:
        make_h2o_cache(model, config())
    assert caught.value.code == "recall_needs_scores"
    assert caught.value.code == "recall_needs_scores"
    with pytest.warns(H2OScoresMissingWarning):
        make_h2o_cache(model, H2OConfig(24, **SIZES))
