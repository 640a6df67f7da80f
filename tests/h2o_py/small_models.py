"""Small random models of many families, built from mlx_lm's own model files, and their use."""

from __future__ import annotations

import copy
import importlib
import zlib
from functools import cache

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.cache import CacheList

from h2o_py.cache import H2OKVCache
from tests.bridge.models.small_configs import DELTA, MIXTURE, SLIDING_FIRST, SPECIFIC

generate_step = importlib.import_module("mlx_lm.generate").generate_step

VOCABULARY = 97
SLIDING = 24

# Each file's ModelArgs.from_dict takes the names that it knows.
COMMON = {
    "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "norm_eps": 1e-5, "layer_norm_eps": 1e-5,
    "rope_theta": 1000.0, "max_position_embeddings": 1000, "tie_word_embeddings": False,
    "sliding_window": SLIDING,
}  # fmt: skip
LATENT = {
    **MIXTURE, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "n_shared_experts": 1,
    "kv_lora_rank": 32, "q_lora_rank": 16, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32,
    "v_head_dim": 32, "rope_scaling": None,
}  # fmt: skip

FAMILIES = {
    "qwen3": {},
    "llama": {},
    "llama sliding": {"layer_types": SLIDING_FIRST},
    "gemma3_text": {"sliding_window_pattern": 2},
    "gemma4_text": {
        **SPECIFIC["gemma4_text"], "sliding_window": SLIDING,
        "vocab_size_per_layer_input": VOCABULARY,
    },
    "qwen3_5": {"text_config": {**COMMON, **DELTA, "model_type": "qwen3_5_text"}},
    "granitemoehybrid": {
        **SPECIFIC["granitemoehybrid"], "num_attention_heads": 2, "attention_bias": False,
    },
    "nemotron_h": {
        **SPECIFIC["nemotron_h"], "hybrid_override_pattern": "M*-*", "attention_bias": False,
        "mlp_bias": False,
    },
    "olmo_hybrid": {
        **DELTA, "layer_types": ["linear_attention", "full_attention"] * 2,
        "linear_allow_neg_eigval": True, "attention_bias": False,
    },
    "qwen3_next": SPECIFIC["qwen3_next"],
    "lfm2": SPECIFIC["lfm2"],
    "gpt_oss": {**MIXTURE, "layer_types": SLIDING_FIRST},
    "phi": {"hidden_size": 128},
    "phi3": {"hidden_size": 128},
    "qwen3_moe": MIXTURE,
    "smollm3": {},
    "ministral3": {
        "layer_types": SLIDING_FIRST,
        "rope_parameters": {
            "rope_theta": 1000.0, "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 16, "rope_type": "default",
        },
    },
    "cohere2": {"hidden_size": 128, "sliding_window_pattern": 2},
    "falcon_h1": SPECIFIC["falcon_h1"],
    "baichuan_m1": {**SPECIFIC["baichuan_m1"], "hidden_size": 128, "sliding_window": SLIDING},
    "deepseek_v2": {
        **LATENT, "v_head_dim": 64,
        "rope_scaling": {
            "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "type": "yarn",
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
        },
    },
    "deepseek_v3": LATENT,
    "gemma2": {},
    "stablelm": {
        "hidden_size": 128, "partial_rotary_factor": 0.5, "use_qkv_bias": True,
    },
    "deepseek_v32": {**LATENT, "index_n_heads": 2, "index_head_dim": 32, "index_topk": 8},
    "iquestloopcoder": {"loop_num": 2, "loop_window_size": SLIDING},
    "phi3small": {
        "hidden_size": 128, "dense_attention_every_n_layers": 2, "gegelu_limit": 1.0,
        "ff_intermediate_size": 64, "layer_norm_epsilon": 1e-5,
    },
    "afm7": {
        "hidden_dim": 64, "num_layers": 4, "num_kv_reuse_layers": 2, "num_heads": 2,
        "num_kv_heads": 2,
    },
    "mamba2": {
        "num_heads": 4, "head_dim": 16, "state_size": 16, "conv_kernel": 3, "n_groups": 1,
        "use_bias": False, "use_conv_bias": True, "time_step_limit": (0.01, 1.0),
        "layer_norm_epsilon": 1e-5, "residual_in_fp32": False, "chunk_size": 16,
        "ssm_state_size": 16, "time_step_rank": "auto",
    },
    "gemma3n": {
        "text_config": {
            **COMMON, "model_type": "gemma3n", "num_kv_shared_layers": 2,
            "vocab_size_per_layer_input": VOCABULARY,
            "rope_local_base_freq": 1.0, "final_logit_softcapping": 1.0,
            "layer_types": SLIDING_FIRST, "activation_sparsity_pattern": [0.5] * 4,
            "hidden_size_per_layer_input": 16, "altup_num_inputs": 2, "altup_coef_clip": 1.0,
            "altup_correct_scale": True, "altup_active_idx": 0, "laurel_rank": 8,
        },
    },
}  # fmt: skip

