"""What queries read from the archive; see cexport/h2o/reading.h."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from h2o_pack.parity.reference.archive import Archive
from h2o_pack.parity.reference.attention import logits_of
from h2o_pack.parity.reference.kept_rows import Elsewhere, KeptRows
from h2o_py.policy_fields import DRAFT_TOKENS


def elsewhere(
    kept: KeptRows, archive: Archive, queries: mx.array, scale: float
) -> Elsewhere | None:
    """What the tokens just written read from the archive; None before the first eviction.

    queries: [B, Hq, L, Dk], rotated if the rows are.
    """
    tokens, recall = queries.shape[2], archive.recall
    before = kept.seen - tokens
    evicted = before - kept.config.max_size + (tokens == 1)
    are_generated = tokens <= DRAFT_TOKENS
    if evicted <= 0 or before <= archive.first or (are_generated and recall.reach == 0):
        return None
    keys, values = archive.rows(archive.first, before)
    in_rows = kept.entries()["positions"]
    positions = mx.arange(archive.first, before)
    missing = ~mx.equal(in_rows[..., None], positions).any(axis=2)
    if are_generated:
        sketch = archive.sketched(keys)
        chosen = [
            _of_queries(_best(token, sketch, missing, scale, recall.reach), queries)
            for token in mx.split(queries, tokens, axis=2)
        ]
        return Elsewhere(keys, values, mx.concatenate(chosen, axis=2))
    asks = mx.arange(tokens) >= tokens - recall.ask
    return Elsewhere(keys, values, _of_queries(missing, queries) & asks[:, None])


def _of_queries(heads: mx.array, queries: mx.array) -> mx.array:
    """What is true for KV heads, [B, Hkv, n], for each of their queries: [B, Hq, 1, n]."""
    return mx.repeat(heads, queries.shape[1] // heads.shape[1], axis=1)[:, :, None]


def _best(
    queries: mx.array, sketch: mx.array, missing: mx.array, scale: float, reach: int
) -> mx.array:
    """Which positions have the largest estimated logits, ties to the lowest: bool [B, Hkv, n].

    queries: [B, Hq, 1, Dk].
    """
    batch, kv_heads, count = missing.shape
    logits = logits_of(queries, sketch, scale, None).reshape(batch, kv_heads, -1, count)
    estimates = mx.where(mx.isfinite(logits), logits, -float("inf")).max(axis=2)
    estimates = mx.where(missing, estimates, -float("inf"))
    rows: Any = estimates.reshape(-1, count).tolist()
    chosen = []
    for estimate in rows:
        found = [n for n in range(count) if estimate[n] != -float("inf")]
        best = set(sorted(found, key=lambda n: (-estimate[n], n))[:reach])
        chosen.append([n in best for n in range(count)])
    return mx.array(chosen).reshape(missing.shape)
