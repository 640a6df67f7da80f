"""Families with Mamba layers among, or beside, those that attend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from h2o_pack.architectures.decoder import Decoder, WithHeadDim, check_kinds
from h2o_pack.architectures.fields import count, letters, names
from h2o_pack.architectures.mixture import Chosen
from h2o_pack.architectures.model import Layer

if TYPE_CHECKING:
    from h2o_pack.errors import Problems


def mamba2_bytes(
    heads: int, head_dim: int, state_size: int, groups: int, kernel: int, size: int
) -> int:
    """Bytes of a Mamba 2 layer's state.

    Convolution [kernel - 1, heads * head_dim + 2 * groups * state_size] and recurrence
    [heads, head_dim, state_size], of `size` bytes each (mlx_lm/models/ssm.py).
    """
    inner = heads * head_dim
    return ((kernel - 1) * (inner + 2 * groups * state_size) + inner * state_size) * size


@dataclass(frozen=True, kw_only=True)
class GraniteHybrid(Decoder):
    """granitemoehybrid (Granite 4): Mamba 2 layers and a few that attend."""

    num_key_value_heads: int = count()
    layer_types: tuple[str, ...] | None = names(required=True)
    num_local_experts: int = count(default=0, least=0)
    num_experts_per_tok: int = count(default=0, least=0)
    shared_intermediate_size: int = count(default=0, least=0)
    mamba_n_heads: int = count(default=0)
    mamba_d_head: int = count(default=0)
    mamba_d_state: int = count(default=0)
    mamba_d_conv: int = count(default=0, most=4096)
    mamba_n_groups: int = count(default=0)

    def check(self, problems: Problems) -> None:
        """Note Mamba layers without their sizes."""
        super().check(problems)
        check_kinds(self.layer_types, self.depth, ("mamba", "attention"), problems)
        if "mamba" not in (self.layer_types or ()):
            return
        for name in ("n_heads", "d_head", "d_state", "d_conv", "n_groups"):
            if not getattr(self, f"mamba_{name}"):
                problems.add(f"config.json lacks mamba_{name}")

    @property
    def experts(self) -> int:
        """Experts of a layer, 0 without."""
        return self.num_local_experts

    @property
    def experts_per_token(self) -> int:
        """Experts that one token passes."""
        return self.num_experts_per_tok if self.num_local_experts else 0

    @property
    def feed_forward(self) -> int:
        """Width of the chosen experts and the shared one, or of the dense layer."""
        if not self.num_local_experts:
            return self.intermediate_size
        return self.num_experts_per_tok * self.intermediate_size + self.shared_intermediate_size

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers by their types."""
        state = mamba2_bytes(
            self.mamba_n_heads,
            self.mamba_d_head,
            self.mamba_d_state,
            self.mamba_n_groups,
            self.mamba_d_conv,
            size,
        )
        mamba = Layer("recurrent", state_bytes=state)
        kinds = {"mamba": mamba, "attention": self.full()}
        return tuple(kinds[kind] for kind in self.layer_types or ())


