"""Recall in plain MLX operations; see `h2o_py.fast.recall` for shapes."""

from __future__ import annotations

import mlx.core as mx

from h2o_py.config import H2OConfig
from h2o_py.ledger import Ledger, Recalled, Rows
from h2o_py.reference_archive import Archive
from h2o_py.reference_policy import eviction_order, importance_of, protected
from h2o_py.reference_rotation import as_stored
from h2o_py.reference_rows import packed
from h2o_py.row_format import DENSE, RowFormat


def recall(
    queries: mx.array,
    keys: mx.array,
    rows: Rows,
    ledger: Ledger,
    archive: Archive,
    *,
    offset: int,
    config: H2OConfig,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    row_format: RowFormat = DENSE,
) -> Recalled:
    """The rows and the ledger once archived tokens that these queries ask for came back."""
    assert config.recall is not None  # noqa: S101  recall without its settings
    tokens, first = keys.shape[2], archive.first
    queries, keys = as_stored(queries, row_format), as_stored(keys, row_format)
    logits = _logits(queries, keys, archive.rows(first, offset)[0], scale, mask)
    group = (*ledger.positions.shape[:2], -1, *logits.shape[2:])
    asked_for = _probabilities(logits, sinks).reshape(group).mean(axis=2).max(axis=2)
    asked_for = _spread(asked_for[:, :, : offset - first], config.recall.spread)
    seen = mx.isfinite(logits).reshape(group).any(axis=(2, 3))[:, :, : offset - first]

    positions = mx.arange(first, offset)
    recent_from = offset + tokens - config.recent_budget
    candidates = seen & (asked_for > 0) & ~protected(positions, config, recent_from)
    # The sorts are stable, so that ties go to the lowest position.
    ranked = mx.argsort(mx.where(candidates, -asked_for, 1.0), axis=-1) + first
    count = mx.minimum(candidates.sum(axis=-1), config.recall_rows)

    present = mx.ones(ledger.positions.shape, mx.bool_)
    if tokens == 1:  # the step's write takes this entry
        present = mx.not_equal(mx.arange(config.max_size), ledger.victim[:, :, None])
    entries = {
        "scores": mx.where(present, ledger.scores, -1.0),
        "positions": ledger.positions,
        "novelty": ledger.novelty,
    }
    importance = importance_of(entries, config, recent_from=recent_from)
    importance = mx.where(present, importance, float("inf"))
    order = eviction_order(importance, ledger.positions)

    source, held = _exchange(ranked, count, present, importance, order, ledger.positions)
    if row_format.has_ring and tokens == 1:
        held = _as_the_step_moves_them(held, ledger.victim, offset, config)
    return Recalled(
        _with_rows(rows, archive, source, row_format),
        _with_entries(ledger, archive, source, held),
        int((source >= 0).sum()),
    )


