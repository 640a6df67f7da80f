"""The cache of two precisions in plain MLX operations: slow, readable, the oracle.

Mirrors `h2o_py.fast`'s functions of the same names; see `h2o_py.mixed_cache` for what
pool and ring are.
"""

from __future__ import annotations

import mlx.core as mx

from h2o_py import reference as plain
from h2o_py.config import H2OConfig
from h2o_py.ledger import Ledger
from h2o_py.row_format import MixedFormat, RowFormat

_GROWTH_STEP = 256

make_ledger = plain.make_ledger


def mixed_cache_write(
    rows: tuple[mx.array, mx.array] | None,
    keys: mx.array,
    values: mx.array,
    victim: mx.array,
    offset: int,
    config: H2OConfig,
    mixed: MixedFormat,
    *,
    copy: bool = False,  # noqa: ARG001  nothing is ever written in place here
) -> tuple[mx.array, mx.array]:
    """Pool and ring with the new tokens in them."""
    tokens = plain._packed(keys, values, mixed.ring)
    spare = plain._packed(keys[:, :, :0], values[:, :, :0], mixed.pool)
    pool, ring = (spare, tokens[:, :, :0]) if rows is None else rows
    slots, pool_size = config.recent_budget, config.max_size - config.recent_budget
    old_ring, filled = min(offset, slots), _pool_length(config, offset)
    count = keys.shape[2]
    if count > 1:
        pool = _grown(pool, max(1, filled), pool_size)
        return pool, mx.concatenate([ring[:, :, :old_ring], tokens], axis=2)
    slot = offset % slots
    pool = _grown(pool, max(1, _pool_length(config, offset + 1)), pool_size)
    if offset >= slots:
        leaving = _converted(ring[:, :, slot : slot + 1], keys.shape[3], mixed.ring, mixed.pool)
        chosen = filled if filled < pool_size else victim[:, :, None]
        taken = mx.equal(mx.arange(pool.shape[2]), chosen)
        pool = mx.where(taken[..., None], leaving, pool)
    ring = _grown(ring, min(offset + 1, slots), slots)
    taken = mx.equal(mx.arange(ring.shape[2]), slot)
    return pool, mx.where(taken[..., None], tokens, ring)


def mixed_cache_attend(
    queries: mx.array | None,
    rows: tuple[mx.array, mx.array],
    ledger: Ledger,
    *,
    tokens: int,
    offset: int,
    key_dim: int,
    value_dim: int,  # noqa: ARG001  as in h2o_py.fast
    config: H2OConfig,
    mixed: MixedFormat,
    scale: float = 1.0,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array | None, tuple[mx.array, mx.array], Ledger]:
    """Attention of the newest tokens over pool and ring, and what follows from it."""
    pool, ring = rows
    slots, pool_size = config.recent_budget, config.max_size - config.recent_budget
    seen = offset + tokens
    pooled = _pool_length(config, seen if tokens == 1 else offset)
    ringed = min(seen, slots) if tokens == 1 else min(offset, slots) + tokens
    parts = [
        plain._wide(pool, pooled, key_dim, mixed.pool),
        plain._wide(ring, ringed, key_dim, mixed.ring),
    ]
    keys, values = (
        mx.concatenate([a.astype(mx.float32) for a in both], 2)
        for both in zip(*parts, strict=True)
    )

    entries, key_sum = _entered(parts[1][0], ledger, tokens, offset, pooled, config)
    out = None
    if queries is not None:
        logits = plain._logits(queries, keys, scale, mask, hide_faint=True)
        out = plain._mixed(plain._probabilities(logits, sinks), values).astype(queries.dtype)
        entries["scores"] = plain._observed(entries["scores"], logits, sinks, config)
    if tokens > 1:
        pool, ring, entries = _settled(
            pool, ring, entries, pooled, seen, key_dim, config, mixed
        )

    saved = {}
    kept_pool = _pool_length(config, seen)
    empty = {"scores": -1.0, "positions": -1, "novelty": 0.0}
    for name, entry in entries.items():
        padded = plain._padded(entry[:, :, :kept_pool], pool_size, empty[name])
        slotted = plain._padded(entry[:, :, kept_pool:], slots, empty[name])
        saved[name] = mx.concatenate([padded, slotted], axis=2)
    victim = mx.full(ledger.victim.shape, -1, mx.int32)
    if seen >= config.max_size:
        importance = plain._importance(saved, config, recent_from=seen + 1 - slots)
        order = plain._eviction_order(importance, saved["positions"])
        victim = order[:, :, 0].astype(mx.int32)
    return out, (pool, ring), Ledger(**saved, key_sum=key_sum, victim=victim)


def mixed_fetch(
    rows: tuple[mx.array, mx.array],
    pooled: int,
    ringed: int,
    key_dim: int,
    config: H2OConfig,
    mixed: MixedFormat,
) -> tuple[mx.array, mx.array]:
    """Keys [B, Hkv, N, Dk] and values [B, Hkv, N, Dv] of all rows in use, pool first."""
    parts = [
        plain.fetch(rows[0], pooled, key_dim, config, mixed.pool),
        plain.fetch(rows[1], ringed, key_dim, config, mixed.ring),
    ]
    keys, values = (mx.concatenate(list(both), axis=2) for both in zip(*parts, strict=True))
    return keys, values


