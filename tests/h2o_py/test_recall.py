"""Recall through the cache: which layers, what copies share, when it ends."""

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
from tests.h2o_py.cases import kept, random_tokens, step
from tests.h2o_py.small_models import small_model

RECALL = H2ORecall(ask=4)
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


def same(first, second):
    """Whether two caches keep and have archived the same."""
    state = zip(first.arrays, second.arrays, strict=True)
    return first.header == second.header and all(mx.array_equal(a, b) for a, b in state)


def addresses(archive):
    """Where the elements of its arrays lie in memory."""
    mx.eval(archive.arrays)
    return [np.array(a, copy=False).ctypes.data for a in archive.arrays]


def test_copies_share_whole_segments_and_later_tokens_leave_them_as_they_were():
    cache = filled(chunks=(600,))
    segments = addresses(cache.archive)[:2]
    twin = cache.copy()
    for _ in range(3):
        mx.eval(step(cache, *random_tokens(50)), cache.arrays)
    assert [a.shape[2] for a in cache.archive.arrays] == [256, 256, 238]
    assert (twin.offset, twin.archive.length) == (600, 600)
    assert addresses(cache.archive)[:2] == addresses(twin.archive)[:2] == segments


def test_a_limit_drops_the_oldest_segments_and_says_so_once():
    token = 2 * 2 * 64 * 4
    settings = config(archive_bits=16, limit=600 * token)
    with pytest.warns(H2ORecallWarning, match="limit and drops its oldest tokens") as records:
        cache = filled(settings, chunks=(300, 301, 40, 700))
    assert len(records) == 1
    assert (cache.archive.first, cache.archive.length) == (768, 1341)
    assert cache.archive.nbytes <= settings.recall.limit
    one_by_one = filled(settings, chunks=(300, *[1] * 341, 700))  # warnings are errors
    oracle = filled(settings, (300, 301, 40, 700), lambda c: H2OKVCache(c, reference))
    assert one_by_one.archive.first == oracle.archive.first == 768


def test_tokens_are_not_taken_back_from_an_archive_that_dropped_its_oldest():
    settings = H2OConfig(700, recall=H2ORecall(archive_bits=16, limit=300 * 2 * 512))
    with pytest.warns(H2ORecallWarning):
        cache = filled(settings, chunks=(600,))
    assert cache.archive.first == 512
    assert (cache.is_trimmable(), cache.trim(200)) == (False, 0)


def test_an_archive_that_its_limit_has_emptied_is_not_asked():
    with pytest.warns(H2ORecallWarning):
        cache = filled(config(limit=1), chunks=(516, 1, 30))  # 512 tokens before those that ask
    assert (cache.archive.first, cache.archive.length) == (512, 547)


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("backend", [reference, fast])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_keys_that_are_not_finite_are_never_read(poison, backend, bits):
    """Though all else of them is what every query asks for."""
    mx.random.seed(7)
    cache = H2OKVCache(config(reach=7, archive_bits=bits), backend)
    is_odd = (mx.arange(30)[:, None] == mx.array([3, 8, 11])).any(axis=1, keepdims=True)
    for tokens in (30, 60, 1, 9):
        _, keys, values = random_tokens(tokens)
        if cache.offset == 0:
            keys = mx.where(is_odd, 1.0, 0.1 * keys)
            keys = mx.where(is_odd & (mx.arange(64) == 20), poison, keys)
            values = mx.where(is_odd, 1e9, values)
        mx.eval(step(cache, mx.ones((1, 4, tokens, 64)), keys, values))
        finite = mx.isfinite(cache.archive.rows(0, 30)[0]).all(axis=-1)
        assert mx.array_equal(finite[0, 0], ~is_odd[:, 0])
    assert not {p for head in kept(cache)[0] for p in head} & {3, 8, 11}
    for tokens in (1, 9):
        _, keys, values = random_tokens(tokens)
        assert (mx.abs(step(cache, mx.ones((1, 4, tokens, 64)), keys, values)) < 10).all()


def test_a_model_that_is_not_routed_goes_on_without_recall_and_is_told_once():
    mx.random.seed(6)
    cache, plain = H2OKVCache(config()), H2OKVCache(H2OConfig(24, **SIZES))
    new = [random_tokens(tokens)[1:] for tokens in (30, 1, 9)]
    plain.expects_queries = False
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        for keys, values in new:
            rows = cache.update_and_fetch(keys, values)
            assert rows[0].shape[2] >= keys.shape[2]
            plain.update_and_fetch(keys, values)
        cache.settle()
        plain.settle()
    codes = [warning.message.code for warning in records]
    assert codes.count("recall_not_asked") == 1
    assert cache.archive is None
    assert kept(cache) == kept(plain)
    assert "archive." not in cache.header


def test_head_dims_that_no_group_divides_need_16_bits():
    keys = mx.zeros((1, 1, 4, 40))
    with pytest.raises(H2OConfigError) as error:
        H2OKVCache(config()).update_and_fetch(keys, keys)
    assert error.value.code == "archive_group"
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
    with pytest.raises(H2OModelError) as error:
        make_h2o_cache(model, config(layers=(sliding,)))
    assert (error.value.code, error.value.values["layer"]) == ("recall_layers", sliding)


def test_a_model_whose_attention_does_not_pass_through_the_cache_is_refused_by_name():
    model = small_model("stablelm")
    with pytest.raises(H2OModelError) as error:
        make_h2o_cache(model, config())
    assert error.value.code == "recall_needs_scores"
    with pytest.warns(H2OScoresMissingWarning):
        make_h2o_cache(model, H2OConfig(24, **SIZES))
