"""Contenders: their names, their caches on a small model, and their sizes."""

import mlx.core as mx
import pytest

from h2o_pack.cli.options import CONTENDERS
from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation.contenders import NAMES, CacheFactory, find_contender
from h2o_pack.measure.evaluation.preset import load_preset
from h2o_pack.memory.storages import STORAGES
from h2o_py.budgets import Budgets, LayerBudget
from h2o_py.config import H2ORecall
from tests.bridge.measure.evaluating import random_model
from tests.nightly import nightly_except

pytestmark = pytest.mark.usefixtures("routed")


@pytest.mark.parametrize("storage", nightly_except(["16", "heavy=4,recent=8"], STORAGES))
def test_bytes_are_what_a_full_cache_allocates(storage):
    factory = CacheFactory(random_model())
    contender = find_contender(f"default/{storage}").with_rows(72)
    caches = factory.caches(contender)
    ids = mx.random.randint(1, 1000, (1, 80))
    for begin, end in ((0, 70), *((t, t + 1) for t in range(70, 80))):
        mx.eval(random_model()(ids[:, begin:end], cache=caches))
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


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_makes_caches_that_read(name):
    caches = CacheFactory(random_model()).caches(find_contender(name).with_rows(64))
    mx.eval(random_model()(mx.ones((1, 8), mx.int32), cache=caches))
    assert [cache.offset for cache in caches] == [8, 8]


def test_budgets_by_layer_are_those_of_the_user():
    budgets = Budgets((LayerBudget(6, 14), LayerBudget(16, 4)))
    contender = find_contender("default+budgets").with_rows(24)
    caches = CacheFactory(random_model(), budgets).caches(contender)
    assert [cache.config.recent_budget for cache in caches] == [14, 4]
    with pytest.raises(UserError, match="needs budgets by layer"):
        CacheFactory(random_model()).caches(contender)


def test_names_say_when_a_contender_recalls():
    plain, recalling, tight = map(
        find_contender, ("default", "default+recall", "paper+recall[reach=16 ask=8]")
    )
    assert plain.recall is None
    assert (recalling.recall, recalling.title) == (H2ORecall(), "H2O, the default, recall")
    assert (tight.recall.reach, tight.recall.ask) == (16, 8)
    assert tight.title == "H2O, paper, recall (ask 8, reach 16)"
    assert find_contender("default/k8v4+budgets+recall").by_layer
    for name in ("default+recal", "default+recall+budgets", "default+recall4"):
        with pytest.raises(UserError, match="there is no contender"):
            find_contender(name)


def test_a_contender_has_the_one_name_of_its_storage():
    text = "default/mixed+recall,full/8,default/recent=4,heavy=8"
    names = CONTENDERS.convert(text, None, None)
    contenders = [find_contender(name) for name in names]
    assert [(contender.name, contender.title) for contender in contenders] == [
        ("default/heavy=8,recent=16+recall", "H2O, the default, kv heavy=8,recent=16, recall"),
        ("full/8", "full cache, kv 8"),
        ("default/heavy=8,recent=4", "H2O, the default, kv heavy=8,recent=4"),
    ]
    changed = load_preset("text").changed(contenders=names)
    assert changed.experiments[0].groups[0].contenders == tuple(c.name for c in contenders)
