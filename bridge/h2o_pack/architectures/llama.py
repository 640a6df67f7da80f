"""llama and what mlx_lm runs with the same code: mistral, smollm3, olmo2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_pack.architectures.decoder import WithHeadDim, check_kinds
from h2o_pack.architectures.fields import count, names
from h2o_pack.architectures.model import Layer

if TYPE_CHECKING:
    from h2o_pack.errors import Problems

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class Layered(WithHeadDim):
    """A decoder whose layer_types name its sliding layers; without, all are full."""

    layer_types: tuple[str, ...] | None = names()
    sliding_window: int = count(default=0)

    def check(self, problems: Problems) -> None:
        """Note layer types without a window, or not one for each layer."""
        super().check(problems)
        check_kinds(self.layer_types, self.depth, (FULL, SLIDING), problems)
        if SLIDING in (self.layer_types or ()) and not self.sliding_window:
            problems.add("layer_types has sliding layers, and sliding_window is not given")

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers by their types."""
        if self.layer_types is None:
            return super().layers(size)
        kinds = {FULL: self.full(), SLIDING: self.sliding(self.sliding_window)}
        return tuple(kinds[kind] for kind in self.layer_types)


@dataclass(frozen=True, kw_only=True)
class Llama(Layered):
    """llama, mistral and smollm3."""

    def check(self, problems: Problems) -> None:
        """Refuse sliding layers: upstream's Swift model would compute something else."""
        super().check(problems)
        if SLIDING in (self.layer_types or ()):
            problems.add(
                "this model has sliding-window layers, which mlx-swift-lm's Llama.swift and "
                "SmolLM3.swift take for layers that attend to the whole context",
                "Choose a model of another family.",
            )


@dataclass(frozen=True, kw_only=True)
class Ministral3(Layered):
    """ministral3 or mistral, the language model inside mistral3."""

    def check(self, problems: Problems) -> None:
        """Refuse sliding layers, for which the two upstreams make different caches."""
        super().check(problems)
        if SLIDING in (self.layer_types or ()):
            problems.add(
                "this model has sliding-window layers, for which mlx-lm's mistral3 makes "
                "plain caches and mlx-swift-lm's rotating ones",
                "Choose a model of another family.",
            )


@dataclass(frozen=True, kw_only=True)
class Olmo2(WithHeadDim):
    """olmo2."""
