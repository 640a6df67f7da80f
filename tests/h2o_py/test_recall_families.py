"""Recall in models with sliding windows, recurrent states, sinks, and shared rows."""

import dataclasses

import mlx.core as mx
import pytest

from h2o_pack.parity import reference
from h2o_pack.parity.reference.recall import most_recall_rows
from h2o_py import H2ORecall
from h2o_py.budgets import Budgets, LayerBudget
from h2o_py.cache import join
from h2o_py.models import make_h2o_cache
from tests.h2o_py.cases import kept, largest_difference
from tests.h2o_py.small_models import small_model
from tests.h2o_py.test_model_families import ANSWER, PROMPT, SMALL, evicting, generated

# In few bits a key at the edge of two codes may take either; logits differ by a code's step.
RECALL = dataclasses.replace(SMALL, recall=H2ORecall(ask=5, every=7, archive_bits=16))
FAMILIES = ("gemma3_text", "gemma4_text", "qwen3_next", "falcon_h1", "gpt_oss", "deepseek_v2")

pytestmark = pytest.mark.usefixtures("routed")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_evicting_layer_recalls_and_the_core_gives_what_the_reference_gives(family):
    model = small_model(family)
    ours, oracle = make_h2o_cache(model, RECALL), make_h2o_cache(model, RECALL)
    for cache in evicting(oracle):
        cache.backend = reference
    join(evicting(oracle))
    tokens, logprobs = generated(model, ours)
    again, expected = generated(model, oracle)
    assert tokens == again
    assert largest_difference(logprobs, expected) < 1e-3
    for cache, other in zip(evicting(ours), evicting(oracle), strict=True):
        assert cache.recalled == other.recalled > 0
        assert kept(cache) == kept(other)
        assert cache.archive.length == PROMPT + ANSWER


@pytest.mark.parametrize("one_choice", [False, True])
def test_layers_with_rows_of_their_own_recall_by_their_own_sizes(one_choice):
    model = small_model("qwen3")
    budgets = Budgets((None, LayerBudget(4, 10, 20), LayerBudget(60, 10, 80), None))
    caches = make_h2o_cache(model, RECALL, budgets=budgets, one_choice=one_choice)
    asked = [cache.config.recall_rows for cache in caches]
    assert asked == [16, 6, 40, 16]
    generated(model, caches)
    held = [int(mx.max(cache.ledger.held.sum(axis=-1)).item()) for cache in caches]
    if one_choice:  # what a head chooses for itself comes besides, where there is room
        most = [most_recall_rows(cache.config) for cache in caches]
        assert all(a <= b <= c for a, b, c in zip(asked, held, most, strict=True))
    else:
        assert held == asked
