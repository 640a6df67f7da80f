"""Families in which some layers keep a recurrent state instead of keys and values.

Sizes of states: mlx_lm's `ArraysCache` of the layer after a step, which keeps recurrences in
float32 (Jamba's excepted) and the rest in the dtype of the activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from h2o_pack.architectures.decoder import FULL, Decoder, Listed, Mixture
from h2o_pack.architectures.fields import count, counts, flag, names, number
from h2o_pack.architectures.model import Layer, LayerKind

if TYPE_CHECKING:
    from h2o_pack.errors import Problems

FLOAT32 = 4
"""Bytes of an element of a recurrence."""


@dataclass(frozen=True, kw_only=True)
class Convolved(Listed):
    """Short convolutions in the layers that full_attn_idxs or layer_types leave out."""

    KINDS: ClassVar[Mapping[str, LayerKind]] = {FULL: "full", "conv": "recurrent"}
    conv_L_cache: int = count(most=4096)  # noqa: N815 - the key in config.json
    full_attn_idxs: tuple[int, ...] = counts()

    def check(self, problems: Problems) -> None:
        """Note a configuration that does not say which layers attend."""
        super().check(problems)
        if not self.full_attn_idxs and not self.layer_types:
            problems.add("config.json lacks both full_attn_idxs and layer_types")

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is."""
        if not self.full_attn_idxs:
            return super().kinds()
        indices = set(self.full_attn_idxs)
        return tuple("full" if i in indices else "recurrent" for i in range(self.depth))

    def state_bytes(self, size: int) -> int:
        """Bytes of the last inputs of a convolution."""
        return (self.conv_L_cache - 1) * self.hidden_size * size


