"""What a cache knows about its rows."""

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


class Attended(NamedTuple):
    """What attention over a cache gives."""

    out: mx.array | None
    """[B, Hq, L, Dv] in the dtype of the queries; None where there were no queries."""
    rows: mx.array
    """The rows; new ones [B, Hkv, C, Dk + Dv] where a chunk was evicted from."""
    ledger: Ledger
