"""Qwen3 in PyTorch, with the names that transformers and mlx-lm give its weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from studies.tiny_lm.quantization import quantized
from studies.tiny_lm.recipe import Architecture


class Precision:
    """Whether matrices are seen as they are or as their quantized variant."""

    def __init__(self, bits: int, group_size: int) -> None:
        self.bits = bits
        self.group_size = group_size
        self.on = False

    def __call__(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the weight [rows, columns] as the forward pass sees it."""
        return quantized(weight, self.bits, self.group_size) if self.on else weight


class Linear(nn.Module):
    """A matrix without bias, [outputs, inputs]."""

    def __init__(self, inputs: int, outputs: int, precision: Precision) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.precision = precision

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs]; returns [..., outputs]."""
        return functional.linear(x, self.precision(self.weight))


class Attention(nn.Module):
    """Grouped-query attention with normalized queries and keys."""

    def __init__(self, shape: Architecture, precision: Precision) -> None:
        super().__init__()
        self.shape = shape
        queries = shape.heads * shape.head_dim
        keys = shape.kv_heads * shape.head_dim
        self.q_proj = Linear(shape.hidden, queries, precision)
        self.k_proj = Linear(shape.hidden, keys, precision)
        self.v_proj = Linear(shape.hidden, keys, precision)
        self.o_proj = Linear(queries, shape.hidden, precision)
        self.q_norm = nn.RMSNorm(shape.head_dim, eps=shape.norm_epsilon)
        self.k_norm = nn.RMSNorm(shape.head_dim, eps=shape.norm_epsilon)

    def forward(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
    ) -> torch.Tensor:
        """x: [B, T, hidden]; cosine and sine: [T, 1, head_dim / 2]."""
        batch, length, _ = x.shape
        heads = (batch, length, -1, self.shape.head_dim)
        queries = self.q_norm(self.q_proj(x).view(heads).float())
        keys = self.k_norm(self.k_proj(x).view(heads).float())
        values = self.v_proj(x).view(heads)
        queries = rotated(queries, cosine, sine).to(values.dtype)
        keys = rotated(keys, cosine, sine).to(values.dtype)
        group = self.shape.heads // self.shape.kv_heads
        out = functional.scaled_dot_product_attention(
            queries.transpose(1, 2),
            keys.repeat_interleave(group, 2).transpose(1, 2),
            values.repeat_interleave(group, 2).transpose(1, 2),
            is_causal=True,
        )
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of elements half a head apart (RoPE, not interleaved)."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Architecture, precision: Precision) -> None:
        super().__init__()
        self.gate_proj = Linear(shape.hidden, shape.feed_forward, precision)
        self.up_proj = Linear(shape.hidden, shape.feed_forward, precision)
        self.down_proj = Linear(shape.feed_forward, shape.hidden, precision)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, T, hidden]."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and feed-forward, each on the normalized residual stream."""

    def __init__(self, shape: Architecture, precision: Precision) -> None:
        super().__init__()
        self.self_attn = Attention(shape, precision)
        self.mlp = FeedForward(shape, precision)
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_epsilon)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_epsilon)

    def forward(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
    ) -> torch.Tensor:
        """x: [B, T, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Token embeddings, layers and the last norm."""

    def __init__(self, shape: Architecture, precision: Precision) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, precision) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=shape.norm_epsilon)


class LanguageModel(nn.Module):
    """The whole model; the embedding is also the head."""

    def __init__(self, shape: Architecture, precision: Precision) -> None:
        super().__init__()
        self.precision = precision
        self.model = Decoder(shape, precision)
        exponents = torch.arange(0, shape.head_dim, 2) / shape.head_dim
        angles = torch.outer(torch.arange(shape.context), shape.rope_theta**-exponents)
        self.register_buffer("cosine", angles.cos()[:, None], persistent=False)
        self.register_buffer("sine", angles.sin()[:, None], persistent=False)
        for name, weight in self.named_parameters():
            if "norm" not in name:
                nn.init.normal_(weight, std=deviation(name, shape.hidden))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: [B, T]; returns logits [B, T, vocabulary]."""
        length = tokens.shape[1]
        embedding = self.precision(self.model.embed_tokens.weight)
        x = functional.embedding(tokens, embedding)
        for layer in self.model.layers:
            x = layer(x, self.cosine[:length], self.sine[:length])
        return functional.linear(self.model.norm(x), embedding)


def deviation(name: str, hidden: int) -> float:
    """Return a matrix's standard deviation before training; smaller where it adds up."""
    if "embed" in name:
        return 0.02
    adds_to_residual = "o_proj" in name or "down_proj" in name
    return float(hidden**-0.5 * (0.3 if adds_to_residual else 0.8))
