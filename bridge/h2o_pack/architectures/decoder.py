"""What the configurations of nearly all decoders have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from h2o_pack.architectures.fields import MAX_LAYERS, UNNAMED, count, counts, key_of, names
from h2o_pack.architectures.model import Layer, LayerKind
from h2o_pack.errors import Problems, shown

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A decoder whose layers all attend to the whole context.

    Fields bear the names of config.json; facts/architectures.toml has the names, defaults
    and required keys of model types that differ, as mlx_lm's ModelArgs states them. A 0 in
    num_key_value_heads means as many as query heads, in head_dim the quotient. No family
    with this class itself has a sliding_window: its caches are plain ones.
    """

    hidden_size: int = count()
    num_hidden_layers: int = count(most=MAX_LAYERS)
    num_attention_heads: int = count()
    num_key_value_heads: int = count(default=0)
    head_dim: int = count(default=0)
    intermediate_size: int = count()
    vocab_size: int = count()
    max_position_embeddings: int = count()

    def check(self, problems: Problems) -> None:
        """Note values that contradict each other; those that are 0 were noted already."""
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        if heads and kv_heads and heads % kv_heads:
            problems.add(f"{heads} query heads cannot share {kv_heads} KV heads evenly")
        if heads and self.hidden_size and not self.key_dim:
            problems.add(f"hidden_size {self.hidden_size} gives {heads} heads no element each")

    @property
    def depth(self) -> int:
        """Decoder layers."""
        return self.num_hidden_layers

    @property
    def kv_heads(self) -> int:
        """KV heads."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def key_dim(self) -> int:
        """Elements of a head's key, and of its value."""
        return self.head_dim or self.hidden_size // max(1, self.num_attention_heads)

    @property
    def feed_forward(self) -> int:
        """Width of the widest feed-forward that one token passes."""
        return self.intermediate_size

    @property
    def mixture(self) -> tuple[int, int]:
        """Experts of a layer, and how many of them a token passes; 0 without."""
        return 0, 0

    @property
    def window(self) -> int:
        """Tokens that a sliding layer attends to."""
        return 0

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers, given the bytes of an element of activations."""
        made = {
            "full": self.full(),
            "sliding": self.sliding(),
            "recurrent": Layer("recurrent", state_bytes=self.state_bytes(size)),
            "none": Layer("none"),
        }
        return tuple(made[kind] for kind in self.kinds())

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is."""
        return self.every(1, "full")

    def full(self) -> Layer:
        """Return a layer that attends to the whole context."""
        return Layer("full", self.kv_heads, self.key_dim, self.key_dim)

    def sliding(self) -> Layer:
        """Return a layer that attends to the newest tokens."""
        return replace(self.full(), kind="sliding", window=self.window)

    def state_bytes(self, size: int) -> int:
        """Bytes of a recurrent layer's state, as mlx_lm's `ArraysCache` holds it."""
        del size
        return 0

    def remarks(self) -> tuple[str, ...]:
        """Return what a user should know of such a configuration."""
        return ()

    def one_per_layer(self, problems: Problems, *fields: str) -> None:
        """Note lists that do not tell of every layer."""
        for name in fields:
            told = len(getattr(self, name))
            if self.depth and told != self.depth:
                key = key_of(self, name)
                problems.add(f"{key} tells of {told} layers, and there are {self.depth}")

    def every(self, period: int, other: LayerKind) -> tuple[LayerKind, ...]:
        """Return full layers at the end of each period, others between."""
        period = period or 1  # 0 stands for a value that was refused
        return tuple(other if (index + 1) % period else "full" for index in range(self.depth))


@dataclass(frozen=True, kw_only=True)
class Listed(Decoder):
    """A decoder whose layer_types say what each layer is; without, all are full."""

    KINDS: ClassVar[Mapping[str, LayerKind]] = {FULL: "full", SLIDING: "sliding"}
    layer_types: tuple[str, ...] = names()

    def check(self, problems: Problems) -> None:
        """Note layer types that are unknown, or not one for each layer."""
        super().check(problems)
        key, listed = key_of(self, "layer_types"), ", ".join(self.KINDS)
        for kind in sorted(set(self.layer_types) - set(self.KINDS)):
            problems.add(f"{key} has {shown(kind)}, which is none of {listed}")
        if self.layer_types:
            self.one_per_layer(problems, "layer_types")

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is, by its type."""
        known = tuple(self.KINDS.get(each, "none") for each in self.layer_types)
        return known or super().kinds()


def named_count() -> Any:
    """Declare a whole number that is read where the model type names its key."""
    return count(default=0, least=0, key=UNNAMED)


@dataclass(frozen=True, kw_only=True)
class Mixture(Decoder):
    """A decoder in which a token passes some of many experts, and shared ones besides.

    Without experts it is an ordinary one. Fields without a key are read where the model type
    names one. expert_width: 0 for intermediate_size. shared_width: of each shared expert, or
    of all where shared_experts is 0.
    """

    experts: int = count(key="num_experts", default=0, least=0)
    experts_per_token: int = count(key="num_experts_per_tok", default=0, least=0)
    expert_width: int = named_count()
    shared_experts: int = named_count()
    shared_width: int = named_count()
    dense_layers: int = named_count()
    sparse_step: int = named_count()
    dense_indices: tuple[int, ...] = counts(key=UNNAMED)

    def check(self, problems: Problems) -> None:
        """Note more experts per token than there are."""
        super().check(problems)
        if self.experts and self.experts_per_token > self.experts:
            problems.add(
                f"a token passes {self.experts_per_token} experts, and there are {self.experts}"
            )

    @property
    def mixture(self) -> tuple[int, int]:
        """Experts of a layer, and how many of them a token passes; 0 without."""
        return (self.experts, self.experts_per_token) if self.experts else (0, 0)

    @property
    def has_dense_layers(self) -> bool:
        """Whether some layers have a feed-forward of intermediate_size instead of experts."""
        return bool(self.dense_layers or self.dense_indices or self.sparse_step > 1)

    @property
    def feed_forward(self) -> int:
        """The wider of a dense layer, if there is one, and the experts of a token."""
        if not self.experts:
            return self.intermediate_size
        width = self.expert_width or self.intermediate_size
        shared = self.shared_width
        if self.shared_experts:
            shared = self.shared_experts * (shared or width)
        experts = self.experts_per_token * width + shared
        return max(experts, self.intermediate_size) if self.has_dense_layers else experts