# All other families of mlx_lm, which nothing else builds.

# Names that several files ask for; each takes those that it knows.
_SHARED = {
    **LATENT, "layer_types": SLIDING_FIRST, "attention_bias": False, "use_bias": False,
    "use_qk_norm": True, "num_shared_experts": 1, "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0, "layer_group_size": 2, "group_norm_size": 2,
    "moe_num_experts": 4, "moe_topk": 2, "num_layers": 4, "layer_norm_epsilon": 1e-5,
    "rope_parameters": {
        "rope_theta": 1000.0, "sliding_attention": {"rope_theta": 1000.0},
        "full_attention": {"rope_theta": 1000.0},
    },
}  # fmt: skip
_GPT = {"n_positions": 256, "n_embd": 64, "n_head": 2, "n_layer": 4}
_LONGCAT = {
    "ffn_hidden_size": 64, "expert_ffn_hidden_size": 64, "zero_expert_num": 1,
    "mla_scale_q_lora": True, "mla_scale_kv_lora": True,
}  # fmt: skip
_DELTA = {
    "linear_attn_config": {
        "kda_layers": [1, 3], "full_attn_layers": [2, 4], "num_heads": 2, "head_dim": 32,
        "short_conv_kernel_size": 3,
    },
    "num_experts_per_token": 2,
}  # fmt: skip
_TWO_HEADS = {"num_attention_heads": 2}  # head dim 32 where hidden_size decides it
_TEXT = {**COMMON, **_SHARED}

