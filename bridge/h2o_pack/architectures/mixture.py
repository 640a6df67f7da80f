"""Mixtures of experts with plain attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_pack.architectures.decoder import Decoder, WithHeadDim
from h2o_pack.architectures.fields import count, counts

if TYPE_CHECKING:
    from h2o_pack.errors import Problems


@dataclass(frozen=True, kw_only=True)
class Chosen(Decoder):
    """Of num_experts experts a token passes num_experts_per_tok."""

    num_experts: int = count()
    num_experts_per_tok: int = count()

    def check(self, problems: Problems) -> None:
        """Note more experts per token than there are."""
        super().check(problems)
        if self.experts and self.experts_per_token > self.experts:
            problems.add(
                f"a token passes {self.experts_per_token} experts, and there are {self.experts}"
            )

    @property
    def experts(self) -> int:
        """Experts of a layer."""
        return self.num_experts

    @property
    def experts_per_token(self) -> int:
        """Experts that one token passes."""
        return self.num_experts_per_tok

    @property
    def feed_forward(self) -> int:
        """Width of what one token passes in a layer of experts."""
        return self.num_experts_per_tok * self.intermediate_size


@dataclass(frozen=True, kw_only=True)
class LocalExperts(Chosen):
    """Families that call the number of experts num_local_experts."""

    num_experts: int = 0
    num_local_experts: int = count()

    @property
    def experts(self) -> int:
        """Experts of a layer."""
        return self.num_local_experts


@dataclass(frozen=True, kw_only=True)
class Mixtral(LocalExperts):
    """mixtral."""

    hidden_size: int = count(default=4096)
    num_hidden_layers: int = count(default=32)
    num_attention_heads: int = count(default=32)
    num_key_value_heads: int = count(default=8)
    intermediate_size: int = count(default=14336)
    vocab_size: int = count(default=32000)
    num_local_experts: int = count(default=8)
    num_experts_per_tok: int = count(default=2)


@dataclass(frozen=True, kw_only=True)
class PhiMoE(LocalExperts):
    """phimoe (Phi-3.5-MoE)."""

    hidden_size: int = count(default=4096)
    num_hidden_layers: int = count(default=32)
    num_attention_heads: int = count(default=32)
    num_key_value_heads: int = count(default=8)
    intermediate_size: int = count(default=6400)
    vocab_size: int = count(default=32064)
    max_position_embeddings: int = count(default=131072)
    num_local_experts: int = count(default=16)
    num_experts_per_tok: int = count(default=2)


@dataclass(frozen=True, kw_only=True)
class MiniMax(LocalExperts, WithHeadDim):
    """minimax."""

    num_key_value_heads: int = count()


@dataclass(frozen=True, kw_only=True)
class OlmoE(Chosen, WithHeadDim):
    """olmoe."""


@dataclass(frozen=True, kw_only=True)
class Qwen3MoE(Chosen, WithHeadDim):
    """qwen3_moe: layers in mlp_only_layers are dense and intermediate_size wide."""

    num_key_value_heads: int = count()
    head_dim: int = count()
    moe_intermediate_size: int = count()
    decoder_sparse_step: int = count()
    mlp_only_layers: tuple[int, ...] | None = counts(required=True)

    @property
    def feed_forward(self) -> int:
        """The wider of a dense layer, if there is one, and the experts of a token."""
        experts = self.num_experts_per_tok * self.moe_intermediate_size
        sparse = [
            (index + 1) % self.decoder_sparse_step == 0
            and index not in (self.mlp_only_layers or ())
            for index in range(self.depth)
        ]
        return experts if all(sparse) else max(experts, self.intermediate_size)


@dataclass(frozen=True, kw_only=True)
class GLM4MoE(Chosen, WithHeadDim):
    """glm4_moe: the first layers are dense, the others have shared experts too."""

    num_experts: int = 0
    num_key_value_heads: int = count()
    head_dim: int = count()
    moe_intermediate_size: int = count()
    n_routed_experts: int = count()
    n_shared_experts: int = count(least=0)
    first_k_dense_replace: int = count(least=0)

    @property
    def experts(self) -> int:
        """Experts that are chosen from."""
        return self.n_routed_experts

    @property
    def feed_forward(self) -> int:
        """The wider of a dense layer, if there is one, and the experts of a token."""
        passed = self.num_experts_per_tok + self.n_shared_experts
        experts = passed * self.moe_intermediate_size
        return max(experts, self.intermediate_size) if self.first_k_dense_replace else experts


@dataclass(frozen=True, kw_only=True)
class BailingMoE(Chosen):
    """bailing_moe (Ling)."""

    num_key_value_heads: int = count()
    moe_intermediate_size: int = count()
    num_shared_experts: int = count(least=0)
    first_k_dense_replace: int = count(least=0)
    moe_shared_expert_intermediate_size: int = count(default=0)

    @property
    def feed_forward(self) -> int:
        """The wider of a dense layer, if there is one, and the experts of a token."""
        shared = self.moe_shared_expert_intermediate_size or self.moe_intermediate_size
        experts = (
            self.num_experts_per_tok * self.moe_intermediate_size
            + self.num_shared_experts * shared
        )
        return max(experts, self.intermediate_size) if self.first_k_dense_replace else experts