@dataclass(frozen=True, kw_only=True)
class FalconH1(WithHeadDim):
    """falcon_h1: every layer attends and has a Mamba 2 state beside its keys."""

    hidden_size: int = count(default=1024)
    num_hidden_layers: int = count(default=36)
    num_attention_heads: int = count(default=8)
    num_key_value_heads: int = count(default=2)
    head_dim: int = count(default=64)
    intermediate_size: int = count(default=2048)
    vocab_size: int = count(default=32784)
    max_position_embeddings: int = count(default=131072)
    mamba_d_ssm: int = count(default=1536)
    mamba_n_heads: int = count(default=24)
    mamba_d_head: int = count(default=64)
    mamba_d_state: int = count(default=128)
    mamba_d_conv: int = count(default=4, most=4096)
    mamba_n_groups: int = count(default=1)

    def check(self, problems: Problems) -> None:
        """Note heads that do not make up the Mamba layer's width."""
        super().check(problems)
        inner = self.mamba_n_heads * self.mamba_d_head
        if self.mamba_d_ssm and inner and self.mamba_d_ssm != inner:
            problems.add(
                f"mamba_d_ssm is {self.mamba_d_ssm}, but mamba_n_heads and mamba_d_head "
                f"make {inner}"
            )

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers, each with both."""
        state = mamba2_bytes(
            self.mamba_n_heads,
            self.mamba_d_head,
            self.mamba_d_state,
            self.mamba_n_groups,
            self.mamba_d_conv,
            size,
        )
        return (replace(self.full(), state_bytes=state),) * self.depth


@dataclass(frozen=True, kw_only=True)
class NemotronH(WithHeadDim):
    """nemotron_h: one letter per layer, M Mamba 2, * attention, - feed-forward, E experts."""

    num_key_value_heads: int = count()
    hybrid_override_pattern: tuple[str, ...] | None = letters(required=True)
    mamba_num_heads: int = count()
    mamba_head_dim: int = count()
    ssm_state_size: int = count()
    conv_kernel: int = count(most=4096)
    n_groups: int = count()
    moe_intermediate_size: int = count(default=0)
    moe_shared_expert_intermediate_size: int = count(default=0, least=0)
    n_routed_experts: int = count(default=0)
    num_experts_per_tok: int = count(default=0)

    def check(self, problems: Problems) -> None:
        """Note a pattern that does not tell of every layer."""
        super().check(problems)
        check_kinds(
            self.hybrid_override_pattern,
            self.depth,
            tuple("M*-E"),
            problems,
            "hybrid_override_pattern",
        )

    @property
    def experts(self) -> int:
        """Experts that are chosen from, 0 without."""
        return self.n_routed_experts if "E" in (self.hybrid_override_pattern or ()) else 0

    @property
    def experts_per_token(self) -> int:
        """Experts that one token passes."""
        return self.num_experts_per_tok if self.experts else 0

    @property
    def feed_forward(self) -> int:
        """The wider of the dense layers and the experts of a token."""
        experts = (
            self.experts_per_token * self.moe_intermediate_size
            + self.moe_shared_expert_intermediate_size
        )
        dense = "-" in (self.hybrid_override_pattern or ())
        return max(bool(self.experts) * experts, dense * self.intermediate_size)

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers by their letters."""
        state = mamba2_bytes(
            self.mamba_num_heads,
            self.mamba_head_dim,
            self.ssm_state_size,
            self.n_groups,
            self.conv_kernel,
            size,
        )
        kinds = {"M": Layer("recurrent", state_bytes=state), "*": self.full()}
        nothing = Layer("none")
        return tuple(kinds.get(kind, nothing) for kind in self.hybrid_override_pattern or ())


@dataclass(frozen=True, kw_only=True)
class Jamba(Chosen):
    """jamba: Mamba 1 layers and a few that attend."""

    num_key_value_heads: int = count()
    attn_layer_offset: int = count(least=0)
    attn_layer_period: int = count()
    mamba_d_conv: int = count(most=4096)
    mamba_d_state: int = count()
    mamba_expand: int = count()
    layers_block_type: tuple[str, ...] | None = names()

    def check(self, problems: Problems) -> None:
        """Note types that are unknown, or not one for each layer."""
        super().check(problems)
        known = ("mamba", "attention")
        check_kinds(self.layers_block_type, self.depth, known, problems, "layers_block_type")

    @property
    def experts(self) -> int:
        """Experts of a layer; a single one is an ordinary feed-forward."""
        return self.num_experts if self.num_experts > 1 else 0

    @property
    def experts_per_token(self) -> int:
        """Experts that one token passes."""
        return self.num_experts_per_tok if self.experts else 0

    @property
    def feed_forward(self) -> int:
        """Width of what one token passes."""
        return max(1, self.experts_per_token) * self.intermediate_size

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers; a state is [inner, d_conv - 1] and [inner, d_state]."""
        inner = self.mamba_expand * self.hidden_size
        mamba = Layer(
            "recurrent", state_bytes=inner * (self.mamba_d_conv - 1 + self.mamba_d_state) * size
        )
        kinds = self.layers_block_type or tuple(
            "attention" if i % self.attn_layer_period == self.attn_layer_offset else "mamba"
            for i in range(self.depth)
        )
        return tuple(self.full() if kind == "attention" else mamba for kind in kinds)
