"""Families in which some layers attend to a window of the newest tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_pack.architectures.decoder import WithHeadDim
from h2o_pack.architectures.fields import count, counts, names
from h2o_pack.architectures.llama import Layered
from h2o_pack.architectures.mixture import Chosen, LocalExperts
from h2o_pack.architectures.model import Layer

if TYPE_CHECKING:
    from h2o_pack.errors import Problems


@dataclass(frozen=True, kw_only=True)
class GPTOSS(LocalExperts, Layered):
    """gpt_oss: without layer_types, sliding and full layers take turns."""

    hidden_size: int = count(default=2880)
    num_hidden_layers: int = count(default=36)
    num_attention_heads: int = count(default=64)
    num_key_value_heads: int = count(default=8)
    head_dim: int = count(default=64)
    intermediate_size: int = count(default=2880)
    vocab_size: int = count(default=201088)
    num_local_experts: int = count(default=128)
    num_experts_per_tok: int = count(default=4)
    sliding_window: int = count(default=128)

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers by their types."""
        if self.layer_types is not None:
            return super().layers(size)
        pair = (self.sliding(self.sliding_window), self.full())
        return pair * (self.depth // 2)


@dataclass(frozen=True, kw_only=True)
class AfMoE(Chosen, Layered):
    """afmoe (Trinity)."""

    layer_types: tuple[str, ...] | None = names(required=True)
    hidden_size: int = count(default=2048)
    num_hidden_layers: int = count(default=32)
    num_attention_heads: int = count(default=32)
    num_key_value_heads: int = count(default=4)
    head_dim: int = count(default=64)
    intermediate_size: int = count(default=6144)
    vocab_size: int = count(default=200192)
    max_position_embeddings: int = count(default=131072)
    sliding_window: int = count(default=2048)
    moe_intermediate_size: int = count(default=1024)
    num_experts: int = count(default=128)
    num_experts_per_tok: int = count(default=8)
    num_shared_experts: int = count(default=1, least=0)
    num_dense_layers: int = count(default=2, least=0)

    @property
    def feed_forward(self) -> int:
        """The wider of a dense layer, if there is one, and the experts of a token."""
        passed = self.num_experts_per_tok + self.num_shared_experts
        experts = passed * self.moe_intermediate_size
        return max(experts, self.intermediate_size) if self.num_dense_layers else experts


@dataclass(frozen=True, kw_only=True)
class MiMoV2(Chosen, WithHeadDim):
    """mimo_v2_flash: sliding layers have heads of their own."""

    num_experts: int = 0
    num_key_value_heads: int = count()
    head_dim: int = count()
    v_head_dim: int = count()
    swa_num_attention_heads: int = count()
    swa_num_key_value_heads: int = count()
    swa_head_dim: int = count()
    swa_v_head_dim: int = count()
    hybrid_layer_pattern: tuple[int, ...] | None = counts(required=True)
    moe_layer_freq: tuple[int, ...] | None = counts(required=True)
    sliding_window_size: int = count()
    moe_intermediate_size: int = count()
    n_routed_experts: int = count()
    n_shared_experts: int = count(default=0, least=0)

    def check(self, problems: Problems) -> None:
        """Note lists that do not tell of every layer."""
        super().check(problems)
        for name in ("hybrid_layer_pattern", "moe_layer_freq"):
            given = getattr(self, name)
            if given and self.depth and len(given) != self.depth:
                problems.add(f"{name} tells of {len(given)} layers, and there are {self.depth}")

    @property
    def experts(self) -> int:
        """Experts that are chosen from."""
        return self.n_routed_experts

    @property
    def feed_forward(self) -> int:
        """The wider of a dense layer, if there is one, and the experts of a token."""
        passed = self.num_experts_per_tok + self.n_shared_experts
        dense = 0 in (self.moe_layer_freq or ())
        return max(passed * self.moe_intermediate_size, dense * self.intermediate_size)

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers: 1 in the pattern is a sliding one."""
        del size
        full = Layer("full", self.kv_heads, self.key_dim, self.v_head_dim)
        sliding = Layer(
            "sliding",
            self.swa_num_key_value_heads,
            self.swa_head_dim,
            self.swa_v_head_dim,
            self.sliding_window_size,
        )
        return tuple(sliding if kind == 1 else full for kind in self.hybrid_layer_pattern or ())
