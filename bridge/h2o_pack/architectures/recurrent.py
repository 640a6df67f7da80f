"""Families in which some layers keep a recurrent state instead of keys and values.

Sizes of states: mlx_lm's `ArraysCache` of the layer after a step, which keeps them in the
dtype of the activations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_pack.architectures.decoder import Decoder, WithHeadDim, check_kinds
from h2o_pack.architectures.fields import count, counts, flag, names, number
from h2o_pack.architectures.mixture import Chosen
from h2o_pack.architectures.model import Layer

if TYPE_CHECKING:
    from h2o_pack.errors import Problems


@dataclass(frozen=True, kw_only=True)
class Convolved(Decoder):
    """Short convolutions in the layers that full_attn_idxs or layer_types leave out."""

    conv_L_cache: int = count(most=4096)  # noqa: N815 - the key in config.json
    full_attn_idxs: tuple[int, ...] | None = counts()
    layer_types: tuple[str, ...] | None = names()

    def check(self, problems: Problems) -> None:
        """Note a configuration that does not say which layers attend."""
        super().check(problems)
        check_kinds(self.layer_types, self.depth, ("full_attention", "conv"), problems)
        if self.full_attn_idxs is None and self.layer_types is None:
            problems.add("config.json lacks both full_attn_idxs and layer_types")

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers; a convolution keeps its last inputs."""
        state = Layer(
            "recurrent", state_bytes=(self.conv_L_cache - 1) * self.hidden_size * size
        )
        indices = self.full_attn_idxs
        if indices is None:
            kinds = self.layer_types or ()
            indices = tuple(i for i, kind in enumerate(kinds) if kind == "full_attention")
        return tuple(self.full() if i in indices else state for i in range(self.depth))


@dataclass(frozen=True, kw_only=True)
class LFM2(Convolved):
    """lfm2: the width of the feed-forward follows from block_ff_dim."""

    num_key_value_heads: int = count()
    intermediate_size: int = count(default=0)
    block_ff_dim: int = count()
    block_multiple_of: int = count()
    block_ffn_dim_multiplier: float = number()
    block_auto_adjust_ff_dim: bool = flag(default=False)

    @property
    def feed_forward(self) -> int:
        """Two thirds of block_ff_dim, scaled and rounded up, as lfm2.MLP has it."""
        if not self.block_auto_adjust_ff_dim:
            return self.block_ff_dim
        width = int(self.block_ffn_dim_multiplier * int(2 * self.block_ff_dim / 3))
        return self.block_multiple_of * -(-width // self.block_multiple_of)


@dataclass(frozen=True, kw_only=True)
class LFM2MoE(Convolved, Chosen):
    """lfm2_moe."""

    num_key_value_heads: int = count()
    moe_intermediate_size: int = count()
    num_dense_layers: int = count(least=0)

    @property
    def feed_forward(self) -> int:
        """The wider of a dense layer, if there is one, and the experts of a token."""
        experts = self.num_experts_per_tok * self.moe_intermediate_size
        return max(experts, self.intermediate_size) if self.num_dense_layers else experts


@dataclass(frozen=True, kw_only=True)
class GatedDelta(WithHeadDim):
    """Every full_attention_interval-th layer attends; the others are gated-delta layers."""

    linear_num_value_heads: int = count()
    linear_num_key_heads: int = count()
    linear_key_head_dim: int = count()
    linear_value_head_dim: int = count()
    linear_conv_kernel_dim: int = count(most=4096)
    full_attention_interval: int = count(default=4)

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers; a state is [value heads, value dim, key dim]."""
        keys = self.linear_num_key_heads * self.linear_key_head_dim
        values = self.linear_num_value_heads * self.linear_value_head_dim
        convolution = (self.linear_conv_kernel_dim - 1) * (2 * keys + values)
        state = Layer(
            "recurrent", state_bytes=(convolution + values * self.linear_key_head_dim) * size
        )
        return tuple(
            state if (index + 1) % self.full_attention_interval else self.full()
            for index in range(self.depth)
        )


@dataclass(frozen=True, kw_only=True)
class Qwen3Next(GatedDelta, Chosen):
    """qwen3_next."""

    num_key_value_heads: int = count()
    head_dim: int = count()
    moe_intermediate_size: int = count()
    shared_expert_intermediate_size: int = count()
    decoder_sparse_step: int = count()
    mlp_only_layers: tuple[int, ...] | None = counts(required=True)

    @property
    def feed_forward(self) -> int:
        """The wider of a dense layer, if there is one, and the experts of a token."""
        experts = (
            self.num_experts_per_tok * self.moe_intermediate_size
            + self.shared_expert_intermediate_size
        )
        dense = self.mlp_only_layers or self.decoder_sparse_step > 1
        return max(experts, self.intermediate_size) if dense else experts


@dataclass(frozen=True, kw_only=True)
class Qwen35(GatedDelta):
    """qwen3_5 and qwen3_5_moe, often as the text_config beside a vision tower."""

    hidden_size: int = count(default=4096)
    num_hidden_layers: int = count(default=32)
    num_attention_heads: int = count(default=32)
    num_key_value_heads: int = count(default=8)
    intermediate_size: int = count(default=14336)
    vocab_size: int = count(default=151936)
    max_position_embeddings: int = count(default=131072)
    linear_num_value_heads: int = count(default=64)
    linear_num_key_heads: int = count(default=16)
    linear_key_head_dim: int = count(default=192)
    linear_value_head_dim: int = count(default=128)
    linear_conv_kernel_dim: int = count(default=4, most=4096)
    num_experts: int = count(default=0, least=0)
    num_experts_per_tok: int = count(default=0, least=0)
    moe_intermediate_size: int = count(default=0, least=0)
    shared_expert_intermediate_size: int = count(default=0, least=0)

    @property
    def experts(self) -> int:
        """Experts of a layer, 0 without."""
        return self.num_experts

    @property
    def experts_per_token(self) -> int:
        """Experts that one token passes."""
        return self.num_experts_per_tok

    @property
    def feed_forward(self) -> int:
        """Width of what one token passes."""
        if not self.num_experts:
            return self.intermediate_size
        return (
            self.num_experts_per_tok * self.moe_intermediate_size
            + self.shared_expert_intermediate_size
        )
