"""A cache's rows, and what it knows about them."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx


class Ledger(NamedTuple):
    """The state beside the rows; B batch, Hkv KV heads, C `max_size`, Dk key head dim."""

    scores: mx.array
    """float32 [B, Hkv, C]; -1 where a row has not been observed yet."""
    positions: mx.array
    """int32 [B, Hkv, C]; index of the token in the sequence, -1 where the row is empty."""
    novelty: mx.array
    """float32 [B, Hkv, C]; how much less than a typical key, and than the margin, the row's key
    follows the mean of all keys up to it; 0 for most."""
    key_sum: mx.array
    """float32 [B, Hkv, Dk]; the sum of all unit keys so far."""
    victim: mx.array
    """int32 [B, Hkv]; the row that the next token takes, -1 before C rows are in use."""
    held: mx.array | None = None
    """bool [B, Hkv, C]; the rows that no eviction takes. None in a cache without recall."""

    @property
    def arrays(self) -> list[mx.array]:
        """Those that are there, in order."""
        return [a for a in self if a is not None]


LEDGER_ARRAYS = tuple(f for f in Ledger._fields if f not in Ledger._field_defaults)
"""The arrays that every ledger has."""


class Rows(NamedTuple):
    """The buffers of a cache."""

    pool: mx.array
    """[B, Hkv, capacity, row]: all rows, or all but the newest where there is a ring."""
    ring: mx.array | None = None
    """[B, Hkv, capacity, row]: slot p % recent_budget holds position p; None without a ring."""


class Attended(NamedTuple):
    """What attention over a cache gives."""

    out: mx.array | None
    """[B, Hq, L, Dv] in the dtype of the queries; None where there were no queries."""
    rows: Rows
    """The rows; new buffers where a chunk was evicted from or sorted into ring and pool."""
    ledger: Ledger


class Recalled(NamedTuple):
    """What a recall gives."""

    rows: Rows
    """The rows, with archived ones in the places of others."""
    ledger: Ledger
    """The ledger of these rows, in which those that were chosen are held."""
    came: int
    """Rows that came, in all heads."""


class Reading(NamedTuple):
    """What queries get that read everything."""

    out: mx.array
    """[B, Hq, L, Dv] in the dtype of the queries."""
    strongest: mx.array
    """float32 [B, Hq, N]: of each archived position the largest probability in a query."""
