"""Recall in plain MLX operations; see `h2o_py.fast.recall` for shapes."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from h2o_pack.parity.reference.archive import Archive
from h2o_pack.parity.reference.policy import eviction_order, importance_of
from h2o_pack.parity.reference.reading import counted, masked_logits, probabilities, ranking
from h2o_pack.parity.reference.rotation import as_stored
from h2o_pack.parity.reference.rows import packed
from h2o_py.config import H2OConfig
from h2o_py.ledger import Ledger, Recalled, Rows
from h2o_py.policy_fields import most_recall_rows
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
    also: mx.array | None = None,
    row_format: RowFormat = DENSE,
) -> Recalled:
    """The rows and the ledger once archived tokens that these queries ask for came back."""
    assert config.recall is not None  # noqa: S101  recall without its settings
    tokens, first = keys.shape[2], archive.first
    queries, keys = as_stored(queries, row_format), as_stored(keys, row_format)
    logits = masked_logits(queries, keys, archive.rows(first, offset)[0], scale, mask)
    group = (*ledger.positions.shape[:2], -1, *logits.shape[2:])
    asked_for = probabilities(logits, sinks).reshape(group).mean(axis=2).max(axis=2)
    seen = mx.isfinite(logits).reshape(group).any(axis=(2, 3))
    asked_for = mx.where(seen, asked_for, -1.0)[:, :, : offset - first]
    counts, candidates = counted(
        asked_for, config.recall, config, first=first, seen=offset + tokens
    )
    best = ranking(counts, candidates) + first
    numbers = _lists(mx.minimum(candidates.sum(axis=-1), config.recall_rows).reshape(-1))
    ranked = _lists(best.reshape(-1, best.shape[2]))
    wanted = [row[:number] for row, number in zip(ranked, numbers, strict=True)]
    if also is not None:
        wanted = _joined(wanted, also, ledger, archive, config)

    present = mx.ones(ledger.positions.shape, mx.bool_)
    if tokens == 1:  # the step's write takes this entry
        present = mx.not_equal(mx.arange(config.max_size), ledger.victim[:, :, None])
    recalled = _swapped(
        wanted, present, rows, ledger, archive, config, row_format, seen=offset + tokens
    )
    if row_format.has_ring and tokens == 1:
        held = recalled.ledger.held
        assert held is not None  # noqa: S101  just made
        held = _as_the_step_moves_them(held, ledger.victim, offset, config)
        recalled = recalled._replace(ledger=recalled.ledger._replace(held=held))
    return recalled


def bring_back(
    positions: mx.array,
    rows: Rows,
    ledger: Ledger,
    archive: Archive,
    *,
    offset: int,
    config: H2OConfig,
    row_format: RowFormat = DENSE,
) -> Recalled:
    """The rows and the ledger once positions [B, M] came back that were chosen for all."""
    batch, heads, _ = ledger.positions.shape
    keys = archive.rows(archive.first, archive.length)[0]
    finite = _lists(mx.isfinite(keys).all(axis=-1))
    wanted: list[list[int]] = []
    for b in range(batch):
        chosen = _archived(_lists(positions[b]), archive)[: config.recall_rows]
        wanted += [[p for p in chosen if finite[b][h][p - archive.first]] for h in range(heads)]
    present = mx.ones(ledger.positions.shape, mx.bool_)
    recalled = _swapped(wanted, present, rows, ledger, archive, config, row_format, seen=offset)
    ledger = recalled.ledger
    importance = importance_of(
        ledger._asdict(), config, recent_from=offset + 1 - config.recent_budget
    )
    victim = eviction_order(importance, ledger.positions)[:, :, 0]
    return recalled._replace(ledger=ledger._replace(victim=victim.astype(mx.int32)))


def _archived(positions: list[int], archive: Archive) -> list[int]:
    """Those that the archive has, each once."""
    return [p for p in dict.fromkeys(positions) if archive.first <= p < archive.length]


def _joined(
    wanted: list[list[int]], also: mx.array, ledger: Ledger, archive: Archive, config: H2OConfig
) -> list[list[int]]:
    """Half of each head's own choice, and the positions to hold besides."""
    heads = ledger.positions.shape[1]
    joined = []
    for number, own in enumerate(wanted):
        most = most_recall_rows(config)
        others = _archived(_lists(also[number // heads]), archive)[:most]
        best = own[: max(1, config.recall_rows // 2)] if others else own
        joined.append([*best, *(p for p in others if p not in best)][:most])
    return joined


def _lists(array: mx.array) -> Any:
    """The elements, in lists."""
    return array.tolist()


def _swapped(
    wanted: list[list[int]],
    present: mx.array,
    rows: Rows,
    ledger: Ledger,
    archive: Archive,
    config: H2OConfig,
    row_format: RowFormat,
    *,
    seen: int,
) -> Recalled:
    """What follows when each head holds the positions that it wants, the best first."""
    entries = {
        "scores": mx.where(present, ledger.scores, -1.0),
        "positions": ledger.positions,
        "novelty": ledger.novelty,
    }
    importance = importance_of(entries, config, recent_from=seen - config.recent_budget)
    importance = mx.where(present, importance, float("inf"))
    order = eviction_order(importance, ledger.positions)
    source, held = _exchange(wanted, present, importance, order, ledger.positions)
    return Recalled(
        _with_rows(rows, archive, source, row_format),
        _with_entries(ledger, archive, source, held),
        int((source >= 0).sum()),
    )


def _exchange(
    wanted_of: list[list[int]],
    present: mx.array,
    importance: mx.array,
    order: mx.array,
    positions: mx.array,
) -> tuple[mx.array, mx.array]:
    """Which position comes to each entry, or -1, and which entries are held [B, Hkv, C].

    Args:
        wanted_of: the positions that each of the B * Hkv heads wants, the best first.
        present: [B, Hkv, C], whether the entry's row stays where it is.
        importance: [B, Hkv, C], infinite for rows that may not go.
        order: [B, Hkv, C], entries from the least important.
        positions: [B, Hkv, C], of the entries.

    """
    shape = positions.shape
    sources, helds = [], []
    heads = [
        _lists(array.reshape(-1, array.shape[-1]))
        for array in (present, mx.isfinite(importance), order, positions)
    ]
    for wanted, stays, may_go, ordered, position_of in zip(wanted_of, *heads, strict=True):
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
