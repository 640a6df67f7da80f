"""The bundled demo model's arithmetic in numpy, one token of many sequences at a time."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclasses.dataclass(frozen=True)
class Model:
    """A Qwen3 model's weights in float32, matrices transposed so that x @ w applies them."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    theta: float
    epsilon: float
    weights: dict[str, Array]

    @classmethod
    def load(cls, folder: Path) -> Model:
        """The model of a folder with config.json and model.safetensors."""
        import mlx.core as mx  # numpy reads no bfloat16

        config = json.loads((folder / "config.json").read_text())
        weights = {}
        loaded: Any = mx.load(str(folder / "model.safetensors"))
        for name, array in loaded.items():
            wide = np.array(array.astype(mx.float32))
            weights[name] = np.ascontiguousarray(wide.T) if wide.ndim > 1 else wide
        return cls(
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            theta=config["rope_theta"],
            epsilon=config["rms_norm_eps"],
            weights=weights,
        )

    def embed(self, tokens: np.ndarray[Any, np.dtype[np.int32]]) -> Array:
        """Hidden states [B, hidden] of token ids [B]."""
        columns: Array = self.weights["model.embed_tokens.weight"]
        return np.ascontiguousarray(columns[:, tokens].T)

    def projected(self, hidden: Array, layer: int, position: int) -> tuple[Array, Array, Array]:
        """Queries [B, Hq, D], keys and values [B, Hkv, D] of one token, after RoPE."""
        at = f"model.layers.{layer}."
        x = self._normed(hidden, self.weights[at + "input_layernorm.weight"])
        shape = (len(x), -1, self.head_dim)
        q, k, v = (
            (x @ self.weights[f"{at}self_attn.{name}_proj.weight"]).reshape(shape)
            for name in "qkv"
        )
        q = self._normed(q, self.weights[at + "self_attn.q_norm.weight"])
        k = self._normed(k, self.weights[at + "self_attn.k_norm.weight"])
        return self._rotated(q, position), self._rotated(k, position), v

    def after_attention(self, hidden: Array, attended: Array, layer: int) -> Array:
        """The layer's output: residual, attention's projection, feed-forward."""
        at = f"model.layers.{layer}."
        flat = attended.reshape(len(hidden), -1)
        hidden = hidden + flat @ self.weights[at + "self_attn.o_proj.weight"]
        x = self._normed(hidden, self.weights[at + "post_attention_layernorm.weight"])
        gate = x @ self.weights[at + "mlp.gate_proj.weight"]
        up = x @ self.weights[at + "mlp.up_proj.weight"]
        inner = gate / (1 + np.exp(-gate)) * up
        out: Array = hidden + inner @ self.weights[at + "mlp.down_proj.weight"]
        return out

    def log_probabilities(self, hidden: Array) -> Array:
        """[B, vocabulary] of the next token."""
        logits = (
            self._normed(hidden, self.weights["model.norm.weight"])
            @ (self.weights["model.embed_tokens.weight"])
        )
        logits -= logits.max(axis=-1, keepdims=True)
        out: Array = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return out

    def _normed(self, x: Array, weight: Array) -> Array:
        scale = 1 / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + self.epsilon)
        out: Array = x * scale * weight
        return out

    def _rotated(self, x: Array, position: int) -> Array:
        half = self.head_dim // 2
        frequencies = self.theta ** (-np.arange(half, dtype=np.float32) / half)
        angles = position * frequencies
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
