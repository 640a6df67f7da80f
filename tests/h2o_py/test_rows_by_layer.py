"""Layers with different numbers of rows: every family reads on, or is refused by name."""

from __future__ import annotations

import warnings

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache

from h2o_py.budgets import Budgets, LayerBudget
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigWarning
from h2o_py.families import shares_one_mask, why_unfit
from h2o_py.models import make_h2o_cache
from h2o_py.routing import install_routing, remove_routing, routing_installed
from tests.h2o_py.small_models import FAMILIES, VOCABULARY, small_model

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
COMMON = 24
CHUNKS = (10, 30, 1, 1, 15, 1)
"""One fills some layers and not others, others are longer than all or come after eviction."""


def alternating(model):
    """16 and 48 rows in turns in the layers that evict; and how many rows each has."""
    layers, rows = [], []
    for i, cache in enumerate(make_prompt_cache(model)):
        plain = type(cache) is KVCache
        size = 48 if i % 2 else 16
        layers.append(LayerBudget(size // 2, size // 4, size) if plain else None)
        rows.append(size if plain else None)
    return Budgets(tuple(layers)), rows


def read(model, caches):
    """Logits of the last token of each chunk."""
    installed = routing_installed()
    install_routing()
    try:
        logits, begin = [], 0
        for tokens in CHUNKS:
            ids = mx.arange(begin, begin + tokens)[None] * 7 % VOCABULARY
            logits.append(model(ids, cache=caches)[:, -1])
            mx.eval(logits[-1])
            begin += tokens
    finally:
        if not installed:
            remove_routing()
    return mx.concatenate(logits).astype(mx.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_reads_on_or_is_refused(family):
    model = small_model(family)
    budgets, rows = alternating(model)
    if why_unfit(model) is not None or not any(rows):
        pytest.skip("no H2O cache serves it")
    if shares_one_mask(model):
        with pytest.raises(ValueError) as caught:
            make_h2o_cache(model, H2OConfig(COMMON), budgets=budgets)
        assert caught.value.code == "one_mask"
        return
    caches = make_h2o_cache(model, H2OConfig(COMMON), budgets=budgets)
    assert mx.isfinite(read(model, caches)).all().item()
    for cache, size in zip(caches, rows, strict=True):
        if size is not None:
            assert (cache.max_size, cache.size()) == (size, size)


def test_settings_of_one_layer_alone_warn_as_ever():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Budgets((LayerBudget(8, 4, 16),)).config_of(0, H2OConfig(512))
    assert [warning.category for warning in caught] == [H2OConfigWarning]
