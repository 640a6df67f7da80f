"""Where a model runs, as far as memory depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from h2o_pack.facts import FOLDER, by
from h2o_pack.files.toml import read_tables
from h2o_pack.memory.graph import Graph

MEGA = 1 << 20


@dataclass(frozen=True)
class Backend:
    """A backend of MLX and the runtime above it; the fields are facts/backends.toml's."""

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
        """Dispatches that are queued and not done where they alone close tasks."""
        return self.tasks * (self.dispatches + 1)

    def window(self, graph: Graph) -> float:
        """Dispatches that are queued and not done, at most.

        A task is closed by its dispatches or by the elements of its inputs, whichever
        comes first; on average over the graph one of the two rules. The operation that
        closes a task is part of it: a task has by half of that operation's elements more
        than the limit, on average sum(e^2) / (2 sum(e)) (the mean excess of a renewal).
        """
        longest = float(self.longest_window)
        if not (self.mega_elements and graph.elements):
            return longest
        limit = (self.mega_elements + 1) * MEGA + graph.squared / (2 * graph.elements)
        return min(longest, self.tasks * limit * graph.dispatches / graph.elements)

    def fuses(self, key_dim: int, value_dim: int) -> bool:
        """Whether attention of a chunk is computed without its matrix of logits."""
        return key_dim == value_dim and key_dim in self.prefill_heads


@dataclass(frozen=True)
class BackendsFile:
    """facts/backends.toml."""

    backend: tuple[Backend, ...]


@cache
def backends() -> Mapping[str, Backend]:
    """Backends by name."""
    return by("name", read_tables(FOLDER / "backends.toml", BackendsFile).backend)
