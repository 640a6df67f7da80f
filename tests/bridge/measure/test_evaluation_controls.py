"""Contenders' caches on a real model: a window, all policies, and their sizes."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import RotatingKVCache

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation.contenders import CacheFactory, find_contender, policies
from h2o_pack.memory.storages import STORAGES
from tests.bridge.measure.evaluating import random_model

pytestmark = pytest.mark.usefixtures("routed")


def feed(caches, tokens=48, batch=2, chunk=8):
    """Give the random model so many tokens; returns the last logits."""
    mx.random.seed(1)
    ids = mx.random.randint(1, 1000, (batch, tokens))
    logits = random_model()(ids[:, :chunk], cache=caches)
    for t in range(chunk, tokens):
        logits = random_model()(ids[:, t : t + 1], cache=caches)
    mx.eval(logits, [cache.state for cache in caches])
    return logits


def window(rows=16, pinned=()):
    name = "sinks_recent+pinned" if pinned else "sinks_recent"
    return CacheFactory(random_model()).caches(find_contender(name).with_rows(rows), pinned)


def kept(cache):
    """Sorted positions [B, Hkv, C]."""
    return mx.sort(cache.positions, axis=-1).tolist()


def test_a_window_keeps_the_newest_tokens_and_the_sinks():
    caches = window()
    feed(caches)
    for cache in caches:
        assert kept(cache) == [[[*range(4), *range(36, 48)]] * 2] * 2


def test_a_window_keeps_pinned_tokens_too():
    caches = window(20, pinned=((0, 7),))
    feed(caches)
    assert kept(caches[0]) == [[[*range(7), *range(35, 48)]] * 2] * 2


def test_a_window_predicts_what_mlx_lm_s_rotating_cache_does():
    rotating = [RotatingKVCache(16, keep=4) for _ in range(2)]
    assert mx.allclose(feed(window()), feed(rotating), atol=0.05).item()


@pytest.mark.parametrize("storage", STORAGES)
def test_bytes_are_what_a_full_cache_allocates(storage):
    factory = CacheFactory(random_model())
    contender = find_contender(f"default/{storage}").with_rows(72)
    caches = factory.caches(contender)
    ids = mx.random.randint(1, 1000, (1, 80))
    for t in range(80):
        mx.eval(random_model()(ids[:, t : t + 1], cache=caches))
    mx.eval([cache.state for cache in caches])
    assert factory.bytes(contender, 80) == sum(cache.nbytes for cache in caches)


@pytest.mark.parametrize("name", ["rotating", *(f"default/{s}" for s in STORAGES)])
def test_a_byte_budget_buys_as_many_rows_as_fit_and_not_one_more(name):
    factory = CacheFactory(random_model())
    limit = factory.bytes(find_contender("default").with_rows(256), 1024)
    contender = find_contender(name)
    rows = factory.rows_for(contender, limit, 1024)
    assert factory.bytes(contender.with_rows(rows), 1024) <= limit
    assert factory.bytes(contender.with_rows(rows + 1), 1024) > limit
    assert rows >= 256


@pytest.mark.parametrize("name", policies())
def test_every_policy_makes_caches_that_read(name):
    factory = CacheFactory(random_model(), budgets=None)
    contender = find_contender(name)
    if policies()[name].by_layer:
        with pytest.raises(UserError, match="budgets that differ from layer to layer"):
            factory.caches(contender.with_rows(64))
        return
    caches = factory.caches(contender.with_rows(64))
    mx.eval(random_model()(mx.ones((1, 8), mx.int32), cache=caches))
    assert [cache.offset for cache in caches] == [8, 8]


def test_the_published_budgets_are_those_of_its_table_4():
    names = ("paper_recent", "paper_balanced", "paper_heavy")
    configs = [find_contender(name).with_rows(256).config() for name in names]
    budgets = [(c.heavy_budget, c.recent_budget, c.sink_size) for c in configs]
    assert budgets == [(32, 220, 4), (64, 188, 4), (128, 124, 4)]
    assert {(c.score, c.decay, c.novelty) for c in configs} == {("abs_logit", 0.95, 0.0)}
