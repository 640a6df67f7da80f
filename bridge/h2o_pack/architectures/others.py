"""Families whose configurations are like no other's."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.architectures.decoder import Decoder
from h2o_pack.architectures.fields import count, counts, numbers
from h2o_pack.architectures.model import Layer
from h2o_pack.errors import Problems


@dataclass(frozen=True, kw_only=True)
class Lille(Decoder):
    """lille-130m."""

    intermediate_size: int = 0

    @property
    def feed_forward(self) -> int:
        """Eight thirds of the hidden size, rounded to a multiple of 256."""
        return 256 * round(int(8 * self.hidden_size / 3) / 256)


@dataclass(frozen=True, kw_only=True)
class OpenELM(Decoder):
    """openelm: every layer has head counts and a width of its own."""

    num_attention_heads: int = 0
    intermediate_size: int = 0
    num_query_heads: tuple[int, ...] = counts(least=1)
    num_kv_heads: tuple[int, ...] = counts(least=1)
    ffn_multipliers: tuple[float, ...] = numbers()
    ffn_dim_divisor: int = count()

    def __post_init__(self) -> None:
        """Take the most query heads that a layer has."""
        object.__setattr__(self, "num_attention_heads", max(self.num_query_heads, default=0))

    def check(self, problems: Problems) -> None:
        """Note lists that do not tell of every layer, and heads that cannot be shared."""
        self.one_per_layer(problems, "num_query_heads", "num_kv_heads", "ffn_multipliers")
        for heads, kv_heads in zip(self.num_query_heads, self.num_kv_heads, strict=False):
            if heads % kv_heads:
                problems.add(f"{heads} query heads cannot share {kv_heads} KV heads evenly")

    @property
    def feed_forward(self) -> int:
        """The widest layer: its multiple of the hidden size, rounded to the divisor."""
        return max(
            rounded(multiplier * self.hidden_size, self.ffn_dim_divisor)
            for multiplier in self.ffn_multipliers
        )

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers, each with its KV heads."""
        del size
        dim = self.head_dim
        return tuple(Layer("full", each, dim, dim) for each in self.num_kv_heads)


def rounded(width: float, divisor: int) -> int:
    """Round to a multiple of divisor, losing no more than a tenth (openelm.py)."""
    nearest = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * width else nearest
