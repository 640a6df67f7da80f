"""What the configurations of nearly all decoders have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_pack.architectures.fields import count, layer_count
from h2o_pack.architectures.model import Layer
from h2o_pack.errors import shown

if TYPE_CHECKING:
    from h2o_pack.errors import Problems


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A decoder whose layers all attend to the whole context.

    Fields bear the names of config.json and the defaults of mlx_lm's ModelArgs; a 0 in
    num_key_value_heads means as many as query heads. A key of a head has
    hidden_size / num_attention_heads elements: mlx_lm's families with this class read no
    head_dim. Nor do they read sliding_window: their caches are plain ones.
    """

    hidden_size: int = count()
    num_hidden_layers: int = layer_count()
    num_attention_heads: int = count()
    num_key_value_heads: int = count(default=0)
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
    def heads(self) -> int:
        """Query heads."""
        return self.num_attention_heads

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
        return self.hidden_size // max(1, self.num_attention_heads)

    @property
    def feed_forward(self) -> int:
        """Width of the widest feed-forward that one token passes."""
        return self.intermediate_size

    @property
    def experts(self) -> int:
        """Experts of a mixture, 0 without."""
        return 0

    @property
    def experts_per_token(self) -> int:
        """Experts that one token passes."""
        return 0

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers, given the bytes of an element of activations."""
        del size  # only recurrent states have sizes in bytes
        return (self.full(),) * self.depth

    def full(self) -> Layer:
        """Return a layer that attends to the whole context."""
        return Layer("full", self.kv_heads, self.key_dim, self.key_dim)

    def sliding(self, window: int) -> Layer:
        """Return a layer that attends to the newest `window` tokens."""
        return Layer("sliding", self.kv_heads, self.key_dim, self.key_dim, window)

    def remarks(self) -> tuple[str, ...]:
        """Return what a user should know of such a configuration."""
        return ()


@dataclass(frozen=True, kw_only=True)
class WithHeadDim(Decoder):
    """A decoder that may state its head_dim; 0 stands for the quotient."""

    head_dim: int = count(default=0)

    @property
    def key_dim(self) -> int:
        """Elements of a head's key, and of its value."""
        return self.head_dim or self.hidden_size // max(1, self.num_attention_heads)


def check_kinds(
    given: tuple[str, ...] | None,
    depth: int,
    known: tuple[str, ...],
    problems: Problems,
    name: str = "layer_types",
) -> None:
    """Note a list of layer types that is not one known name per layer."""
    if given is None:
        return
    for kind in sorted(set(given) - set(known)):
        problems.add(f"{name} has {shown(kind)}, which is none of {', '.join(known)}")
    if given and depth and len(given) != depth:
        problems.add(f"{name} tells of {len(given)} layers, and there are {depth}")