def _pool_length(config: H2OConfig, offset: int) -> int:
    beyond = offset - config.recent_budget
    return max(0, min(beyond, config.max_size - config.recent_budget))


def _grown(rows: mx.array, needed: int, most: int) -> mx.array:
    batch, heads, capacity, width = rows.shape
    if needed <= capacity:
        return rows
    target = min(-(-needed // _GROWTH_STEP) * _GROWTH_STEP, most)
    spare = mx.zeros((batch, heads, target - capacity, width), rows.dtype)
    return mx.concatenate([rows, spare], axis=2)


def _converted(rows: mx.array, key_dim: int, old: RowFormat, new: RowFormat) -> mx.array:
    """Rows of one format in another; quantised anew only where they differ."""
    if old == new:
        return rows
    keys, values = plain._wide(rows, rows.shape[2], key_dim, old)
    return plain._packed(keys.astype(new.dtype), values.astype(new.dtype), new)


def _entered(
    ring_keys: mx.array,
    ledger: Ledger,
    tokens: int,
    offset: int,
    pooled: int,
    config: H2OConfig,
) -> tuple[dict[str, mx.array], mx.array]:
    """The working ledger: pool, ring slots and, in a chunk, the new tokens behind them."""
    slots, pool_size = config.recent_budget, config.max_size - config.recent_budget
    slot, old_ring = offset % slots, min(offset, slots)
    fresh = ring_keys[:, :, slot : slot + 1] if tokens == 1 else ring_keys[:, :, old_ring:]
    novelty, key_sum = plain._novelty(fresh, ledger.key_sum, offset, config.novelty_margin)
    new = {
        "scores": mx.full(novelty.shape, -1.0, mx.float32),
        "positions": mx.broadcast_to(mx.arange(offset, offset + tokens), novelty.shape),
        "novelty": novelty,
    }
    entries = {}
    for name, added in new.items():
        old = getattr(ledger, name)
        in_pool, in_ring = old[:, :, :pooled], old[:, :, pool_size : pool_size + old_ring]
        if tokens == 1 and offset >= slots:
            filled = _pool_length(config, offset)
            chosen = filled if filled < pool_size else ledger.victim[:, :, None]
            taken = mx.equal(mx.arange(pooled), chosen)
            in_pool = mx.where(taken, in_ring[:, :, slot : slot + 1], in_pool)
            in_ring = mx.where(mx.equal(mx.arange(slots), slot), added, in_ring)
            entries[name] = mx.concatenate([in_pool, in_ring], axis=2)
        else:
            entries[name] = mx.concatenate([in_pool, in_ring, added], axis=2)
    return entries, key_sum


def _settled(
    pool: mx.array,
    ring: mx.array,
    entries: dict[str, mx.array],
    pooled: int,
    seen: int,
    key_dim: int,
    config: H2OConfig,
    mixed: MixedFormat,
) -> tuple[mx.array, mx.array, dict[str, mx.array]]:
    """Pool, ring and ledger after a chunk: what is too much dropped, the newest in slots."""
    slots, pool_size = config.recent_budget, config.max_size - config.recent_budget
    count = entries["scores"].shape[2]
    positions = entries["positions"]
    recent = mx.greater_equal(positions, seen - slots)
    stays = mx.ones(positions.shape, mx.bool_)
    if count > config.max_size:
        importance = plain._importance(entries, config, recent_from=seen - slots)
        order = plain._eviction_order(importance, positions)
        rank = mx.argsort(order, axis=-1)
        stays = mx.greater_equal(rank, count - config.max_size)
    kept_pool, kept_ring = _pool_length(config, seen), min(seen, slots)
    index = mx.broadcast_to(mx.arange(count), positions.shape)
    chosen_pool = mx.sort(mx.where(stays & ~recent, index, count), axis=-1)[:, :, :kept_pool]
    slot_of = mx.where(recent, positions % slots, slots)
    chosen_ring = mx.argsort(slot_of, axis=-1)[:, :, :kept_ring]
    both = mx.concatenate([chosen_pool, chosen_ring], axis=2)

    as_pool = mx.concatenate(
        [pool[:, :, :pooled], _converted(ring, key_dim, mixed.ring, mixed.pool)], axis=2
    )
    as_ring = mx.concatenate(
        [_converted(pool[:, :, :pooled], key_dim, mixed.pool, mixed.ring), ring], axis=2
    )
    new_pool = mx.take_along_axis(as_pool, chosen_pool[..., None], axis=2)
    new_ring = mx.take_along_axis(as_ring, chosen_ring[..., None], axis=2)
    taken = {name: mx.take_along_axis(a, both, axis=2) for name, a in entries.items()}
    return (
        _grown(new_pool, max(1, kept_pool), pool_size),
        _grown(new_ring, kept_ring, slots),
        taken,
    )
