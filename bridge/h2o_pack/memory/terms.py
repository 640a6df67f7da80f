"""The memory plan, a sum of terms: each is a use of memory in bytes with its origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from h2o_pack.results import Count, doc

Known = Literal["exact", "stated", "modelled", "setting", "estimated"]

WEIGHTS, KV, STATE, LEDGER = "weights", "keys and values", "recurrent state", "ledger"
WORKING = ("activations", "attention", "chunk rows", "ledger copies", "logits")
ARCHIVE, RECALL, THOUGHTS = "archive", "recall", "before thoughts"
CACHES = (KV, STATE, LEDGER)
ROUNDING, MARGIN = "page rounding", "margin"
CACHE, APP = "MLX buffer cache", "app"
MODELLED = (*WORKING, RECALL, ROUNDING)
"""The terms to whose sum a margin is added."""
ALL = (
    *(WEIGHTS, *CACHES, ARCHIVE, THOUGHTS),
    *(*WORKING, RECALL, ROUNDING, MARGIN, CACHE, APP),
)
"""All terms in the order of the tables; a plan leaves out terms that are 0 on its backend."""


@dataclass(frozen=True)
class Term:
    """One use of memory in a plan.

    known: exact (computed from shapes), stated (by the catalogue), modelled (buffers that MLX
    allocates at the moment of most memory), setting (a limit that the app sets), or estimated.
    """

    name: Annotated[str, doc("Name of the term.")]
    bytes: Annotated[Count, doc("Bytes that it takes.")]
    known: Annotated[Known, doc("How the number of bytes is known.")]
    what: Annotated[str, doc("What the memory is used for.")]


@dataclass(frozen=True)
class MemoryPlan:
    """The planned memory of a model on one backend."""

    backend: Annotated[str, doc("Name of the backend in backends.toml.")]
    kv: Annotated[str, doc("Storage of the rows.")]
    context: Annotated[Count, doc("Tokens of the longest conversation.")]
    prefill_step: Annotated[Count, doc("Tokens of a prompt that the model reads at once.")]
    terms: Annotated[
        tuple[Term, ...], doc("Terms in the order of the tables; they add up to the total.")
    ]
    prefill_peak: Annotated[
        Count, doc("Most bytes that a chunk of a prompt takes, beside weights and caches.")
    ]
    decode_peak: Annotated[
        Count, doc("Most bytes that a generated token takes, beside weights and caches.")
    ]
    mlx: Annotated[Count, doc("Bytes that MLX's counter of peak memory includes.")]
    total: Annotated[Count, doc("Bytes of the app at the moment of most memory.")]

    def of(self, *names: str) -> int:
        """Bytes of the terms with these names together."""
        return sum(term.bytes for term in self.terms if term.name in names)

    @property
    def weights(self) -> int:
        """Bytes of all weights."""
        return self.of(WEIGHTS)

    @property
    def caches(self) -> int:
        """Bytes of the full caches, with their ledgers."""
        return self.of(*CACHES)

    @property
    def archive(self) -> int:
        """Bytes of recall's archives in memory; a step without recall does not read them."""
        return self.of(ARCHIVE)

    @property
    def thoughts(self) -> int:
        """Bytes of the caches' copy from before a reply's thoughts."""
        return self.of(THOUGHTS)

    @property
    def prefill(self) -> int:
        """The most bytes that a step takes beside weights and caches, with the margin."""
        return self.of(*WORKING, RECALL, ROUNDING, MARGIN)

    @property
    def buffer_cache(self) -> int:
        """The most bytes of freed buffers that MLX keeps."""
        return self.of(CACHE)
