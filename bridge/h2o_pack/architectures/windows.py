"""Families in which some layers attend to a window of the newest tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from h2o_pack.architectures.decoder import Decoder, Listed, Mixture
from h2o_pack.architectures.fields import count, counts, flag, names
from h2o_pack.architectures.model import Layer, LayerKind

if TYPE_CHECKING:
    from h2o_pack.errors import Problems


@dataclass(frozen=True, kw_only=True)
class Windowed(Decoder):
    """A decoder with sliding layers."""

    sliding_window: int = count(default=0)

    @property
    def window(self) -> int:
        """Tokens that a sliding layer attends to."""
        return self.sliding_window


@dataclass(frozen=True, kw_only=True)
class Layered(Listed, Windowed):
    """A decoder whose layer_types name its sliding layers."""

    def check(self, problems: Problems) -> None:
        """Note sliding layers without a window."""
        super().check(problems)
        if "sliding" in self.kinds() and not self.sliding_window:
            problems.add("layer_types has sliding layers, and sliding_window is not given")


@dataclass(frozen=True, kw_only=True)
class WithoutWindows(Layered):
    """A family whose sliding layers upstream would not serve as it should."""

    why: ClassVar[str]
    remedy: ClassVar[str] = "Choose a model of another family."

    def check(self, problems: Problems) -> None:
        """Refuse sliding layers."""
        super().check(problems)
        if "sliding" in self.kinds():
            problems.add(f"this model has sliding-window layers, {self.why}", self.remedy)


@dataclass(frozen=True, kw_only=True)
class Llama(WithoutWindows):
    """llama, mistral and smollm3."""

    why = (
        "which mlx-swift-lm's Llama.swift and SmolLM3.swift take for layers that attend to "
        "the whole context"
    )


@dataclass(frozen=True, kw_only=True)
class Ministral3(WithoutWindows):
    """ministral3 or mistral, the language model inside mistral3."""

    why = "for which mlx-lm's mistral3 makes plain caches and mlx-swift-lm's rotating ones"


@dataclass(frozen=True, kw_only=True)
class Exaone4(WithoutWindows):
    """exaone4: sliding_window_pattern is repeated over the layers, L local, G global."""

    KINDS: ClassVar[Mapping[str, LayerKind]] = {"L": "sliding", "G": "full"}
    why = (
        "and mlx-swift-lm's Exaone4.swift uses one mask for layers with a window and layers "
        "without"
    )
    remedy = "Choose a model of another family, or EXAONE 4.0 1.2B, which has none."

    layer_types: tuple[str, ...] = names(key="sliding_window_pattern")

    def one_per_layer(self, problems: Problems, *fields: str) -> None:
        """Nothing: the pattern is repeated."""

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is."""
        return (super().kinds() * self.depth)[: self.depth]


@dataclass(frozen=True, kw_only=True)
class GPTOSS(Layered, Mixture):
    """gpt_oss: without layer_types, sliding and full layers take turns."""

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is."""
        return super().kinds() if self.layer_types else self.every(2, "sliding")


@dataclass(frozen=True, kw_only=True)
class AfMoE(Layered, Mixture):
    """afmoe (Trinity)."""


@dataclass(frozen=True, kw_only=True)
class Gemma3Text(Windowed):
    """gemma3_text: every sliding_window_pattern-th layer attends to the whole context."""

    sliding_window: int = count(default=512)
    sliding_window_pattern: int = count(default=6)

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is."""
        return self.every(self.sliding_window_pattern, "sliding")


@dataclass(frozen=True, kw_only=True)
class Gemma3(Gemma3Text):
    """The text_config of gemma3, which may leave out its head counts.

    num_hidden_layers has a default in mlx_lm only; without one a package says nothing.
    """

    OMITTED: ClassVar = {"num_attention_heads": (8, 4), "num_key_value_heads": (4, 1)}
    num_attention_heads: int = count(default=0)
    omitted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Take the head counts that mlx_lm takes."""
        omitted = tuple(name for name in self.OMITTED if not getattr(self, name))
        object.__setattr__(self, "omitted", omitted)
        for name in omitted:
            object.__setattr__(self, name, self.OMITTED[name][0])

    def remarks(self) -> tuple[str, ...]:
        """Say where upstream's Swift fills in other numbers than mlx_lm."""
        said = [
            "{} (mlx_lm takes {}, mlx-swift-lm {})".format(name, *self.OMITTED[name])
            for name in self.omitted
        ]
        advice = (
            f"text_config of config.json lacks {' and '.join(said)}: add them, or the package "
            "cannot load the weights."
        )
        return (advice,) if said else ()


