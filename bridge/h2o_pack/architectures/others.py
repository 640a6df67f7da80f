"""Families whose configurations or layers are like no other's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from h2o_pack.architectures.decoder import Decoder, WithHeadDim
from h2o_pack.architectures.fields import MAX_LAYERS, count, counts, letters, numbers
from h2o_pack.architectures.model import Layer

if TYPE_CHECKING:
    from h2o_pack.errors import Problems


@dataclass(frozen=True, kw_only=True)
class Exaone4(WithHeadDim):
    """exaone4: sliding_window_pattern is repeated over the layers, L local, G global."""

    num_key_value_heads: int = count()
    head_dim: int = count()
    sliding_window: int = count(default=0)
    sliding_window_pattern: tuple[str, ...] | None = letters()

    def check(self, problems: Problems) -> None:
        """Refuse local layers: upstream's Swift gives both kinds one mask."""
        super().check(problems)
        if "L" in (self.sliding_window_pattern or ()):
            problems.add(
                "this model has sliding-window layers, and mlx-swift-lm's Exaone4.swift uses "
                "one mask for layers with a window and layers without",
                "Choose a model of another family, or EXAONE 4.0 1.2B, which has none.",
            )


@dataclass(frozen=True, kw_only=True)
class Lille(Decoder):
    """lille-130m, with the names of GPT-2."""

    hidden_size: int = 0
    num_hidden_layers: int = 0
    num_attention_heads: int = 0
    intermediate_size: int = 0
    max_position_embeddings: int = 0
    block_size: int = count()
    n_embd: int = count()
    n_head: int = count()
    n_kv_heads: int = count()
    n_layer: int = count(most=MAX_LAYERS)

    def __post_init__(self) -> None:
        """Give the common names to what has others."""
        common = {
            "hidden_size": self.n_embd,
            "num_hidden_layers": self.n_layer,
            "num_attention_heads": self.n_head,
            "num_key_value_heads": self.n_kv_heads,
            "max_position_embeddings": self.block_size,
            "intermediate_size": 256 * round(int(8 * self.n_embd / 3) / 256),
        }
        for name, value in common.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class OpenELM(WithHeadDim):
    """openelm: every layer has head counts and a width of its own."""

    hidden_size: int = 0
    num_hidden_layers: int = 0
    num_attention_heads: int = 0
    intermediate_size: int = 0
    max_position_embeddings: int = 0
    head_dim: int = count()
    max_context_length: int = count(default=2048)
    model_dim: int = count()
    num_transformer_layers: int = count(most=MAX_LAYERS)
    num_query_heads: tuple[int, ...] | None = counts(required=True, least=1)
    num_kv_heads: tuple[int, ...] | None = counts(required=True, least=1)
    ffn_multipliers: tuple[float, ...] | None = numbers(required=True)
    ffn_dim_divisor: int = count()

    def __post_init__(self) -> None:
        """Give the common names to what has others."""
        common = {
            "hidden_size": self.model_dim,
            "num_hidden_layers": self.num_transformer_layers,
            "num_attention_heads": max(self.num_query_heads or (0,)),
            "max_position_embeddings": self.max_context_length,
        }
        for name, value in common.items():
            object.__setattr__(self, name, value)

    def check(self, problems: Problems) -> None:
        """Note lists that do not tell of every layer, and heads that cannot be shared."""
        for name in ("num_query_heads", "num_kv_heads", "ffn_multipliers"):
            given = getattr(self, name)
            if given is not None and self.depth and len(given) != self.depth:
                problems.add(f"{name} tells of {len(given)} layers, and there are {self.depth}")
        shared = zip(self.num_query_heads or (), self.num_kv_heads or (), strict=False)
        for heads, kv_heads in shared:
            if heads % kv_heads:
                problems.add(f"{heads} query heads cannot share {kv_heads} KV heads evenly")

    @property
    def feed_forward(self) -> int:
        """The widest layer: its multiple of model_dim, rounded to the divisor."""
        return max(
            rounded(multiplier * self.model_dim, self.ffn_dim_divisor)
            for multiplier in self.ffn_multipliers or ()
        )

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers, each with its KV heads."""
        del size
        heads = self.num_kv_heads or ()
        return tuple(Layer("full", each, self.head_dim, self.head_dim) for each in heads)


def rounded(width: float, divisor: int) -> int:
    """Round to a multiple of divisor, losing no more than a tenth (openelm.py)."""
    nearest = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * width else nearest


@dataclass(frozen=True, kw_only=True)
class BaichuanM1(Decoder):
    """baichuan_m1: keys and values are mixed with the token before, which is kept."""

    num_key_value_heads: int = count()
    max_position_embeddings: int = count(default=32768)
    sliding_window: int = count()
    sliding_window_layers: tuple[int, ...] | None = counts(required=True)
    num_swa_attention_heads: int = count(default=0)
    num_swa_key_value_heads: int = count(default=0)

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers; sliding ones may have head counts of their own."""
        local = set(self.sliding_window_layers or ())
        heads = self.num_swa_attention_heads or self.num_attention_heads
        dim = self.hidden_size // heads
        swa = self.num_swa_key_value_heads or self.num_key_value_heads
        sliding = Layer("sliding", swa, dim, dim, self.sliding_window)
        layers = [sliding if i in local else self.full() for i in range(self.depth)]
        return tuple(replace(each, state_bytes=each.row_elements * size) for each in layers)
