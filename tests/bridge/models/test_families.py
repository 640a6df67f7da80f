"""Each family's layers are what mlx_lm's own caches of a small random model are."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import mlx.core as mx
import mlx_lm.models
import mlx_lm.utils
import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, make_prompt_cache

from h2o_pack.architectures import FAMILIES, Wrapped
from h2o_pack.architectures.fields import keys_of
from h2o_pack.architectures.model import Layer, ModelConfig
from h2o_pack.errors import UserError
from h2o_pack.facts import architectures, refused_architectures, upstream_versions
from h2o_pack.hub.resolve import resolve
from h2o_pack.models.config import describe, read_like
from h2o_pack.package.prepare import prepare
from h2o_pack.spec import CacheSpec, ModelSpec, PackageSpec
from h2o_py import H2OConfig, H2OKVCache, install_routing, make_h2o_cache, remove_routing
from tests.bridge.models.checkpoints import folder_of
from tests.bridge.models.small_configs import VOCABULARY, small_config, small_model
from tests.messages import says

NEEDS_METAL = {"bitnet"}
MEASURED = sorted(set(architectures()) - NEEDS_METAL)
HALF = {
    "baichuan_m1": {},
    "falcon_h1": {},
    "gemma3_text": {},
    "lfm2": {},
    "qwen3_5": {},
    "granitemoehybrid": {"num_local_experts": None, "num_experts": None},
    "jamba": {"num_experts": 1},
    "nemotron_h": {"hybrid_override_pattern": "M*-M"},
}
"""Without mixtures: MLX multiplies gathered matrices in float32 only on a CPU."""
KINDS = {"KVCache": "full", "H2OKVCache": "full", "RotatingKVCache": "sliding"}
ONLY_HERE = {"max_position_embeddings", "max_context_length"}
"""What the plan reads and mlx_lm need not."""
NO_MLX_LM = {
    "__init__", "activations", "base", "bitlinear_layers", "cache", "gated_delta", "mla",
    "pipeline", "rope_utils", "ssm", "switch_layers",
}  # fmt: skip


def config_of(model_type: str, dtype: str = "float32", **changes: object) -> ModelConfig:
    document = small_config(model_type, **changes)
    return describe(document, "config.json", stored_dtype=dtype).config


def run(model, caches) -> None:
    tokens = mx.random.randint(0, VOCABULARY, (1, 24))
    for chunk in (tokens[:, :20], tokens[:, 20:21], tokens[:, 21:]):
        logits = model(chunk, cache=caches)
    mx.eval(logits, [cache.state for cache in caches])
    assert mx.all(mx.isfinite(logits)).item()


def members(cache) -> list:
    return list(cache.caches) if isinstance(cache, CacheList) else [cache]


def as_layer(cache) -> Layer:
    """Describe what a cache of mlx_lm holds for one sequence."""
    states = [m for m in members(cache) if isinstance(m, ArraysCache)]
    state = sum(array.nbytes for each in states for array in each.cache)
    rows = [m for m in members(cache) if not isinstance(m, ArraysCache)]
    if not rows:
        return Layer("recurrent", state_bytes=state)
    (own,) = rows
    return Layer(
        kind=KINDS[type(own).__name__],
        kv_heads=own.keys.shape[1],
        key_dim=own.keys.shape[3],
        value_dim=own.values.shape[3],
        window=getattr(own, "max_size", 0),
        state_bytes=state,
    )


def with_caches(config: ModelConfig) -> list[Layer]:
    return [layer for layer in config.layers if layer.kind != "none"]


@pytest.mark.parametrize("model_type", MEASURED)
def test_layers_are_what_the_models_own_caches_hold(model_type):
    model = small_model(model_type)
    caches = make_prompt_cache(model)
    run(model, caches)
    config = config_of(model_type)
    assert with_caches(config) == [as_layer(cache) for cache in caches]
    assert len(config.layers) == len(model.layers)
    assert architectures()[model_type].measured


@pytest.mark.parametrize("model_type", HALF)
def test_states_have_the_dtype_of_activations(model_type):
    model = small_model(model_type, mx.bfloat16, **HALF[model_type])
    caches = make_prompt_cache(model)
    run(model, caches)
    config = config_of(model_type, "bfloat16", **HALF[model_type])
    assert with_caches(config) == [as_layer(cache) for cache in caches]


@pytest.fixture
def routed():
    install_routing()
    yield
    remove_routing()


@pytest.mark.parametrize("model_type", MEASURED)
def test_the_layers_called_full_are_those_that_evict(model_type, routed):
    model = small_model(model_type)
    caches = make_h2o_cache(model, H2OConfig(16))
    run(model, caches)
    evicting = [
        [m for m in members(cache) if isinstance(m, H2OKVCache)] != [] for cache in caches
    ]
    assert evicting == [layer.kind == "full" for layer in with_caches(config_of(model_type))]
    for cache in (m for c in caches for m in members(c) if isinstance(m, H2OKVCache)):
        assert cache.offset == 24
        assert mx.all(cache.scores >= 0).item()


def test_a_type_that_needs_metal_makes_no_caches_of_its_own():
    (model_type,) = NEEDS_METAL
    source = Path(mlx_lm.models.__path__[0]) / f"{architectures()[model_type].mlx_lm}.py"
    assert "make_cache" not in source.read_text("utf-8")  # so mlx_lm makes plain ones
    assert config_of(model_type).kinds() == {"full": 4}
    assert not architectures()[model_type].measured


@pytest.mark.parametrize(
    ("model_type", "changes", "width"),
    [
        ("llama", {}, 96),
        ("mixtral", {}, 2 * 96),
        ("qwen3_moe", {}, 2 * 16),
        ("qwen3_moe", {"mlp_only_layers": [0]}, 96),
        ("glm4_moe", {}, 96),
        ("qwen3_next", {}, 2 * 16 + 24),
        ("granitemoehybrid", {}, 2 * 96 + 40),
        ("lille-130m", {}, 256),
        ("gemma4_text", {}, 2 * 96),
        ("gemma4_text", {"num_kv_shared_layers": 0}, 96),
        ("openelm", {}, 256),
    ],
)
def test_the_feed_forward_is_the_widest_that_a_token_passes(model_type, changes, width):
    assert config_of(model_type, **changes).intermediate_size == width


def test_the_width_of_lfm2_is_that_of_its_layers():
    width = small_model("lfm2").layers[0].feed_forward.w1.weight.shape[0]
    assert config_of("lfm2").intermediate_size == width


def test_a_width_that_only_mlx_lm_finds_is_named():
    document = small_config("lfm2", block_ff_dim=None, block_auto_adjust_ff_dim=False)
    found = describe(document, "config.json")
    assert found.config.intermediate_size == document["intermediate_size"] == 96
    assert found.remarks[0].startswith("config.json lacks block_ff_dim: add it")
    assert describe(small_config("lfm2"), "config.json").remarks == ()


def test_the_last_layers_of_gemma_4_keep_nothing_and_share_keys_of_their_type():
    kinds = [layer.kind for layer in config_of("gemma4_text").layers]
    assert kinds == ["sliding", "full"] * 2 + ["none"] * 2
    experts = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2}
    mixture = config_of("gemma4_text", **experts, moe_intermediate_size=16)
    assert (mixture.experts, mixture.experts_per_token) == (4, 2)
    assert mixture.intermediate_size == 2 * 96 + 2 * 16
    said = describe(small_config("gemma4_text", **experts), "config.json").remarks
    assert "only main-2026-08-22 has the experts of this model" in said[0]
    with pytest.raises(UserError) as caught:
        config_of("gemma4_text", num_kv_shared_layers=5)
    says(caught.value)


def test_head_counts_that_gemma_3_leaves_out_are_those_of_mlx_lm():
    document = small_config("gemma3")
    for name in ("num_attention_heads", "num_key_value_heads"):
        del document["text_config"][name]
    found = describe(document, "config.json")
    assert (found.config.heads, found.config.kv_heads) == (8, 4)
    assert "lacks num_attention_heads (mlx_lm takes 8, mlx-swift-lm 4)" in found.remarks[0]
    assert describe(small_config("gemma3"), "config.json").remarks == ()


def test_families_that_give_no_scores_on_the_device_say_so():
    remarks = describe(small_config("gpt_oss"), "config.json").remarks
    assert remarks[0].startswith("mlx-swift-lm's GPTOSS.swift attends outside of the cache")


def test_a_type_that_only_a_later_upstream_has_says_so_and_is_refused_for_others(tmp_path):
    folder = folder_of(tmp_path / "later", model_type="helium")
    (remark,) = resolve(str(folder)).remarks
    assert remark.startswith("of mlx-swift-lm, only main-2026-08-22 has models of this type")
    spec = PackageSpec((ModelSpec(str(folder), CacheSpec(max_kv=64)),))
    with pytest.raises(UserError) as caught:
        prepare(spec, lambda _: None)
    says(caught.value)


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (
            small_config("llama", layer_types=["sliding_attention"] * 4, sliding_window=8),
            "which mlx-swift-lm's Llama.swift and SmolLM3.swift take for layers",
        ),
        (
            small_config("exaone4", sliding_window=8, sliding_window_pattern="LLLG"),
            "Exaone4.swift uses one mask",
        ),
        (
            small_config("lfm2", full_attn_idxs=None, layer_types=["conv"] * 4),
            'no layer of this "lfm2" model attends to the whole context',
        ),
    ],
)
def test_layers_that_upstream_would_not_serve_are_refused(document, what):
    with pytest.raises(UserError) as caught:
        describe(document, "config.json")
    assert what in str(caught.value)


def test_every_type_is_read_by_a_dataclass_and_no_type_is_both_known_and_refused():
    assert set(FAMILIES) == set(architectures())
    assert not set(architectures()) & set(refused_architectures())
    for known in architectures().values():
        assert set(known.upstream_versions) <= set(upstream_versions())
        assert known.like in ("", *architectures())


@pytest.mark.parametrize("model_type", MEASURED)
def test_keys_and_defaults_are_those_that_mlx_lm_states(model_type):
    family = FAMILIES[model_type]
    wrapped = isinstance(family, Wrapped)
    known = architectures()[read_like(model_type)]
    name = {"gemma3": "gemma3_text", "mistral3": "ministral3"}.get(model_type, known.mlx_lm)
    module = importlib.import_module(f"mlx_lm.models.{name}")
    args = getattr(module, "TextModelArgs", module.ModelArgs)
    stated = {each.name: each.default for each in dataclasses.fields(args)}
    read = keys_of(family.reader if wrapped else family, known).values()
    for key, _, default in read:
        assert key in stated or key in ONLY_HERE, key
        if isinstance(default, int) and default and key in stated:
            assert default == stated[key], key


def test_nothing_that_mlx_lm_has_is_unheard_of():
    files = {path.stem for path in Path(mlx_lm.models.__path__[0]).glob("*.py")} - NO_MLX_LM
    known = {*architectures(), *refused_architectures()}
    assert {*files, *mlx_lm.utils.MODEL_REMAPPING} - known == set()
    assert {each.mlx_lm for each in architectures().values()} <= files
