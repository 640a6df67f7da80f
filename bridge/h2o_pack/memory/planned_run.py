"""What is planned: a model with its caches and its longest conversation, and MLX's backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from h2o_pack.facts import FOLDER, by
from h2o_pack.files.toml import read_rows
from h2o_pack.memory.cache_bytes import LayerArchive
from h2o_pack.memory.storages import Storage, archive_bits, storage_of
from h2o_pack.model import Layer, Model, ModelConfig
from h2o_pack.spec import PREFILL_STEP
from h2o_py.config import H2OConfig, H2ORecall


@dataclass(frozen=True)
class PlannedRun:
    """A model with its caches, and how it reads text.

    caches: one per layer, None for layers that keep mlx_lm's cache. kv: storage of rows.
    context: tokens of the longest conversation; None for the model's context. step: tokens of a
    prompt that are read at once. archive_in_files: whether recall's archives are files.
    drops_thoughts: whether later turns leave out a reply's thoughts, so that a session keeps a
    copy of the caches from before them.
    """

    model: Model
    caches: tuple[H2OConfig | None, ...]
    kv: str = "16"
    context: int | None = None
    step: int = PREFILL_STEP
    archive_in_files: bool = False
    drops_thoughts: bool = False

    @property
    def config(self) -> ModelConfig:
        """The shapes of the model."""
        return self.model.config

    @property
    def tokens(self) -> int:
        """The tokens of the longest conversation."""
        return self.config.context if self.context is None else self.context

    @cached_property
    def storage(self) -> Storage:
        """The storage of the rows of caches that evict."""
        return storage_of(self.kv, self.config, archive_bits(self.caches))

    @cached_property
    def pairs(self) -> list[tuple[Layer, H2OConfig | None]]:
        """Each layer with its cache."""
        return list(zip(self.config.layers, self.caches, strict=True))

    @cached_property
    def archives(self) -> list[tuple[LayerArchive, H2OConfig, H2ORecall]]:
        """The archive of each layer that recalls, with its cache and settings."""
        element = self.config.element_bytes
        return [
            (LayerArchive(layer, recall.archive_bits, element, recall.limit), cache, recall)
            for layer, cache in self.pairs
            if cache is not None and cache.evicts and (recall := cache.recall) is not None
        ]

    @property
    def grows(self) -> bool:
        """Whether some layer's cache grows with the text without a bound."""
        return any(
            layer.kind == "full" and (cache is None or not cache.evicts)
            for layer, cache in self.pairs
        )

    @cached_property
    def uniform(self) -> bool:
        """Whether all layers have the same shapes and the same kind of cache."""
        return len(set(self.pairs)) == 1


@dataclass(frozen=True)
class Backend:
    """A backend of MLX with its runtime; facts/backends.toml documents the fields."""

    name: str
    what: str
    prefill_heads: tuple[int, ...]
    page: int
    dispatches: int
    mega_elements: int
    tasks: int
    metal: bool
    logits: str
    source: str
    measured: bool
    margin: float

    @property
    def longest_window(self) -> int:
        """The most dispatches that are queued and not done, if only dispatches end tasks."""
        return self.tasks * (self.dispatches + 1)

    def fuses(self, key_dim: int, value_dim: int) -> bool:
        """Whether MLX computes a chunk's attention without storing its matrix of logits."""
        return key_dim == value_dim and key_dim in self.prefill_heads


@cache
def backends() -> Mapping[str, Backend]:
    """Return the backends of facts/backends.toml by name."""
    return by("name", read_rows(FOLDER / "backends.toml", "backend", Backend))
