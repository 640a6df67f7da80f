"""The plan: what takes how many bytes, and how it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from h2o_py.config import H2OConfig

Known = Literal["exact", "modelled", "setting", "estimated"]

WEIGHTS, KV, STATE, LEDGER = "weights", "keys and values", "recurrent state", "ledger"
WORKING = ("activations", "attention", "chunk rows", "ledger copies", "logits")
ROUNDING, CACHE, APP = "page rounding", "MLX buffer cache", "app"


@dataclass(frozen=True)
class Term:
    """One thing that takes memory.

    known: exact (from shapes), modelled (what MLX allocates at the worst moment), setting
    (a limit that the app sets) or estimated. what: in words.
    """

    name: str
    bytes: int
    known: Known
    what: str


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by purpose, and what they were planned for.

    terms: in the order in which they are shown; they add up to `total`. context, step:
    tokens. generation: bytes that a generated token takes at most, where prefill takes
    more and is what the terms have; prefill likewise.
    """

    terms: tuple[Term, ...]
    backend: str
    storage: str
    group_size: int
    caches_of_layers: tuple[H2OConfig | None, ...]
    context: int
    step: int
    prefill_peak: int
    decode_peak: int

    def of(self, *names: str) -> int:
        """Bytes of the terms of these names."""
        return sum(term.bytes for term in self.terms if term.name in names)

    @property
    def total(self) -> int:
        """All of it."""
        return sum(term.bytes for term in self.terms)

    @property
    def mlx(self) -> int:
        """What MLX's own counters call peak memory: neither its cache nor the app."""
        return self.total - self.of(CACHE, APP)

    @property
    def weights(self) -> int:
        """Of all weights."""
        return self.of(WEIGHTS)

    @property
    def caches(self) -> int:
        """Of the caches when they are full, with their ledgers."""
        return self.of(KV, STATE, LEDGER)

    @property
    def prefill(self) -> int:
        """Of a chunk of the prompt, or of a generated token if that takes more."""
        return self.of(*WORKING, ROUNDING)

    @property
    def buffer_cache(self) -> int:
        """What MLX may keep of buffers that were freed."""
        return self.of(CACHE)

    def document(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "backend": self.backend,
            "kv": self.storage,
            "context": self.context,
            "prefill_step": self.step,
            "terms": [vars(term) for term in self.terms],
            "prefill_peak": self.prefill_peak,
            "decode_peak": self.decode_peak,
            "mlx": self.mlx,
            "total": self.total,
        }
