"""Reading everything and choosing once, in plain MLX operations; see `h2o_py.fast`."""

from __future__ import annotations

import mlx.core as mx

from h2o_pack.parity.reference.archive import Archive
from h2o_pack.parity.reference.policy import protected
from h2o_pack.parity.reference.rotation import as_given, as_stored
from h2o_pack.parity.reference.rows import wide
from h2o_py.config import H2OConfig
from h2o_py.ledger import Ledger, Reading, Rows
from h2o_py.recall import H2ORecall
from h2o_py.row_format import DENSE, RowFormat


def read_everything(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    rows: Rows,
    ledger: Ledger,
    archive: Archive,
    *,
    offset: int,
    config: H2OConfig,  # noqa: ARG001  as the core's
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    row_format: RowFormat = DENSE,
) -> Reading:
    """Attention of these queries to all positions, and what each position gets of it."""
    first, size = archive.first, ledger.positions.shape[2]
    queries, keys = as_stored(queries, row_format), as_stored(keys, row_format)
    archived_keys, archived_values, _ = archive.rows(first, offset)
    kept_keys, kept_values = _rows(rows, keys.shape[3], size, row_format)
    old_keys = mx.concatenate([archived_keys, kept_keys], axis=2)
    logits = masked_logits(queries, keys, old_keys, scale, mask)

    # A position that the cache keeps counts there, not in the archive.
    columns = mx.arange(first, offset)
    kept = (ledger.positions[:, :, None] == columns[:, None]).any(axis=3)
    visible = mx.concatenate(
        [~kept, mx.ones((*kept.shape[:2], size + keys.shape[2]), mx.bool_)], axis=2
    )
    group = queries.shape[1] // keys.shape[1]
    visible = mx.repeat(visible, group, axis=1)[:, :, None]
    shares = probabilities(mx.where(visible, logits, -float("inf")), sinks)

    own_values = as_stored(values, row_format).astype(mx.float32)
    all_values = mx.concatenate([archived_values, kept_values, own_values], axis=2)
    all_values = mx.where(mx.isfinite(all_values), all_values, 0.0)
    out = shares @ mx.repeat(all_values, group, axis=1)

    largest = shares.max(axis=2)
    in_archive, in_rows = (
        largest[..., : offset - first],
        largest[..., offset - first :][..., :size],
    )
    same = mx.repeat(ledger.positions, group, axis=1)[..., None] == columns
    from_rows = mx.where(same, in_rows[..., None], 0.0).max(axis=2)
    return Reading(
        as_given(out.astype(queries.dtype), row_format), mx.maximum(in_archive, from_rows)
    )


def chosen_positions(
    asked_for: mx.array, *, first: int, seen: int, rows: int, config: H2OConfig
) -> mx.array:
    """The positions that are asked for most, the best first, -1 where there are fewer."""
    assert config.recall is not None  # noqa: S101  asked where there is recall
    counts, candidates = counted(asked_for, config.recall, config, first=first, seen=seen)
    ranked = ranking(counts, candidates)[:, :rows]
    count = candidates.sum(axis=-1, keepdims=True)
    chosen = mx.where(mx.arange(ranked.shape[1]) < count, ranked + first, -1)
    return mx.pad(chosen, [(0, 0), (0, rows - chosen.shape[1])], constant_values=-1)


def counted(
    asked_for: mx.array, recall: H2ORecall, config: H2OConfig, *, first: int, seen: int
) -> tuple[mx.array, mx.array]:
    """What positions count with their neighbors', and which of them may come.

    Args:
        asked_for: [..., N], of the positions from `first` on; negative where one cannot come.
        recall: the settings.
        config: the policy, which keeps some positions anyway.
        first: the position of the first.
        seen: tokens so far.

    """
    length = asked_for.shape[-1]
    stays = protected(mx.arange(first, first + length), config, seen - config.recent_budget)
    own = mx.where(stays, -1.0, asked_for)
    nothing = [(0, 0)] * (own.ndim - 1)
    counts = own
    for distance in range(1, min(recall.spread, length - 1) + 1):
        ahead = mx.pad(own[..., :-distance], [*nothing, (distance, 0)], constant_values=-1.0)
        counts = mx.maximum(counts, ahead)
    for distance in range(1, min(recall.before, length - 1) + 1):
        behind = mx.pad(own[..., distance:], [*nothing, (0, distance)], constant_values=-1.0)
        counts = mx.maximum(counts, behind)
    share = mx.array(recall.threshold, mx.float32) / 100.0
    enough = counts >= own.max(axis=-1, keepdims=True) * share
    return counts, (own >= 0) & (counts > 0) & enough


def ranking(counts: mx.array, candidates: mx.array) -> mx.array:
    """Indices from the one that counts most; ties go to the lowest, as the sort is stable."""
    order = mx.argsort(mx.where(candidates, -counts, float("inf")), axis=-1)
    return order.astype(mx.int32)


def masked_logits(
    queries: mx.array,
    keys: mx.array,
    old_keys: mx.array,
    scale: float,
    mask: mx.array | str | None,
) -> mx.array:
    """Float32 [B, Hq, L, N + L] over old keys and own ones; -inf where a key is hidden."""
    tokens, old = keys.shape[2], old_keys.shape[2]
    all_keys = mx.concatenate([old_keys, keys.astype(mx.float32)], axis=2)
    all_keys = mx.repeat(all_keys, queries.shape[1] // keys.shape[1], axis=1)
    logits = (scale * queries.astype(mx.float32)) @ all_keys.swapaxes(2, 3)
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


def probabilities(logits: mx.array, sinks: mx.array | None) -> mx.array:
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


def _rows(
    rows: Rows, key_dim: int, size: int, row_format: RowFormat
) -> tuple[mx.array, mx.array]:
    """Keys and values of a full cache's rows in float32, those of the pool first."""
    ring = 0 if rows.ring is None else rows.ring.shape[2]
    parts = [wide(rows.pool, size - ring, key_dim, row_format.pool)]
    if rows.ring is not None:
        parts.append(wide(rows.ring, ring, key_dim, row_format.ring))
    keys, values = zip(*parts, strict=True)
    return tuple(  # type: ignore[return-value]
        mx.concatenate([part.astype(mx.float32) for part in both], axis=2)
        for both in (keys, values)
    )
