"""The plan: what takes how many bytes, and how it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from h2o_pack.results import Count, doc

Known = Literal["exact", "stated", "modelled", "setting", "estimated", "measured"]

WEIGHTS, KV, STATE, LEDGER = "weights", "keys and values", "recurrent state", "ledger"
WORKING = ("activations", "attention", "chunk rows", "ledger copies", "logits")
ARCHIVE, RECALL, THOUGHTS = "archive", "recall", "before thoughts"
ROUNDING, MARGIN = "page rounding", "margin"
CACHE, APP = "MLX buffer cache", "app"
MODELLED = (*WORKING, RECALL, ROUNDING)
"""What a margin is added to."""
ALL = (
    *(WEIGHTS, KV, STATE, LEDGER, ARCHIVE, THOUGHTS),
    *(*WORKING, RECALL, ROUNDING, MARGIN, CACHE, APP),
)
"""Every term in the order shown; a plan has those that can be more than nothing."""


@dataclass(frozen=True)
class Term:
    """One thing that takes memory.

    known: exact (from shapes), stated (by the catalogue), modelled (what MLX allocates at the
    worst moment), setting (a limit that the app sets), estimated, or measured (on a device).
    """

    name: Annotated[str, doc("Of the term.")]
    bytes: Annotated[Count, doc("What it takes.")]
    known: Annotated[Known, doc("How it is known.")]
    what: Annotated[str, doc("In words.")]


@dataclass(frozen=True)
class MemoryPlan:
    """A plan on one backend."""

    backend: Annotated[str, doc("A name in backends.toml.")]
    kv: Annotated[str, doc("Precision of rows.")]
    context: Annotated[Count, doc("Tokens of the longest conversation.")]
    prefill_step: Annotated[Count, doc("Tokens of a prompt that the model is given at once.")]
    terms: Annotated[tuple[Term, ...], doc("In the order shown; they add up to the total.")]
    prefill_peak: Annotated[
        Count, doc("Bytes that a chunk of a prompt takes at most, beside weights and caches.")
    ]
    decode_peak: Annotated[Count, doc("The same of a generated token.")]
    mlx: Annotated[Count, doc("Bytes of what MLX's counters call peak memory.")]
    total: Annotated[Count, doc("Bytes of the app at its worst moment.")]

    def of(self, *names: str) -> int:
        """Bytes of the terms of these names."""
        return sum(term.bytes for term in self.terms if term.name in names)

    @property
    def weights(self) -> int:
        """Of all weights."""
        return self.of(WEIGHTS)

    @property
    def caches(self) -> int:
        """Of the caches when they are full, with their ledgers."""
        return self.of(KV, STATE, LEDGER)

    @property
    def archive(self) -> int:
        """Of what recall keeps in memory beside the caches; no step reads it."""
        return self.of(ARCHIVE)

    @property
    def thoughts(self) -> int:
        """Of the caches as they were before the thoughts of a reply."""
        return self.of(THOUGHTS)

    @property
    def prefill(self) -> int:
        """Of a chunk of the prompt, or of a generated token if more, with the margin."""
        return self.of(*WORKING, RECALL, ROUNDING, MARGIN)

    @property
    def buffer_cache(self) -> int:
        """What MLX may keep of buffers that were freed."""
        return self.of(CACHE)
