"""gemma3_text, and gemma3, which has it as text_config beside a vision tower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_pack.architectures.decoder import WithHeadDim
from h2o_pack.architectures.fields import count, layer_count

if TYPE_CHECKING:
    from h2o_pack.architectures.model import Layer


@dataclass(frozen=True, kw_only=True)
class Gemma3Text(WithHeadDim):
    """Every sliding_window_pattern-th layer attends to the whole context."""

    hidden_size: int = count(default=1152)
    num_hidden_layers: int = count(default=26)
    num_attention_heads: int = count(default=4)
    num_key_value_heads: int = count(default=1)
    head_dim: int = count(default=256)
    intermediate_size: int = count(default=6912)
    vocab_size: int = count(default=262144)
    max_position_embeddings: int = count(default=32768)
    sliding_window: int = count(default=512)
    sliding_window_pattern: int = count(default=6)

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers by the pattern."""
        del size
        last = self.sliding_window_pattern - 1
        return tuple(
            self.full()
            if index % self.sliding_window_pattern == last
            else self.sliding(self.sliding_window)
            for index in range(self.depth)
        )


@dataclass(frozen=True, kw_only=True)
class Gemma3(Gemma3Text):
    """The text_config of gemma3, with the head counts that mlx_lm fills in (8 and 4).

    num_hidden_layers has a default in mlx_lm only; without one a package says nothing.
    """

    num_hidden_layers: int = layer_count()
    num_attention_heads: int = count(default=-8)
    num_key_value_heads: int = count(default=-4)

    @property
    def heads(self) -> int:
        """Query heads."""
        return abs(self.num_attention_heads)

    @property
    def kv_heads(self) -> int:
        """KV heads."""
        return abs(self.num_key_value_heads)

    def remarks(self) -> tuple[str, ...]:
        """Say where upstream's Swift fills in other numbers than mlx_lm."""
        omitted = [
            f"{name} (mlx_lm takes {-value}, mlx-swift-lm {swift})"
            for name, value, swift in (
                ("num_attention_heads", self.num_attention_heads, 4),
                ("num_key_value_heads", self.num_key_value_heads, 1),
            )
            if value < 0
        ]
        if not omitted:
            return ()
        return (
            (
                f"text_config of config.json lacks {' and '.join(omitted)}: add them, or the "
                "package cannot load the weights."
            ),
        )
