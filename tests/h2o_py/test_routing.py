"""Routing of mlx_lm's models: installed, removed, and only for caches that ask."""

import importlib
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models import base, llama, qwen3
from mlx_lm.models.cache import KVCache, QuantizedKVCache

from h2o_py import fast, routing
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from tests.h2o_py.cases import largest_difference, random_tokens
from tests.processes import output_of

NAME = "scaled_dot_product_attention"


@pytest.fixture(autouse=True)
def unrouted_afterwards():
    yield
    routing.remove_routing()


def test_installing_reaches_models_imported_before_and_after():
    sys.modules.pop("mlx_lm.models.gemma", None)
    routing.install_routing()
    later = importlib.import_module("mlx_lm.models.gemma")
    for module in (base, llama, qwen3, later):
        assert getattr(module, NAME) is routing.routed_attention
    assert routing.routing_installed()


def test_removing_restores_every_module_and_both_are_idempotent():
    upstream = getattr(llama, NAME)
    routing.install_routing()
    routing.install_routing()
    routing.remove_routing()
    routing.remove_routing()
    assert getattr(llama, NAME) is upstream
    assert getattr(base, NAME) is upstream
    assert not routing.routing_installed()


def test_other_caches_are_served_as_before():
    q, k, v = random_tokens(5)
    cases = [None, KVCache(), QuantizedKVCache(group_size=64, bits=8)]
    for cache in cases:
        keys, values = (k, v) if cache is None else cache.update_and_fetch(k, v)
        arguments = {"cache": cache, "scale": 0.125, "mask": "causal"}
        routing.install_routing()
        routed = getattr(qwen3, NAME)(q + 0, keys, values, **arguments)
        routing.remove_routing()
        plain = getattr(qwen3, NAME)(q + 0, keys, values, **arguments)
        assert largest_difference(routed, plain) == 0


def test_a_cache_that_asks_for_scores_gets_the_logits():
    class Listening(KVCache):
        def update_scores(self, scores):
            self.scores = scores

    routing.install_routing()
    cache = Listening()
    q, k, v = random_tokens(5)
    keys, values = cache.update_and_fetch(k, v)
    out = getattr(llama, NAME)(q, keys, values, cache=cache, scale=0.125, mask="causal")
    expected, scores = fast.scaled_dot_product_attention_with_scores(
        q, k, v, scale=0.125, mask="causal"
    )
    assert cache.scores.shape == (4 * 5, 5)
    assert largest_difference(cache.scores, scores) == 0
    assert largest_difference(out, expected) == 0


def test_keys_that_the_model_changed_are_attended_as_given():
    routing.install_routing()
    cache = H2OKVCache(H2OConfig(64))
    q, k, v = random_tokens(5)
    keys, values = cache.update_and_fetch(k, v)
    options = {"scale": 0.125, "mask": "causal"}
    doubled = getattr(llama, NAME)(q, 2 * keys, values, cache=cache, **options)
    plain = mx.fast.scaled_dot_product_attention(q, 2 * keys, values, **options)
    assert largest_difference(doubled, plain) < 1e-6
    assert [array() for array in cache.awaited] == [keys, values]


def test_importing_the_package_imports_neither_mlx_nor_mlx_lm():
    code = (
        "import sys, h2o_py; h2o_py.H2OConfig(512);"
        "assert not {'mlx', 'mlx_lm'} & set(sys.modules)"
    )
    output_of(sys.executable, "-c", code, cwd=Path("/"))