def _logits(
    queries: mx.array,
    keys: mx.array,
    old_keys: mx.array,
    scale: float,
    mask: mx.array | str | None,
) -> mx.array:
    """Float32 [B, Hq, L, N + L] over old keys and own ones; -inf where a key is hidden."""
    tokens, old = keys.shape[2], old_keys.shape[2]
    wide = mx.concatenate([old_keys, keys.astype(mx.float32)], axis=2)
    wide = mx.repeat(wide, queries.shape[1] // keys.shape[1], axis=1)
    logits = (scale * queries.astype(mx.float32)) @ wide.swapaxes(2, 3)
    hidden = mx.zeros((tokens, tokens), mx.bool_)
    bias = mx.zeros((tokens, tokens), mx.float32)
    if not isinstance(mask, mx.array):
        hidden = mx.arange(tokens)[:, None] < mx.arange(tokens)
    elif mask.dtype == mx.bool_:
        hidden = ~mask
    else:
        bias = mask.astype(mx.float32)
        hidden = bias <= (-32752.0 if mask.dtype == mx.float16 else -1e9)
    own = mx.where(hidden, -float("inf"), logits[..., old:] + bias)
    logits = mx.concatenate([logits[..., :old], own], axis=-1)
    return mx.where(mx.isfinite(logits), logits, -float("inf"))


def _probabilities(logits: mx.array, sinks: mx.array | None) -> mx.array:
    """Softmax over the keys that a query sees; all 0 where it sees none."""
    visible = logits > -float("inf")
    most = logits.max(axis=-1, keepdims=True)
    if sinks is not None:
        sinks = sinks.astype(mx.float32).reshape(1, -1, 1, 1)
        most = mx.maximum(most, sinks)
    most = mx.where(mx.isfinite(most), most, 0.0)
    weights = mx.where(visible, mx.exp(logits - most), 0.0)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + mx.exp(sinks - most)
    return mx.where(total == 0, 0.0, weights / total)


def _spread(asked_for: mx.array, spread: int) -> mx.array:
    """At each position the most of its own and of the `spread` ones before it."""
    most = asked_for
    for distance in range(1, min(spread, asked_for.shape[2] - 1) + 1):
        before = mx.pad(asked_for[:, :, :-distance], [(0, 0), (0, 0), (distance, 0)])
        most = mx.maximum(most, before)
    return most


def _exchange(
    ranked: mx.array,
    count: mx.array,
    present: mx.array,
    importance: mx.array,
    order: mx.array,
    positions: mx.array,
) -> tuple[mx.array, mx.array]:
    """Which position comes to each entry, or -1, and which entries are held [B, Hkv, C].

    Args:
        ranked: [B, Hkv, N], positions from the one asked for most.
        count: [B, Hkv], how many of them are wanted.
        present: [B, Hkv, C], whether the entry's row stays where it is.
        importance: [B, Hkv, C], infinite for rows that may not go.
        order: [B, Hkv, C], entries from the least important.
        positions: [B, Hkv, C], of the entries.

    """
    shape = positions.shape
    sources, helds = [], []
    heads = [
        array.reshape(-1, array.shape[-1]).tolist()
        for array in (ranked, present, mx.isfinite(importance), order, positions)
    ]
    for number, (best, stays, may_go, ordered, position_of) in enumerate(
        zip(*heads, strict=True)
    ):
        wanted = best[: count.reshape(-1)[number].item()]
        entry_of = {position_of[e]: e for e in range(shape[2]) if stays[e]}
        incoming = [position for position in wanted if position not in entry_of]
        held_here = set(wanted)
        victims = [e for e in ordered if may_go[e] and position_of[e] not in held_here]
        pairs = min(len(incoming), len(victims))
        source = [-1] * shape[2]
        for position, entry in zip(
            sorted(incoming[:pairs]), sorted(victims[:pairs]), strict=True
        ):
            source[entry] = position
        resident = {entry_of[position] for position in wanted if position in entry_of}
        sources.append(source)
        helds.append([source[e] >= 0 or e in resident for e in range(shape[2])])
    return mx.array(sources).reshape(shape), mx.array(helds).reshape(shape)


def _as_the_step_moves_them(
    held: mx.array, victim: mx.array, offset: int, config: H2OConfig
) -> mx.array:
    """`held` after a step that moves its token's ring slot to the victim's row."""
    entry = mx.arange(config.max_size)
    slot = config.max_size - config.recent_budget + offset % config.recent_budget
    moved = held[:, :, slot : slot + 1]
    return mx.where(mx.equal(entry, victim[:, :, None]), moved, held) & (entry != slot)


def _with_rows(rows: Rows, archive: Archive, source: mx.array, row_format: RowFormat) -> Rows:
    """The rows with archived ones in the places of others, in the format of their buffer."""
    at = mx.maximum(source - archive.first, 0)[..., None]
    keys, values, _ = archive.rows(archive.first, archive.length)
    dtype = archive.row_format.dtype
    keys, values = (mx.take_along_axis(a, at, axis=2).astype(dtype) for a in (keys, values))
    ring = 0 if rows.ring is None else rows.ring.shape[2]
    pool_size = source.shape[2] - ring
    came = (source >= 0)[..., None]

    def replaced(old: mx.array, begin: int, end: int, form: RowFormat) -> mx.array:
        new = packed(keys[:, :, begin:end], values[:, :, begin:end], form)
        return mx.where(came[:, :, begin:end], new.astype(old.dtype), old)

    pool = replaced(rows.pool, 0, pool_size, row_format.pool)
    if rows.ring is None:
        return Rows(pool)
    return Rows(pool, replaced(rows.ring, pool_size, source.shape[2], row_format.ring))


def _with_entries(ledger: Ledger, archive: Archive, source: mx.array, held: mx.array) -> Ledger:
    """The ledger of these rows: archived novelty, scores not yet observed."""
    came = source >= 0
    novelty = archive.rows(archive.first, archive.length)[2]
    novelty = mx.take_along_axis(novelty, mx.maximum(source - archive.first, 0), axis=2)
    return ledger._replace(
        scores=mx.where(came, -1.0, ledger.scores),
        positions=mx.where(came, source, ledger.positions),
        novelty=mx.where(came, novelty, ledger.novelty),
        held=held,
    )