_SPECIFIC = {
    "Klear": _TWO_HEADS,
    "bailing_hybrid": {}, "bailing_moe_linear": {}, "bailing_moe_v3": {},
    "dbrx": {
        "d_model": 64, "n_layers": 4, "n_heads": 2,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1000.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek": _TWO_HEADS,
    "deepseek_v41": {"o_groups": 2, "o_lora_rank": 16, "qk_rope_head_dim": 16},
    "dots1": {},
    "ernie4_5_moe": {"moe_num_shared_experts": 1},
    "exaone": _TWO_HEADS,
    "exaone_moe": {"is_moe_layer": [False, True] * 2},
    "gear": {}, "glm": {}, "glm4_moe_lite": {},
    "glm_moe_dsa": {
        "index_head_dim": 32, "index_n_heads": 2, "index_topk": 8, "moe_layer_freq": 1,
        "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    },
    "gpt2": {**_GPT, "n_ctx": 256},
    "gpt_bigcode": {**_GPT, "n_inner": 64, "mlp_bias": False},
    "gpt_neox": {**_TWO_HEADS, "rotary_emb_base": 1000, "rotary_pct": 0.5},
    "gptj": {**_GPT, "rotary_dim": 16},
    "granitemoe": {
        **_TWO_HEADS, "logits_scaling": 1.0, "attention_multiplier": 0.2,
        "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
    },
    "hunyuan": {
        **_TWO_HEADS, "num_shared_expert": 1, "use_mixed_mlp_moe": True, "use_cla": False,
        "cla_share_factor": 2, "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1.0},
    },
    "internlm3": _TWO_HEADS,
    "kimi_k25": {"text_config": _TEXT},
    "kimi_k3": {"text_config": {**_TEXT, **_DELTA, "attn_res_block_size": 2}},
    "kimi_linear": {**_DELTA, "model_max_length": 256},
    "kimi_vl": {"text_config": _TEXT},
    "laguna": {},
    "lfm2-vl": {"text_config": {**COMMON, **FAMILIES["lfm2"], "model_type": "lfm2"}},
    "llama4": {"text_config": {
        **_TEXT, "model_type": "llama4_text", "num_experts_per_tok": 1,
        "attention_chunk_size": SLIDING, "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 64,
    }},
    "llama4_text": {"intermediate_size_mlp": 64, "no_rope_layers": [1, 1, 1, 0]},
    "longcat_flash": {**_LONGCAT, "attention_method": "MLA", "zero_expert_type": "identity"},
    "longcat_flash_ngram": {
        **_LONGCAT, "ngram_vocab_size_ratio": 2, "emb_neighbor_num": 2, "emb_split_num": 2,
    },
    "mamba": {
        "state_size": 16, "conv_kernel": 3, "use_conv_bias": True, "time_step_rank": 4,
    },
    "mellum": {},
    "minicpm3": {
        **_TWO_HEADS, "dim_model_base": 64, "scale_depth": 1.0, "scale_emb": 1.0,
        "rope_scaling": {
            "type": "longrope", "original_max_position_embeddings": 256,
            "long_factor": [1.0] * 16, "short_factor": [1.0] * 16,
        },
    },
    "minimax_m3_vl": {"text_config": {
        **_TEXT, "layer_types": None, "moe_layer_freq": [0, 1, 0, 1],
        "dense_intermediate_size": 64, "shared_intermediate_size": 64,
        "sparse_attention_config": {
            "sparse_num_index_heads": 2, "sparse_index_dim": 32, "sparse_block_size": 8,
            "sparse_topk_blocks": 2, "sparse_attention_freq": [0, 1, 0, 1],
        },
    }},
    "mistral4": {"rope_parameters": {
        "rope_theta": 1000.0, "type": "default", "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 16,
    }},
    "muse_glimmer": {},
    "muse_spark": {"text_config": {
        **_TEXT, "num_shared_experts": 0, "layer_rope_theta": [1000.0, 0] * 2,
        "final_logit_softcapping": 20.0, "output_multiplier": 1.0, "moe_hidden_size": 64,
        "post_norm_eps": 1e-6,
    }},
    "nanbeige": {"num_loops": 2},
    "nemotron": {"hidden_act": "relu2"},
    "nemotron-nas": {
        **_TWO_HEADS,
        "block_configs": [
            {"attention": {"n_heads_in_group": 1}, "ffn": {"ffn_mult": 1.0}},
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}},
            {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
            {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}},
        ],
    },
    "olmo3": {},
    "phixtral": {
        "num_vocab": VOCABULARY, "model_dim": 64, "num_heads": 2, "num_layers": 4,
        "rotary_dim": 16,
    },
    "pixtral": {"text_config": {**COMMON, "model_type": "llama"}},
    "plamo": {**_TWO_HEADS, "n_shared_head": 2},
    "plamo2": {"hidden_size_per_head": 32, "mamba_d_state": 16, "mamba_num_heads": 4},
    "plamo3": {"sliding_window_pattern": 2},
    "prism_hadamard_qwen35": {
        "text_config": {**FAMILIES["qwen3_5"]["text_config"], "intermediate_size": 128},
        "tensor_namespace": "mlx-vlm-qwen3_5",
        "quantization": {"bits": 2, "group_size": 128, "mode": "affine"},
        "modules": [{
            "path": "model.layers.1.mlp.down_proj", "embedding": False, "block": 0,
            "dtype": "float16",
        }],
    },
    "qwen": {**_TWO_HEADS, "kv_channels": 32},
    "qwen2_moe": _TWO_HEADS,
    "qwen2_vl": {"text_config": {**_TEXT, **_TWO_HEADS, "model_type": "qwen2"}},
    "qwen3_vl": {"text_config": {**_TEXT, "model_type": "qwen3"}},
    "qwen3_vl_moe": {"text_config": {**_TEXT, "model_type": "qwen3_moe"}},
    "recurrent_gemma": {
        "attention_window_size": SLIDING, "conv1d_width": 3, "logits_soft_cap": 10.0,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "rwkv7": {
        "a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8,
        "decay_low_rank_dim": 8,
    },
    "seed_oss": {}, "spark2_5": {},
    "step3p5": {
        "num_attention_groups": 2, "share_expert_dim": 64, "moe_layers_enum": "1,3",
        "moe_top_k": 2,
    },
    "talkie": {}, "telechat3": {}, "youtu_llm": {},
}  # fmt: skip

RARER = {family: {**_SHARED, **settings} for family, settings in _SPECIFIC.items()}


@cache
def small_model(family, dtype=mx.float32):
    """A model with its own random weights, the same ones each time."""
    settings = {**FAMILIES, **RARER}[family]
    mx.random.seed(zlib.crc32(family.encode()))  # its own, whatever other families there are
    name = family.split()[0]
    architecture = importlib.import_module(f"mlx_lm.models.{name}")
    settings = copy.deepcopy({"model_type": name, **COMMON, **settings})  # mlx_lm changes it
    model = architecture.Model(architecture.ModelArgs.from_dict(settings))
    assert sum(p.size for _, p in tree_flatten(model.parameters())) < 1_000_000, family
    model.update(tree_map(lambda p: _random(p, dtype), model.parameters()))
    mx.eval(model.parameters())
    return model


def _random(parameter, dtype):
    """Zeros (attention sinks, convolutions) would hide what a cache does to them."""
    if not mx.issubdtype(parameter.dtype, mx.floating):
        return parameter
    if not parameter.any().item():
        parameter = 0.3 * mx.random.normal(parameter.shape)
    return parameter.astype(dtype)


def random_prompt(tokens, seed=1):
    """Token ids, the same ones for a seed."""
    mx.random.seed(seed)
    return mx.random.randint(0, VOCABULARY, (tokens,))


def greedy(model, prompt, caches, answer=10, chunk=16):
    """Return the tokens with which mlx_lm goes on after a prompt that it reads in chunks."""
    steps = generate_step(
        mx.array(prompt),
        model,
        max_tokens=answer,
        prompt_cache=caches,
        prefill_step_size=chunk,
    )
    return [int(token) for token, _ in steps]


def evicting(caches):
    """Return the H2O caches, those inside lists of caches too."""
    members = [m for c in caches for m in (c.caches if isinstance(c, CacheList) else [c])]
    return [member for member in members if isinstance(member, H2OKVCache)]
