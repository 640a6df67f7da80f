"""Writes tokens into rows, and updates rows and ledger after attention."""

from __future__ import annotations

import dataclasses

import mlx.core as mx

from h2o_pack.parity.reference.policy import eviction_order, importance_of, novelties, unit
from h2o_pack.parity.reference.rows import (
    as_given,
    as_stored,
    converted,
    grown,
    packed,
    put,
    wide,
    written,
)
from h2o_py.config import H2OConfig
from h2o_py.rows import DENSE, Attended, Ledger, RowFormat, Rows

LOWEST = mx.finfo(mx.float32).min


def scaled_dot_product_attention_with_scores(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """Attention [B, Hq, L, Dv] and its logits, float32 [B * Hq * L, N]."""
    logits = _logits(queries, keys, scale, mask)
    out = _weighted_sum(probabilities(logits, sinks), values)
    return out.astype(queries.dtype), logits.reshape(-1, keys.shape[2])


def make_ledger(batch: int, kv_heads: int, key_dim: int, config: H2OConfig) -> Ledger:
    """The ledger of an empty cache."""
    rows = (batch, kv_heads, config.max_size)
    return Ledger(
        scores=mx.full(rows, -1.0, mx.float32),
        positions=mx.full(rows, -1, mx.int32),
        novelty=mx.zeros(rows, mx.float32),
        key_sum=mx.zeros((batch, kv_heads, key_dim), mx.float32),
        victim=mx.full((batch, kv_heads), -1, mx.int32),
    )


def trim_ledger(
    rows: Rows,
    ledger: Ledger,
    length: int,
    config: H2OConfig,  # noqa: ARG001  h2o_py.fast has it too
    row_format: RowFormat = DENSE,
) -> Ledger:
    """The ledger without the rows from `length` on; allowed only before the first eviction."""
    stays = mx.arange(ledger.scores.shape[2]) < length
    keys, _ = wide(rows.pool, length, ledger.key_sum.shape[2], row_format)
    return Ledger(
        scores=mx.where(stays, ledger.scores, -1.0),
        positions=mx.where(stays, ledger.positions, -1),
        novelty=mx.where(stays, ledger.novelty, 0.0),
        key_sum=unit(keys).sum(axis=2),
        victim=mx.full(ledger.victim.shape, -1, mx.int32),
        held=ledger.held,
    )


@dataclasses.dataclass(frozen=True)
class _Step:
    """The places of new and older tokens in the buffers; see cexport/h2o/cache_step.h.

    A *row* is an index among the rows that attention reads: the pool's rows in use, then the
    ring's. An *entry* is an index in the ledger: `pool_size` entries for the pool, then one for
    each slot of the ring.
    """

    config: H2OConfig
    row_format: RowFormat
    offset: int
    tokens: int

    @property
    def slots(self) -> int:
        return self.config.recent_budget if self.row_format.has_ring else 0

    @property
    def pool_size(self) -> int:
        return self.config.max_size - self.slots

    @property
    def seen(self) -> int:
        return self.offset + self.tokens

    def pool_length(self, count: int) -> int:
        """Rows of the pool in use after `count` tokens and the evictions that they cause."""
        return max(0, min(count - self.slots, self.pool_size))

    def ring_length(self, count: int) -> int:
        return min(count, self.slots)

    @property
    def pool_used(self) -> int:
        """Rows of the pool in use with the new tokens, before any of them is evicted."""
        if self.tokens == 1:
            return self.pool_length(self.seen)
        return self.pool_length(self.offset) + (0 if self.slots else self.tokens)

    @property
    def ring_used(self) -> int:
        if self.tokens == 1:
            return self.ring_length(self.seen)
        return self.ring_length(self.offset) + (self.tokens if self.slots else 0)

    @property
    def overwrites(self) -> bool:
        """Whether the new token takes the victim's row."""
        return not self.slots and self.tokens == 1 and self.offset >= self.config.max_size

    @property
    def leaves_ring(self) -> bool:
        """Whether the ring's row that the new token replaces must move to the pool first."""
        return bool(self.slots) and self.tokens == 1 and self.offset >= self.slots

    @property
    def rearranges(self) -> bool:
        """Whether the kept rows are copied to new buffers after attention."""
        return self.tokens > 1 if self.slots else self.pool_used > self.config.max_size

    @property
    def first_row(self) -> int:
        """The first new token's row in its buffer, unless it overwrites the victim."""
        if self.slots:
            return (
                self.offset % self.slots if self.tokens == 1 else self.ring_length(self.offset)
            )
        return self.pool_length(self.offset)

    def moved_to(self, victim: mx.array) -> mx.array | int:
        """The pool's row that receives the row leaving the ring: a free row, or the victim.

        If the victim is the leaving row itself, no row of the pool matches: the row is dropped.
        """
        filled = self.pool_length(self.offset)
        return filled if filled < self.pool_size else victim[:, :, None]


def cache_write(
    rows: Rows | None,
    keys: mx.array,
    values: mx.array,
    victim: mx.array,
    offset: int,
    config: H2OConfig,
    *,
    copy: bool = False,  # noqa: ARG001  this function never writes in place
    row_format: RowFormat = DENSE,
) -> Rows:
    """The rows with the new tokens in them."""
    step = _Step(config, row_format, offset, keys.shape[2])
    keys, values = as_stored(keys, row_format), as_stored(values, row_format)
    if not row_format.has_ring:
        tokens = packed(keys, values, row_format)
        pool = tokens[:, :, :0] if rows is None else rows.pool
        tokens = tokens.astype(pool.dtype)
        row: mx.array | int = victim[:, :, None] if step.overwrites else step.first_row
        return Rows(written(pool, tokens, row, step.pool_used, step.pool_size))
    tokens = packed(keys, values, row_format.ring)
    empty = packed(keys[:, :, :0], values[:, :, :0], row_format.pool)
    pool, ring = (empty, tokens[:, :, :0]) if rows is None else rows
    assert ring is not None  # noqa: S101  the cache has a ring
    slot = step.first_row
    pool = grown(pool, max(1, step.pool_used), step.pool_size)
    if step.leaves_ring:
        leaving = ring[:, :, slot : slot + 1]
        leaving = converted(leaving, keys.shape[3], row_format.ring, row_format.pool)
        pool = put(pool, leaving, step.moved_to(victim))
    return Rows(pool, written(ring, tokens, slot, step.ring_used, step.slots))


def cache_attend(
    queries: mx.array | None,
    rows: Rows,
    ledger: Ledger,
    *,
    tokens: int,
    offset: int,
    config: H2OConfig,
    scale: float = 1.0,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    row_format: RowFormat = DENSE,
) -> Attended:
    """Let the newest tokens attend to the rows; then update scores, evict, choose a victim."""
    step = _Step(config, row_format, offset, tokens)
    key_dim = ledger.key_sum.shape[2]
    keys, values = _all_wide(rows, step, key_dim)
    if step.overwrites:
        fresh = mx.take_along_axis(keys, ledger.victim[:, :, None, None], axis=2)
    else:
        first = step.first_row + (step.pool_used if step.slots else 0)
        fresh = keys[:, :, first : first + tokens]

    entries, key_sum = _entered(fresh, ledger, step)
    out = None
    if queries is not None:
        queries = as_stored(queries, row_format)
        logits = _logits(queries, keys, scale, mask, low_bias_hides=True)
        out = _weighted_sum(probabilities(logits, sinks), values).astype(queries.dtype)
        out = as_given(out, row_format)
        entries["scores"] = _observed(entries["scores"], logits, sinks, config)
    if step.rearranges:
        rows, entries = _rearranged(rows, entries, step, key_dim)

    kept_pool = step.pool_length(step.seen)
    empty = {"scores": -1.0, "positions": -1, "novelty": 0.0, "held": False}
    saved = {}
    for name, entry in entries.items():
        pooled = _padded(entry[:, :, :kept_pool], step.pool_size, empty[name])
        slotted = _padded(entry[:, :, kept_pool:], step.slots, empty[name])
        saved[name] = mx.concatenate([pooled, slotted], axis=2)
    if ledger.held is not None and not step.rearranges:
        saved["held"] = ledger.held
    victim = mx.full(ledger.victim.shape, -1, mx.int32)
    if step.seen >= config.max_size:
        recent_from = step.seen + 1 - config.recent_budget
        importance = importance_of(saved, config, recent_from=recent_from)
        victim = eviction_order(importance, saved["positions"])[:, :, 0].astype(mx.int32)
    return Attended(out, rows, Ledger(**saved, key_sum=key_sum, victim=victim))


def cache_fetch(
    rows: Rows,
    key_dim: int,
    offset: int,
    config: H2OConfig,
    *,
    tokens: int = 0,
    row_format: RowFormat = DENSE,
) -> tuple[mx.array, mx.array]:
    """Keys [B, Hkv, N, Dk] and values [B, Hkv, N, Dv] of the rows in use, pool first."""
    step = _Step(config, row_format, offset, tokens)
    keys, values = _all_wide(rows, step, key_dim)
    dense = row_format.is_dense and not row_format.has_ring
    dtype = rows.pool.dtype if dense else row_format.dtype
    keys, values = keys.astype(dtype), values.astype(dtype)
    return as_given(keys, row_format), as_given(values, row_format)


def kept_wide(
    rows: Rows, offset: int, key_dim: int, config: H2OConfig, row_format: RowFormat
) -> tuple[mx.array, mx.array]:
    """Keys and values in float32 of all rows of a cache after `offset` tokens."""
    keys, values = _all_wide(rows, _Step(config, row_format, offset, tokens=0), key_dim)
    return keys.astype(mx.float32), values.astype(mx.float32)


def _all_wide(rows: Rows, step: _Step, key_dim: int) -> tuple[mx.array, mx.array]:
    """Keys and values of all rows in use, pool first; quantized rows in float32."""
    pool = wide(rows.pool, step.pool_used, key_dim, step.row_format.pool)
    if rows.ring is None:
        return pool
    ring = wide(rows.ring, step.ring_used, key_dim, step.row_format.ring)
    keys, values = (
        mx.concatenate([a.astype(mx.float32) for a in both], axis=2)
        for both in zip(pool, ring, strict=True)
    )
    return keys, values


def _logits(
    queries: mx.array,
    keys: mx.array,
    scale: float,
    mask: mx.array | str | None,
    *,
    low_bias_hides: bool = False,
) -> mx.array:
    """Logits, float32 [B, Hq, L, N]; the lowest finite float for hidden rows."""
    group = queries.shape[1] // keys.shape[1]
    wide = mx.repeat(keys.astype(mx.float32), group, axis=1)
    logits = (scale * queries.astype(mx.float32)) @ wide.swapaxes(2, 3)
    if mask is None:
        return logits
    if isinstance(mask, str):
        count, rows = logits.shape[2:]
        mask = mx.arange(rows - count, rows)[:, None] >= mx.arange(rows)
    if mask.dtype == mx.bool_:
        return mx.where(mask, logits, LOWEST)
    bias = mask.astype(mx.float32)
    hidden = logits + bias <= LOWEST
    if low_bias_hides:
        hidden = hidden | (bias <= (-32752.0 if mask.dtype == mx.float16 else -1e9))
    return mx.where(hidden, LOWEST, logits + bias)


def probabilities(logits: mx.array, sinks: mx.array | None) -> mx.array:
    """Softmax over the rows that a query sees; all 0 for a query that sees none."""
    most = logits.max(axis=-1, keepdims=True)
    if sinks is not None:
        sinks = sinks.astype(mx.float32).reshape(1, -1, 1, 1)
        most = mx.maximum(most, sinks)
    weights = mx.where(logits == LOWEST, 0.0, mx.exp(logits - most))
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + mx.exp(sinks - most)
    return mx.where(total == 0, 0.0, weights / total)


def _weighted_sum(probabilities: mx.array, values: mx.array) -> mx.array:
    group = probabilities.shape[1] // values.shape[1]
    return probabilities @ mx.repeat(values.astype(mx.float32), group, axis=1)


def _entered(
    fresh: mx.array, ledger: Ledger, step: _Step
) -> tuple[dict[str, mx.array], mx.array]:
    """Scores, positions and novelty [B, Hkv, N] of all rows, new keys included; the key sum."""
    novelty, key_sum = novelties(fresh, ledger.key_sum, step.offset, step.config.novelty_margin)
    new = {
        "scores": mx.full(novelty.shape, -1.0, mx.float32),
        "positions": mx.broadcast_to(mx.arange(step.offset, step.seen), novelty.shape),
        "novelty": novelty,
    }
    if ledger.held is not None and step.rearranges:
        new["held"] = mx.zeros(novelty.shape, mx.bool_)
    size, row = step.pool_size, step.first_row
    entries = {}
    for name, added in new.items():
        old = getattr(ledger, name)
        if step.overwrites:
            is_victim = mx.arange(size) == ledger.victim[:, :, None]
            entries[name] = mx.where(is_victim, added, old)
            continue
        in_ring = old[:, :, size : size + step.ring_length(step.offset)]
        if step.leaves_ring:
            in_pool = old[:, :, : step.pool_used]
            is_victim = mx.equal(mx.arange(step.pool_used), step.moved_to(ledger.victim))
            in_pool = mx.where(is_victim, in_ring[:, :, row : row + 1], in_pool)
            in_ring = mx.where(mx.equal(mx.arange(step.slots), row), added, in_ring)
            entries[name] = mx.concatenate([in_pool, in_ring], axis=2)
        else:
            in_pool = old[:, :, : step.pool_length(step.offset)]
            entries[name] = mx.concatenate([in_pool, in_ring, added], axis=2)
    return entries, key_sum


def _rearranged(
    rows: Rows, entries: dict[str, mx.array], step: _Step, key_dim: int
) -> tuple[Rows, dict[str, mx.array]]:
    """Copy the kept rows and their entries to new buffers, the newest to the ring's slots."""
    config, row_format, seen = step.config, step.row_format, step.seen
    positions = entries["positions"]
    count = positions.shape[2]
    recent = positions >= seen - step.slots
    stays = mx.ones(positions.shape, mx.bool_)
    if count > config.max_size:
        importance = importance_of(entries, config, recent_from=seen - config.recent_budget)
        rank = mx.argsort(eviction_order(importance, positions), axis=-1)
        stays = mx.greater_equal(rank, count - config.max_size)
    index = mx.broadcast_to(mx.arange(count), positions.shape)
    order = mx.sort(mx.where(stays & ~recent, index, count), axis=-1)
    order = order[:, :, : step.pool_length(seen)]
    pool = rows.pool[:, :, : step.pool_used]
    ring = None
    if rows.ring is not None:
        slot_of = mx.where(recent, positions % step.slots, step.slots)
        in_ring = mx.argsort(slot_of, axis=-1)[:, :, : step.ring_length(seen)]
        old = rows.ring[:, :, : step.ring_used]
        as_ring = converted(pool, key_dim, row_format.pool, row_format.ring)
        ring = mx.concatenate([as_ring, old], axis=2)
        ring = mx.take_along_axis(ring, in_ring[..., None], axis=2)
        as_pool = converted(old, key_dim, row_format.ring, row_format.pool)
        pool = mx.concatenate([pool, as_pool], axis=2)
    pool = mx.take_along_axis(pool, order[..., None], axis=2)
    pool = grown(pool, max(1, pool.shape[2]), step.pool_size)
    if ring is not None:
        order = mx.concatenate([order, in_ring], axis=2)
    moved = {name: mx.take_along_axis(a, order, axis=2) for name, a in entries.items()}
    return Rows(pool, ring), moved


def _observed(
    scores: mx.array, logits: mx.array, sinks: mx.array | None, config: H2OConfig
) -> mx.array:
    """Scores [B, Hkv, N], updated by the last `observation_window` queries one by one."""
    batch, heads, count, rows = logits.shape
    kv_heads = scores.shape[1]
    grouped = (batch, kv_heads, heads // kv_heads, count, rows)
    seen_by_head = mx.not_equal(logits, LOWEST)
    if config.score == "abs_logit":
        looked_at = mx.where(seen_by_head, mx.abs(logits), 0.0)
    else:
        looked_at = probabilities(logits, sinks)
    means = looked_at.reshape(grouped).mean(axis=2)
    seen = seen_by_head.reshape(grouped).any(axis=2) & mx.isfinite(means)
    decay = config.decay
    for query in range(max(0, count - config.observation_window), count):
        m = means[:, :, query]
        if config.score == "peak":
            updated = mx.maximum(decay * scores, m)
        else:
            updated = decay * scores + (1 - decay) * m
        updated = mx.where(scores < 0, m, updated)
        scores = mx.where(seen[:, :, query], updated, scores)
    return scores


def _padded(entries: mx.array, size: int, empty: float) -> mx.array:
    batch, heads, count = entries.shape
    spare = mx.full((batch, heads, size - count), empty, entries.dtype)
    return mx.concatenate([entries, spare], axis=2)
