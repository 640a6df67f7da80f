"""Small configurations of every supported model type, and mlx_lm's models of them."""

import copy
from functools import cache
from typing import Any

import mlx.core as mx
from mlx_lm import utils

from h2o_pack.facts import KnownModel
from h2o_pack.models.built import cast, checked_arguments

VOCABULARY = 60
COMMON: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "norm_eps": 1e-5, "layer_norm_eps": 1e-5,
    "rope_theta": 1000.0, "max_position_embeddings": 256, "tie_word_embeddings": False,
    "attention_bias": False, "mlp_bias": False, "partial_rotary_factor": 1.0,
    "rope_scaling": None,
}  # fmt: skip
MIXTURE = {
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24, "norm_topk_prob": True,
}  # fmt: skip
GROUPED = {
    **MIXTURE, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "routed_scaling_factor": 1.0, "first_k_dense_replace": 1,
}  # fmt: skip
GRANITE = {
    "logits_scaling": 1.0, "attention_multiplier": 0.35, "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0,
}  # fmt: skip
DELTA = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 3, "full_attention_interval": 2,
    "partial_rotary_factor": 0.5,
}  # fmt: skip
CONVOLVED = {"conv_bias": True, "conv_L_cache": 3, "num_attention_heads": 2}
GEMMA4 = {
    "num_hidden_layers": 6, "sliding_window": 8, "sliding_window_pattern": 2,
    "num_kv_shared_layers": 2, "global_head_dim": 64, "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCABULARY, "tie_word_embeddings": True,
}  # fmt: skip
SLIDING_FIRST = ["sliding_attention", "full_attention"] * 2

SPECIFIC: dict[str, dict[str, Any]] = {
    "afmoe": {
        **MIXTURE, "layer_types": SLIDING_FIRST, "sliding_window": 8, "num_shared_experts": 1,
        "num_dense_layers": 1,
    },
    "apertus": {"post_norm": False, "qk_norm": True},
    "baichuan_m1": {
        "sliding_window": 8, "sliding_window_layers": [0, 2], "conv_window": 2,
        "num_swa_attention_heads": 4, "num_swa_key_value_heads": 4,
    },
    "bitnet": {"head_dim": 16},
    "bailing_moe": {**MIXTURE, "num_shared_experts": 1, "first_k_dense_replace": 1},
    "ernie4_5": {"use_bias": False},
    "exaone4": {"sliding_window": None, "sliding_window_pattern": None},
    "falcon_h1": {
        "mamba_d_head": 16, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_state": 24,
        "mamba_chunk_size": 16, "mamba_n_groups": 2,
    },
    "gemma3": {"text_config": {
        **COMMON, "model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 2,
    }},
    "gemma3_text": {"sliding_window": 8, "sliding_window_pattern": 3},
    "gemma4": {"text_config": {**COMMON, **GEMMA4, "model_type": "gemma4_text"}},
    "gemma4_text": GEMMA4,
    "gemma4_unified": {"text_config": {
        **COMMON, **GEMMA4, "model_type": "gemma4_unified_text", "num_kv_shared_layers": 0,
        "attention_k_eq_v": True, "num_global_key_value_heads": 1,
    }},
    "glm4_moe": {**GROUPED, "use_qk_norm": True},
    "gpt_oss": {**MIXTURE, "sliding_window": 8},
    "granite": GRANITE,
    "granitemoehybrid": {
        **GRANITE, **MIXTURE, "layer_types": ["mamba", "attention"] * 2,
        "shared_intermediate_size": 40, "mamba_n_heads": 4, "mamba_d_head": 16,
        "mamba_proj_bias": False, "mamba_d_state": 24, "mamba_d_conv": 3, "mamba_n_groups": 2,
        "mamba_conv_bias": True,
    },
    "jamba": {
        **MIXTURE, "attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1,
        "expert_layer_period": 2, "mamba_d_conv": 3, "mamba_d_state": 8, "mamba_expand": 2,
    },
    "lfm2": {
        **CONVOLVED, "full_attn_idxs": [1, 3], "block_dim": 64, "block_ff_dim": 96,
        "block_multiple_of": 32, "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": True,
    },
    "lfm2_moe": {
        **MIXTURE, **CONVOLVED, "layer_types": ["conv", "full_attention"] * 2,
        "use_expert_bias": True, "num_dense_layers": 1,
    },
    "lille-130m": {
        "block_size": 256, "n_embd": 96, "n_head": 3, "n_kv_heads": 1, "n_layer": 2,
    },
    "mimo_v2_flash": {
        **GROUPED, "hybrid_layer_pattern": [0, 1, 1, 0], "moe_layer_freq": [0, 1, 1, 1],
        "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False,
        "sliding_window_size": 8, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
        "layernorm_epsilon": 1e-5, "swa_rope_theta": 1000.0, "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 1, "v_head_dim": 24, "swa_head_dim": 48,
        "swa_v_head_dim": 16, "partial_rotary_factor": 0.5,
    },
    "minicpm": {"dim_model_base": 64, "scale_depth": 1.0, "scale_emb": 1.0},
    "minimax": {**MIXTURE, "shared_intermediate_size": 0, "rotary_dim": 16},
    "mistral3": {"text_config": {
        **COMMON, "model_type": "ministral3",
        "rope_parameters": {
            "rope_theta": 1000.0, "llama_4_scaling_beta": 0.1, "rope_type": "default",
            "original_max_position_embeddings": 16,
        },
    }},
    "mixtral": MIXTURE,
    "nemotron_h": {
        **GROUPED, "hybrid_override_pattern": "M*-E", "mamba_num_heads": 4,
        "mamba_head_dim": 16, "mamba_proj_bias": False, "ssm_state_size": 24,
        "conv_kernel": 3, "n_groups": 2, "layer_norm_epsilon": 1e-5, "use_bias": False,
        "use_conv_bias": True, "moe_shared_expert_intermediate_size": 40,
        "time_step_limit": [0.001, 100.0],
    },
    "olmo3": {"layer_types": SLIDING_FIRST, "sliding_window": 8},
    "olmoe": MIXTURE,
    "openelm": {
        "num_transformer_layers": 3, "model_dim": 64, "ffn_dim_divisor": 32,
        "num_query_heads": [2, 4, 4], "num_kv_heads": [1, 2, 2],
        "ffn_multipliers": [0.5, 2.1, 4.0],
    },
    "phimoe": {**MIXTURE, "rope_scaling": {
        "long_factor": [1.0] * 8, "short_factor": [1.0] * 8, "long_mscale": 1.0,
        "short_mscale": 1.0, "type": "longrope",
    }},
    "qwen3_5": {"text_config": {**COMMON, **DELTA, "model_type": "qwen3_5_text"}},
    "qwen3_5_moe": {"text_config": {
        **COMMON, **DELTA, **MIXTURE, "model_type": "qwen3_5_moe_text",
    }},
    "qwen3_moe": MIXTURE,
    "qwen3_next": {**MIXTURE, **DELTA},
}  # fmt: skip


