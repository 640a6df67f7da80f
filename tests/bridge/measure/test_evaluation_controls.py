"""Control policies on the real cache, and the sizes of all contenders."""

from __future__ import annotations

import mlx.core as mx
import pytest
from mlx_lm.models.cache import RotatingKVCache

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation.contenders import (
    CacheFactory,
    OldestCache,
    RandomCache,
    SabotagedCache,
    find_contender,
    policies,
)
from h2o_pack.memory.storages import STORAGES
from h2o_py.config import H2OConfig
from tests.bridge.measure.evaluating import random_model

pytestmark = pytest.mark.usefixtures("routed")

CONFIG = H2OConfig(16, sink_size=2, heavy_budget=8, recent_budget=4)


def feed(make, tokens=48, batch=2, chunk=8):
    """A model's caches after so many tokens; and the last logits."""
    mx.random.seed(1)
    model = random_model()
    ids = mx.random.randint(1, 1000, (batch, tokens))
    caches = [make(layer) for layer in range(2)]
    logits = model(ids[:, :chunk], cache=caches)
    for t in range(chunk, tokens):
        logits = model(ids[:, t : t + 1], cache=caches)
    mx.eval(logits, [cache.state for cache in caches])
    return caches, logits


def kept(cache):
    """Sorted positions [B, Hkv, C]."""
    return mx.sort(cache.positions, axis=-1).tolist()


def test_the_oldest_go_but_for_the_sinks():
    config = H2OConfig(16, sink_size=2, heavy_budget=0, recent_budget=1)
    caches, _ = feed(lambda _: OldestCache(config))
    for cache in caches:
        assert kept(cache) == [[[0, 1, *range(34, 48)]] * 2] * 2


def test_sinks_and_recent_predict_what_mlx_lm_s_rotating_cache_does():
    config = H2OConfig(16, sink_size=2, heavy_budget=0, recent_budget=1)
    _, ours = feed(lambda _: OldestCache(config))
    _, theirs = feed(lambda _: RotatingKVCache(16, keep=2))
    assert mx.allclose(ours, theirs, atol=0.05).item()


def test_random_rows_go_but_for_protected_ones():
    pinned = H2OConfig(20, sink_size=2, heavy_budget=8, recent_budget=4, pinned=((5, 8),))
    caches, _ = feed(lambda i: RandomCache(pinned, i))
    held = {0, 1, 5, 6, 7, 44, 45, 46, 47}
    rows = [row for cache in caches for heads in kept(cache) for row in heads]
    assert all(held <= set(row) for row in rows)
    assert len({tuple(row) for row in rows}) == len(rows)


def test_random_rows_are_the_same_ones_for_a_seed():
    one, _ = feed(lambda i: RandomCache(CONFIG, i))
    again, _ = feed(lambda i: RandomCache(CONFIG, i))
    other, _ = feed(lambda i: RandomCache(CONFIG, 100 + i))
    assert kept(one[0]) == kept(again[0])
    assert kept(one[0]) != kept(other[0])


def test_sabotage_evicts_the_row_that_the_policy_would_keep_longest():
    caches, _ = feed(lambda _: SabotagedCache(CONFIG), tokens=20)
    ledger = caches[0].ledger
    scores = mx.maximum(ledger.scores, 0)
    share = scores / scores.max(axis=-1, keepdims=True) + CONFIG.novelty * ledger.novelty
    free = (ledger.positions >= 2) & (ledger.positions < 20 + 1 - 4)
    best = mx.argmax(mx.where(free, share, -1.0), axis=-1)
    assert ledger.victim.tolist() == best.tolist()


def test_a_chunk_that_a_control_cannot_evict_from_is_refused():
    with pytest.raises(ValueError, match="token by token"):
        feed(lambda i: RandomCache(CONFIG, i), chunk=17)


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
    who = find_contender(name)
    rows = factory.rows_for(who, limit, 1024)
    assert factory.bytes(who.with_rows(rows), 1024) <= limit
    assert factory.bytes(who.with_rows(rows + 1), 1024) > limit
    assert rows >= 256


def test_the_budget_of_16_bit_rows_buys_just_those():
    factory = CacheFactory(random_model())
    limit = factory.bytes(find_contender("default").with_rows(100), 1024)
    assert factory.rows_for(find_contender("default"), limit, 1024) == 100


@pytest.mark.parametrize("name", policies())
def test_every_policy_makes_caches_that_read(name):
    factory = CacheFactory(random_model(), budgets=None)
    who = find_contender(name)
    if policies()[name].by_layer:
        with pytest.raises(UserError, match="budgets that differ from layer to layer"):
            factory.caches(who.with_rows(64))
        return
    caches = factory.caches(who.with_rows(64))
    mx.eval(random_model()(mx.ones((1, 8), mx.int32), cache=caches))
    assert [cache.offset for cache in caches] == [8, 8]


def test_the_published_budgets_are_those_of_its_table_4():
    names = ("paper_recent", "paper_balanced", "paper_heavy")
    configs = [find_contender(name).with_rows(256).config() for name in names]
    budgets = [(c.heavy_budget, c.recent_budget, c.sink_size) for c in configs]
    assert budgets == [(32, 220, 4), (64, 188, 4), (128, 124, 4)]
    assert {(c.score, c.decay, c.novelty) for c in configs} == {("abs_logit", 0.95, 0.0)}
