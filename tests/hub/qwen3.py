"""Qwen3-4B-4bit as the hub has it, but for its values: its config, tensors and tokenizer.

Names, types and shapes are those of mlx-community/Qwen3-4B-4bit: 36 layers, affine
4-bit weights in groups of 64, the output head tied to the embedding. All weights are zero,
so that the file takes no room on a disk that knows holes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path

from tests.hub.contents import Content

ID = "mlx-community/Qwen3-4B-4bit"
CONFIG = Path(__file__).parent.parent / "golden/models/Qwen3-4B-4bit/config.json"
BYTES = {"U32": 4, "BF16": 2}
SHA256 = "283f865f0913b8645d0bc9392b95682b3e95ae74fadc6e37a6e8025746a11b7e"  # of our weights
PUBLISHED = 2_263_022_529  # bytes of the real model.safetensors, whose header is another


def shapes(
    layers: int = 36, vocabulary: int = 151936
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield (name, type, shape) of every tensor."""
    hidden, heads, kv_heads, head_dim, ff = 2560, 32, 8, 128, 9728
    yield from quantized("model.embed_tokens", vocabulary, hidden)
    for number in range(layers):
        layer = f"model.layers.{number}"
        yield f"{layer}.input_layernorm.weight", "BF16", (hidden,)
        yield f"{layer}.post_attention_layernorm.weight", "BF16", (hidden,)
        yield f"{layer}.self_attn.q_norm.weight", "BF16", (head_dim,)
        yield f"{layer}.self_attn.k_norm.weight", "BF16", (head_dim,)
        for name, rows, columns in (
            ("self_attn.q_proj", heads * head_dim, hidden),
            ("self_attn.k_proj", kv_heads * head_dim, hidden),
            ("self_attn.v_proj", kv_heads * head_dim, hidden),
            ("self_attn.o_proj", hidden, heads * head_dim),
            ("mlp.gate_proj", ff, hidden),
            ("mlp.up_proj", ff, hidden),
            ("mlp.down_proj", hidden, ff),
        ):
            yield from quantized(f"{layer}.{name}", rows, columns)
    yield "model.norm.weight", "BF16", (hidden,)


def quantized(name: str, rows: int, columns: int) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield the three tensors of a linear layer in 4 bits, groups of 64."""
    yield f"{name}.weight", "U32", (rows, columns // 8)
    yield f"{name}.scales", "BF16", (rows, columns // 64)
    yield f"{name}.biases", "BF16", (rows, columns // 64)


def weights(path: Path, layers: int = 36, vocabulary: int = 151936) -> Path:
    """Write a safetensors file with the tensors' header and zeros that take no room."""
    header: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for name, kind, shape in sorted(shapes(layers, vocabulary)):
        begin, end = end, end + prod(shape) * BYTES[kind]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return path


def files(
    folder: Path, layers: int = 36, vocabulary: int = 151936, sha256: str | None = None
) -> dict[str, Content]:
    """Return the repository's files; `sha256` of the weights saves hashing them.

    layers, vocabulary: fewer make a smaller model of the same form.
    """
    config = json.loads(CONFIG.read_text("utf-8"))
    config |= {"num_hidden_layers": layers, "vocab_size": vocabulary}
    texts = {
        "config.json": config,
        "tokenizer.json": TOKENIZER,
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "chat_template": "{{ messages }}"},
        "README.md": {"not": "needed"},
        "adapters/adapters.safetensors": {"not": "wanted"},
    }
    contents = {
        path: Content(json.dumps(each, indent=2).encode(), lfs=path == "tokenizer.json")
        for path, each in texts.items()
    }
    file = weights(folder / "model.safetensors", layers, vocabulary)
    contents["model.safetensors"] = Content(file=file, lfs=True, known_sha256=sha256)
    return contents


TOKENIZER = {
    "version": "1.0",
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
    "added_tokens": [
        {
            "id": 3,
            "content": "<|im_end|>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
}
