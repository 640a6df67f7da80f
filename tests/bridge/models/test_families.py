"""Each family's layers are what mlx_lm's own caches of a small random model hold."""

import json
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm.models.gemma3_text
import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, make_prompt_cache

from h2o_pack.errors import UserError
from h2o_pack.facts import refused_types, swift_models
from h2o_pack.model import Layer, ModelConfig
from h2o_pack.models.config import describe, types_of_mlx_lm, why_refused
from h2o_pack.models.trial import attempt
from h2o_py import H2OConfig, H2OKVCache, install_routing, make_h2o_cache, remove_routing
from tests.bridge.models.small_configs import VOCABULARY, small_config, small_model
from tests.h2o_py.small_models import COMMON, FAMILIES, RARER
from tests.nightly import nightly_except
from tests.processes import output_of

NEEDS_METAL = {"bitnet"}
SERVED = sorted(set(swift_models()) - NEEDS_METAL)
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
"""Types to try in bfloat16, without mixtures: on a CPU, MLX multiplies gathered matrices only
in float32."""
KINDS = {"KVCache": "full", "H2OKVCache": "full", "RotatingKVCache": "sliding"}
ALL_TYPES = {
    **{name.split()[0]: {**COMMON, **settings} for name, settings in FAMILIES.items()},
    **{name: {**COMMON, **settings} for name, settings in RARER.items()},
}
"""Settings of a small model of each type that small_configs does not have."""
NOT_BUILT = {
    "afm7": "reads? the keys of another layer's cache",
    "deepseek_v32": "selects rows of one cache by their index in another cache",
    "deepseek_v41": "gives a layer a LayerCache",
    "gemma3n": "read the keys of another layer's cache",
    "glm_moe_dsa": "selects rows of one cache by their index in another cache",
    "iquestloopcoder": "reads a layer's keys again",
    "llama4": "gives a layer a ChunkedKVCache",
    "longcat_flash": "gives a layer a KVCache and KVCache",
    "longcat_flash_ngram": "gives a layer a KVCache and KVCache",
    "minimax_m3_vl": "selects rows of one cache by their index in another cache",
    "olmo": "cannot build a model",  # it exits without the package ai2-olmo
    "phi3small": "uses a row's index as its position",
}
"""Types of mlx_lm whose model is refused, and why."""


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
    state = sum(array.nbytes for cache in states for array in cache.cache)
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


@pytest.mark.parametrize(
    ("model_type", "dtype"),
    [*((name, "float32") for name in SERVED), *((name, "bfloat16") for name in HALF)],
)
def test_layers_are_what_caches_hold_after_a_text(model_type, dtype):
    changes = HALF[model_type] if dtype == "bfloat16" else {}
    model = small_model(model_type, getattr(mx, dtype), **changes)
    caches = make_prompt_cache(model)
    run(model, caches)
    config = config_of(model_type, dtype, **changes)
    assert with_caches(config) == [as_layer(cache) for cache in caches]
    assert len(config.layers) == len(model.layers)


@pytest.fixture
def routed():
    install_routing()
    yield
    remove_routing()


@pytest.mark.parametrize("model_type", nightly_except(SERVED[::4], SERVED))
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


def test_a_type_whose_kernels_need_metal_is_described_anywhere():
    assert config_of("bitnet").layers == (Layer("full", 2, 16, 16),) * 4


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
        ("bitnet", {}, 96),
        ("lfm2", {}, 64),  # two thirds of 96
    ],
)
def test_the_feed_forward_is_the_widest_that_a_token_passes(model_type, changes, width):
    assert config_of(model_type, **changes).intermediate_size == width


def test_the_last_layers_of_gemma_4_keep_nothing_and_its_experts_are_counted():
    kinds = [layer.kind for layer in config_of("gemma4_text").layers]
    assert kinds == ["sliding", "full"] * 2 + ["none"] * 2
    experts = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2}
    mixture = config_of("gemma4_text", **experts, moe_intermediate_size=16)
    assert (mixture.experts, mixture.experts_per_token) == (4, 2)
    assert mixture.intermediate_size == 2 * 96 + 2 * 16


def test_head_counts_that_gemma_3_leaves_out_are_those_of_mlx_lm():
    document = small_config("gemma3")
    for name in ("num_attention_heads", "num_key_value_heads"):
        del document["text_config"][name]
    description = describe(document, "config.json")
    assert (description.config.heads, description.config.kv_heads) == (8, 4)


def test_families_that_give_no_scores_on_the_device_say_so():
    remarks = describe(small_config("gpt_oss"), "config.json").remarks
    assert remarks[0].startswith("mlx-swift-lm's GPTOSS.swift computes attention outside")


SLIDING = {"layer_types": ["sliding_attention"] * 4, "sliding_window": 8}


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (
            small_config("llama", **SLIDING),
            "which mlx-swift-lm's Llama.swift and SmolLM3.swift",
        ),
        (
            small_config("mistral3")
            | {"text_config": {**small_config("mistral3")["text_config"], **SLIDING}},
            "for which mlx-lm makes caches without a window",
        ),
        (
            small_config("exaone4", sliding_window=8, sliding_window_pattern="LLLG"),
            "Exaone4.swift uses the same mask",
        ),
        (
            small_config("granitemoehybrid", layer_types=["mamba"] * 4),
            'no layer of this "granitemoehybrid" model attends to the whole context',
        ),
    ],
)
def test_layers_that_upstream_would_not_serve_are_refused(document, what):
    with pytest.raises(UserError) as error:
        describe(document, "config.json")
    assert what in str(error.value)


@pytest.mark.parametrize("model_type", types_of_mlx_lm())
def test_every_type_of_mlx_lm_is_served_or_refused_with_the_reason(model_type):
    """A type that only mlx-swift-lm lacks is built too."""
    document = {"model_type": model_type, **ALL_TYPES.get(model_type, COMMON)}
    if model_type in swift_models():
        assert config_of(model_type).evicting
        return
    with pytest.raises(UserError) as error:
        describe(document, "config.json")
    assert f": {why_refused(model_type)} (config.json)" in str(error.value)
    if model_type not in NOT_BUILT:
        assert attempt("describe", "config.json", config=document, dtype="float32")["layers"]
        return
    with pytest.raises(UserError, match=NOT_BUILT[model_type]):
        attempt("describe", "config.json", config=document, dtype="float32")


# Not in this process: `built` puts stand-ins in the place of kernels.
NEW_FAMILY = """
import json, sys
import mlx_lm.models
from h2o_pack.models.built import describe
mlx_lm.models.__path__.append(sys.argv[1])
print(json.dumps([describe(document, "float32") for document in json.loads(sys.argv[2])]))
"""


def test_a_new_family_of_mlx_lm_is_described_without_a_line_here(tmp_path):
    text = Path(mlx_lm.models.gemma3_text.__file__).read_text("utf-8")
    text = text.replace("from .", "from mlx_lm.models.")
    (tmp_path / "brand_new.py").write_text(text, "utf-8")
    documents = [
        {**small_config("gemma3_text"), "model_type": name}
        for name in ("brand_new", "gemma3_text")
    ]
    output = output_of(sys.executable, "-c", NEW_FAMILY, tmp_path, json.dumps(documents))
    new, expected = json.loads(output)
    assert new == expected
    assert {layer["kind"] for layer in new["layers"]} == {"full", "sliding"}


def test_no_type_is_both_served_and_refused():
    assert not set(swift_models()) & set(refused_types())