@dataclass(frozen=True, kw_only=True)
class Gemma4(Listed, Windowed, Mixture):
    """gemma4_text: full layers have heads of their own, and the last layers no keys.

    The last num_kv_shared_layers attend to the rows of the last layer before them of their
    type, so they keep nothing.
    """

    sliding_window_pattern: int = count(default=5)
    global_head_dim: int = count(default=0, least=0)
    num_global_key_value_heads: int = count(default=0)
    attention_k_eq_v: bool = flag(default=False)
    num_kv_shared_layers: int = count(default=0, least=0)
    use_double_wide_mlp: bool = flag(default=False)
    enable_moe_block: bool = flag(default=False)

    def check(self, problems: Problems) -> None:
        """Note shared keys that no layer has."""
        super().check(problems)
        shared, listed = self.num_kv_shared_layers, self.listed()
        if shared and not set(listed[: self.own]) >= set(listed):
            problems.add(
                f"the last {shared} layers share keys of layers of their type, and none is "
                "before them"
            )

    @property
    def own(self) -> int:
        """Layers that have keys of their own."""
        return max(0, self.depth - self.num_kv_shared_layers)

    @property
    def mixture(self) -> tuple[int, int]:
        """Experts of a layer, and how many of them a token passes; 0 without."""
        return super().mixture if self.enable_moe_block else (0, 0)

    @property
    def feed_forward(self) -> int:
        """Width of the feed-forward, twice that where keys are shared, and of the experts."""
        wide = self.use_double_wide_mlp and self.num_kv_shared_layers
        dense = self.intermediate_size * (2 if wide else 1)
        return dense + self.mixture[1] * self.expert_width

    def remarks(self) -> tuple[str, ...]:
        """Say which upstream version has the experts."""
        advice = (
            "of mlx-swift-lm, only main-2026-08-22 has the experts of this model: give "
            "`h2o-pack ios` --upstream-version."
        )
        return (advice,) if self.enable_moe_block else ()

    def listed(self) -> tuple[LayerKind, ...]:
        """Return what each layer attends to."""
        if self.layer_types:
            return super().kinds()
        return self.every(self.sliding_window_pattern, "sliding")

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is."""
        owned = enumerate(self.listed())
        return tuple(kind if index < self.own else "none" for index, kind in owned)

    def full(self) -> Layer:
        """Return a layer that attends to the whole context."""
        dim, heads = self.global_head_dim or self.key_dim, self.kv_heads
        if self.attention_k_eq_v:
            heads = self.num_global_key_value_heads or heads
        return Layer("full", heads, dim, dim)

    def sliding(self) -> Layer:
        """Return a layer that attends to the newest tokens."""
        return Layer("sliding", self.kv_heads, self.key_dim, self.key_dim, self.window)


@dataclass(frozen=True, kw_only=True)
class MiMoV2(Mixture, Windowed):
    """mimo_v2_flash: sliding layers, marked 1 in the pattern, have their own head counts."""

    v_head_dim: int = count()
    swa_num_attention_heads: int = count()
    swa_num_key_value_heads: int = count()
    swa_head_dim: int = count()
    swa_v_head_dim: int = count()
    hybrid_layer_pattern: tuple[int, ...] = counts()
    moe_layer_freq: tuple[int, ...] = counts()
    sliding_window: int = count(key="sliding_window_size")

    def check(self, problems: Problems) -> None:
        """Note lists that do not tell of every layer."""
        super().check(problems)
        self.one_per_layer(problems, "hybrid_layer_pattern", "moe_layer_freq")

    @property
    def has_dense_layers(self) -> bool:
        """Whether a layer has no experts."""
        return 0 in self.moe_layer_freq

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is."""
        return tuple("sliding" if kind == 1 else "full" for kind in self.hybrid_layer_pattern)

    def full(self) -> Layer:
        """Return a layer that attends to the whole context."""
        return Layer("full", self.kv_heads, self.key_dim, self.v_head_dim)

    def sliding(self) -> Layer:
        """Return a layer that attends to the newest tokens."""
        heads, window = self.swa_num_key_value_heads, self.window
        return Layer("sliding", heads, self.swa_head_dim, self.swa_v_head_dim, window)


@dataclass(frozen=True, kw_only=True)
class BaichuanM1(Windowed):
    """baichuan_m1: keys and values are mixed with the token before, which is kept."""

    sliding_window: int = count()
    sliding_window_layers: tuple[int, ...] = counts()
    num_swa_attention_heads: int = count(default=0)
    num_swa_key_value_heads: int = count(default=0)

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return what each layer is."""
        local = set(self.sliding_window_layers)
        return tuple("sliding" if i in local else "full" for i in range(self.depth))

    def sliding(self) -> Layer:
        """Return a sliding layer, which may have head counts of its own."""
        dim = self.hidden_size // (self.num_swa_attention_heads or self.num_attention_heads)
        heads = self.num_swa_key_value_heads or self.num_key_value_heads
        return Layer("sliding", heads, dim, dim, self.window)

    def layers(self, size: int) -> tuple[Layer, ...]:
        """Return the layers, each with the token before."""
        found = super().layers(size)
        return tuple(replace(each, state_bytes=each.row_elements * size) for each in found)
