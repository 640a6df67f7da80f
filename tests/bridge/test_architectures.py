from __future__ import annotations

import importlib

import mlx.core as mx
import pytest

from h2o_pack.facts import architectures
from h2o_py import H2OConfig, H2OKVCache, install_routing, remove_routing

CONFIG = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "moe_intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 50,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "partial_rotary_factor": 1.0,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_local_experts": 4,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "logits_scaling": 1.0,
    "attention_multiplier": 0.35,
    "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0,
}


@pytest.fixture
def routed():
    install_routing()
    yield
    remove_routing()


@pytest.mark.parametrize("model_type", sorted(architectures()))
def test_every_supported_model_type_is_routed_through_the_cache(model_type, routed):
    family = architectures()[model_type]
    assert family.measured
    module = importlib.import_module(f"mlx_lm.models.{family.mlx_lm}")
    arguments = module.ModelArgs.from_dict({**CONFIG, "model_type": model_type})
    model = module.Model(arguments)
    caches = [H2OKVCache(H2OConfig(16)) for _ in model.layers]
    tokens = mx.random.randint(0, CONFIG["vocab_size"], (1, 24))
    for chunk in (tokens[:, :20], tokens[:, 20:21], tokens[:, 21:]):
        logits = model(chunk, cache=caches)
    mx.eval(logits)
    assert mx.all(mx.isfinite(logits)).item()
    for cache in caches:
        assert cache.offset == 24
        assert mx.all(cache.scores >= 0).item()
        assert mx.all(cache.positions >= 0).item()


def test_upstream_still_has_a_plain_cache_for_every_supported_model_type():
    from mlx_lm.models.cache import KVCache, make_prompt_cache

    for model_type, family in architectures().items():
        module = importlib.import_module(f"mlx_lm.models.{family.mlx_lm}")
        model = module.Model(module.ModelArgs.from_dict({**CONFIG, "model_type": model_type}))
        assert {type(cache) for cache in make_prompt_cache(model)} == {KVCache}, model_type
