"""Qwen3-4B-4bit as the hub has it, but for its values: its config, tensors and tokenizer.

Names, types and shapes are those of mlx-community/Qwen3-4B-4bit: 36 layers, affine
4-bit weights in groups of 64, the output head tied to the embedding. All weights are zero,
so that the file takes no room on a disk that knows holes.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bridge.models.checkpoints import Described, sparse_checkpoint
from tests.hub.repository import Content

ID = "mlx-community/Qwen3-4B-4bit"
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
CONFIG = Path(__file__).parent.parent / "golden/models/Qwen3-4B-4bit/config.json"
SHA256_OF_8_LAYERS = "4f00ffbd743f43b86986f66f24ca4de755169f91c8d8810374c953ff96d85e69"
"""Of the weights here, in a model of 8 layers and all tokens."""


def shapes(layers: int = 36, vocabulary: int = 151936) -> Described:
    """Return {name: (type, shape)} of every tensor; none of them is computed."""
    import mlx.core as mx  # not needed where the files are only read
    from mlx import nn
    from mlx.utils import tree_flatten
    from mlx_lm.models.qwen3 import Model, ModelArgs

    types = {mx.uint32: "U32", mx.bfloat16: "BF16"}
    model = Model(ModelArgs.from_dict(config(layers, vocabulary)))
    model.set_dtype(mx.bfloat16)
    nn.quantize(model, group_size=64, bits=4)
    tensors = sorted(tree_flatten(model.parameters()))
    return {name: (types[tensor.dtype], list(tensor.shape)) for name, tensor in tensors}


def config(layers: int, vocabulary: int) -> dict[str, Any]:
    """Return the model's config, of a smaller one if asked."""
    published: dict[str, Any] = json.loads(CONFIG.read_text("utf-8"))
    sizes = {"num_hidden_layers": layers, "vocab_size": vocabulary}
    return published | sizes | {"eos_token_id": min(published["eos_token_id"], vocabulary - 1)}


def weights(path: Path, layers: int = 36, vocabulary: int = 151936) -> Content:
    """Write a safetensors file with the tensors' header and zeros that take no room."""
    return sparse_checkpoint(path, shapes(layers, vocabulary))


def files(
    folder: Path, layers: int = 36, vocabulary: int = 151936, sha256: str | None = None
) -> dict[str, Content]:
    """Return the repository's files; `sha256` of the weights saves hashing them.

    layers, vocabulary: fewer make a smaller model of the same form.
    """
    texts = {
        "config.json": config(layers, vocabulary),
        "tokenizer.json": TOKENIZER,
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "chat_template": PLAIN},
        "README.md": {"not": "needed"},
        "adapters/adapters.safetensors": {"not": "wanted"},
    }
    contents = {
        path: Content(json.dumps(text, indent=2).encode(), lfs=path == "tokenizer.json")
        for path, text in texts.items()
    }
    file = weights(folder / "model.safetensors", layers, vocabulary)
    return contents | {"model.safetensors": replace(file, known_sha256=sha256)}


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