def small_config(model_type: str, **changes: Any) -> dict[str, Any]:
    """Return the content of a config.json; a change to None removes a key."""
    config = {"model_type": model_type, **COMMON, **SPECIFIC.get(model_type, {}), **changes}
    removed = {key for key, value in changes.items() if value is None}
    return copy.deepcopy({key: value for key, value in config.items() if key not in removed})


# mlx-swift-lm computes OpenELM's heads and widths by itself, as Apple's own models have them.
FOR_SWIFT: dict[str, dict[str, Any]] = {
    "openelm": {
        "num_transformer_layers": 4, "model_dim": 512, "rms_norm_eps": 1e-6,
        "num_query_heads": [8, 12, 12, 16], "num_kv_heads": [2, 3, 3, 4],
        "ffn_multipliers": [0.5, 1.67, 2.83, 4.0],
    },
}  # fmt: skip


def config_for_swift(model_type: str, **changes: Any) -> dict[str, Any]:
    """Return a small config.json of a model that mlx-swift-lm can compute."""
    return small_config(model_type, **FOR_SWIFT.get(model_type, {}), **changes)


@cache
def small_model(model_type: str, dtype: Any = mx.float32, **changes: Any) -> Any:
    """Make mlx_lm's model of a small configuration, with random weights.

    What mlx_lm.convert leaves in float32 stays so.
    """
    mx.random.seed(7)
    document = small_config(model_type, **changes)
    model_class, arguments = utils._get_classes(document)
    model = model_class(arguments.from_dict(document))
    cast(model, dtype)
    mx.eval(model.parameters())
    return model


# The catalogue's models, quantized as mlx_lm.convert does it, with no values


def quantized(entry: KnownModel) -> Any:
    """Make mlx_lm's model of an entry: weights in bfloat16, or 4 bits in groups of 64."""
    config = copy.deepcopy(entry.config)  # mlx_lm changes what it reads
    model_class, arguments = utils._get_classes(config)
    with checked_arguments(config, fill=True):
        model = model_class(arguments.from_dict(config))
    cast(model, mx.bfloat16)
    return utils.quantize_model(model, {}, 64, 4)[0]


def config_of(entry: KnownModel) -> dict[str, Any]:
    """Return a config.json that mlx_lm can read: what shapes nothing is made up."""
    made_up = small_config(entry.config["model_type"])
    if "text_config" in entry.config:
        text = shapeless(made_up["text_config"]) | entry.config["text_config"]
        return {**entry.config, "text_config": text}
    return shapeless(made_up) | entry.config


def shapeless(document: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are no sizes."""
    kinds = (bool, float, str, type(None))
    return {key: value for key, value in document.items() if isinstance(value, kinds)}