@dataclass(frozen=True, kw_only=True)
class LFM2(Convolved):
    """lfm2: the width of the feed-forward follows from block_ff_dim.

    A configuration that states intermediate_size instead is one that mlx_lm reads, and
    mlx-swift-lm does not.
    """

    intermediate_size: int = count(default=0)
    block_ff_dim: int = count(default=0)
    block_multiple_of: int = count()
    block_ffn_dim_multiplier: float = number()
    block_auto_adjust_ff_dim: bool = flag(default=False)

    def check(self, problems: Problems) -> None:
        """Note a feed-forward without a width."""
        super().check(problems)
        if not self.block_ff_dim and not self.intermediate_size:
            problems.add("config.json lacks both block_ff_dim and intermediate_size")

    def remarks(self) -> tuple[str, ...]:
        """Say what mlx-swift-lm does not find."""
        advice = (
            "config.json lacks block_ff_dim: add it with the value of intermediate_size, or "
            "the package cannot load the weights."
        )
        return () if self.block_ff_dim else (advice,)

    @property
    def feed_forward(self) -> int:
        """Two thirds of block_ff_dim, scaled and rounded up, as lfm2.MLP has it."""
        stated = self.block_ff_dim or self.intermediate_size
        if not self.block_auto_adjust_ff_dim:
            return stated
        width = int(self.block_ffn_dim_multiplier * int(2 * stated / 3))
        return self.block_multiple_of * -(-width // self.block_multiple_of)


@dataclass(frozen=True, kw_only=True)
class LFM2MoE(Convolved, Mixture):
    """lfm2_moe."""


@dataclass(frozen=True, kw_only=True)
class GatedDelta(Mixture):
    """qwen3_5 and qwen3_next: the layers between those that attend are gated-delta layers."""

    linear_num_value_heads: int = count()
    linear_num_key_heads: int = count()
    linear_key_head_dim: int = count()
    linear_value_head_dim: int = count()
    linear_conv_kernel_dim: int = count(most=4096)
    full_attention_interval: int = count(default=4)

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is."""
        return self.every(self.full_attention_interval, "recurrent")

    def state_bytes(self, size: int) -> int:
        """Bytes of the convolution's last inputs and of [value heads, value dim, key dim]."""
        keys = self.linear_num_key_heads * self.linear_key_head_dim
        values = self.linear_num_value_heads * self.linear_value_head_dim
        convolution = (self.linear_conv_kernel_dim - 1) * (2 * keys + values)
        return convolution * size + values * self.linear_key_head_dim * FLOAT32


@dataclass(frozen=True, kw_only=True)
class Mamba2(Decoder):
    """Layers with a Mamba 2 state; the names are those of granitemoehybrid and falcon_h1."""

    mamba_n_heads: int = count(default=0)
    mamba_d_head: int = count(default=0)
    mamba_d_state: int = count(default=0)
    mamba_d_conv: int = count(default=0, most=4096)
    mamba_n_groups: int = count(default=0)

    @property
    def inner(self) -> int:
        """Elements of all heads."""
        return self.mamba_n_heads * self.mamba_d_head

    def state_bytes(self, size: int) -> int:
        """Bytes of a state (mlx_lm/models/ssm.py).

        Convolution [d_conv - 1, n_heads * d_head + 2 * n_groups * d_state] and recurrence
        [n_heads, d_head, d_state].
        """
        channels = self.inner + 2 * self.mamba_n_groups * self.mamba_d_state
        recurrence = self.inner * self.mamba_d_state
        return (self.mamba_d_conv - 1) * channels * size + recurrence * FLOAT32


@dataclass(frozen=True, kw_only=True)
class GraniteHybrid(Listed, Mixture, Mamba2):
    """granitemoehybrid (Granite 4): Mamba 2 layers and a few that attend."""

    KINDS: ClassVar[Mapping[str, LayerKind]] = {"mamba": "recurrent", "attention": "full"}

    def check(self, problems: Problems) -> None:
        """Note Mamba layers without their sizes."""
        super().check(problems)
        if "mamba" in self.layer_types:
            for name in ("n_heads", "d_head", "d_state", "d_conv", "n_groups"):
                if not getattr(self, f"mamba_{name}"):
                    problems.add(f"config.json lacks mamba_{name}")


@dataclass(frozen=True, kw_only=True)
class FalconH1(Mamba2):
    """falcon_h1: every layer attends and has a Mamba 2 state beside its keys."""

    mamba_d_ssm: int = count(default=1536)

    def check(self, problems: Problems) -> None:
        """Note heads that do not make up the Mamba layer's width."""
        super().check(problems)
        if self.mamba_d_ssm and self.inner and self.mamba_d_ssm != self.inner:
            problems.add(
                f"mamba_d_ssm is {self.mamba_d_ssm}, but mamba_n_heads and mamba_d_head "
                f"make {self.inner}"
            )

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers, each with both."""
        return (replace(self.full(), state_bytes=self.state_bytes(size)),) * self.depth


@dataclass(frozen=True, kw_only=True)
class NemotronH(Listed, Mixture, Mamba2):
    """nemotron_h: one letter per layer, M Mamba 2, * attention, - feed-forward, E experts."""

    KINDS: ClassVar[Mapping[str, LayerKind]] = {
        "M": "recurrent", "*": "full", "-": "none", "E": "none",
    }  # fmt: skip
    layer_types: tuple[str, ...] = names(key="hybrid_override_pattern")

    @property
    def has_dense_layers(self) -> bool:
        """Whether a layer is an ordinary feed-forward."""
        return "-" in self.layer_types


@dataclass(frozen=True, kw_only=True)
class Jamba(Listed, Mixture):
    """jamba: Mamba 1 layers and a few that attend; a single expert is no mixture."""

    KINDS: ClassVar[Mapping[str, LayerKind]] = {"mamba": "recurrent", "attention": "full"}
    layer_types: tuple[str, ...] = names(key="layers_block_type")
    attn_layer_offset: int = count(least=0)
    attn_layer_period: int = count()
    mamba_d_conv: int = count(most=4096)
    mamba_d_state: int = count()
    mamba_expand: int = count()

    def __post_init__(self) -> None:
        """Take a single expert for an ordinary feed-forward."""
        if self.experts == 1:
            object.__setattr__(self, "experts", 0)

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is."""
        if self.layer_types:
            return super().kinds()
        period, offset = max(1, self.attn_layer_period), self.attn_layer_offset
        return tuple("full" if i % period == offset else "recurrent" for i in range(self.depth))

    def state_bytes(self, size: int) -> int:
        """Bytes of [inner, d_conv - 1] and [inner, d_state]."""
        inner = self.mamba_expand * self.hidden_size
        return inner * (self.mamba_d_conv - 1 + self.mamba_d_state) * size
