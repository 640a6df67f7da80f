"""Recall in plain MLX operations: attend to all positions, choose some, bring their rows back.

See cexport/h2o/recall.h for shapes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import mlx.core as mx

from h2o_pack.parity.reference.archive import Archive
from h2o_pack.parity.reference.cache import LOWEST, kept_wide, probabilities
from h2o_pack.parity.reference.policy import eviction_order, importance_of, protected
from h2o_pack.parity.reference.rows import as_given, as_stored, packed
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.rows import DENSE, Ledger, RowFormat, Rows


class Recalled(NamedTuple):
    """The result of a recall."""

    rows: Rows
    """The cache's rows, in which archived rows have replaced others."""
    ledger: Ledger
    """The ledger of these rows; it marks the chosen rows as held, which protects them."""
    came: int
    """Number of archived rows that replaced others, over all heads."""


class Reading(NamedTuple):
    """The result of queries that attend to all positions, kept and archived."""

    out: mx.array
    """[B, Hq, L, Dv] in the dtype of the queries."""
    strongest: mx.array
    """float32 [B, Hq, N]: the largest probability that a query gives each archived position."""


def most_recall_rows(config: H2OConfig) -> int:
    """Return the most rows that a recall may hold: all unprotected rows, except one."""
    protected = {*range(config.sink_size), *(p for pair in config.pinned for p in range(*pair))}
    return config.max_size - 1 - len(protected) - config.recent_budget


def read_everything(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
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
) -> Reading:
    """Attention of queries to all positions, and the weight that each position gets."""
    first, size = archive.first, ledger.positions.shape[2]
    queries, keys = as_stored(queries, row_format), as_stored(keys, row_format)
    archived_keys, archived_values, _ = archive.rows(first, offset)
    kept_keys, kept_values = kept_wide(rows, offset, keys.shape[3], config, row_format)
    old_keys = mx.concatenate([archived_keys, kept_keys], axis=2)
    logits = masked_logits(queries, keys, old_keys, scale, mask)

    # A position that the cache keeps counts among the cache's rows, not in the archive.
    columns = mx.arange(first, offset)
    in_cache = (ledger.positions[:, :, None] == columns[:, None]).any(axis=3)
    visible = mx.concatenate(
        [~in_cache, mx.ones((*in_cache.shape[:2], size + keys.shape[2]), mx.bool_)], axis=2
    )
    group = queries.shape[1] // keys.shape[1]
    visible = mx.repeat(visible, group, axis=1)[:, :, None]
    shares = probabilities(mx.where(visible, logits, LOWEST), sinks)

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
    """The positions with the largest weights, best first, filled up with -1 to `rows`."""
    assert config.recall is not None  # noqa: S101  the cache recalls
    counts, candidates = counted(asked_for, config.recall, config, first=first, seen=seen)
    ranked = ranking(counts, candidates)[:, :rows]
    count = candidates.sum(axis=-1, keepdims=True)
    positions = mx.where(mx.arange(ranked.shape[1]) < count, ranked + first, -1)
    return mx.pad(positions, [(0, 0), (0, rows - positions.shape[1])], constant_values=-1)


def counted(
    asked_for: mx.array, recall: H2ORecall, config: H2OConfig, *, first: int, seen: int
) -> tuple[mx.array, mx.array]:
    """Return each position's weight with its neighbors', and whether it may be recalled.

    asked_for: [..., N], weights of the positions from `first` on; negative for positions that
    may not be recalled.
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
    """Indices of candidates by weight, largest first; equal weights in the order of indices."""
    order = mx.argsort(mx.where(candidates, -counts, float("inf")), axis=-1)
    return order.astype(mx.int32)


def masked_logits(
    queries: mx.array,
    keys: mx.array,
    old_keys: mx.array,
    scale: float,
    mask: mx.array | str | None,
) -> mx.array:
    """Logits, float32 [B, Hq, L, N + L], over old keys and own keys; LOWEST for hidden keys."""
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
    return mx.where(mx.isfinite(logits), logits, LOWEST)


class Ballot:
    """The votes of all layers for positions to recall, after a prompt that ends at `seen`."""

    def __init__(self, seen: int) -> None:
        self.seen = seen
        self._first = 0
        self._votes: mx.array | None = None
        self._configs: dict[int, H2OConfig] = {}
        self._chosen: mx.array | None = None

    def takes(self, layer: int, seen: int) -> bool:
        """Whether the ballot is for `seen` tokens and still accepts this layer's vote."""
        return self.seen == seen and layer not in self._configs and self._chosen is None

    def add(self, layer: int, strongest: mx.array, first: int, config: H2OConfig) -> None:
        """Add a layer's votes: each query head's largest probability for a position, squared.

        With squares, a few heads that attend to one place outvote many heads that attend
        everywhere. strongest: float32 [B, Hq, N], from `read_everything`, for the positions
        from `first` on.
        """
        votes = mx.square(strongest).sum(axis=1)
        if self._votes is None:
            self._first, self._votes = first, votes
        else:
            # Layers with different numbers of asking tokens vote on different ranges.
            latest = max(first, self._first)
            own, other = self._votes[:, latest - self._first :], votes[:, latest - first :]
            size = max(own.shape[1], other.shape[1])
            own, other = (mx.pad(a, [(0, 0), (0, size - a.shape[1])]) for a in (own, other))
            self._votes = own + other
            self._first = latest
        self._configs[layer] = config
        mx.async_eval(self._votes)

    def chosen(self) -> mx.array:
        """The positions to recall, int32 [B, M], best first, filled up with -1."""
        if self._chosen is None:
            assert self._votes is not None  # noqa: S101  a layer has voted
            configs = self._configs.values()
            self._chosen = chosen_positions(
                self._votes,
                first=self._first,
                seen=self.seen,
                rows=max(config.recall_rows for config in configs),
                config=min(configs, key=lambda config: config.recent_budget),
            )
            self._votes = None
        return self._chosen


class PromptChoice:
    """The votes that the caches of one conversation share to choose positions together.

    A copy of the caches may share it too: a layer that votes again, or for another number of
    tokens, opens a new ballot. Each cache keeps its ballot until the votes are counted.
    """

    def __init__(self) -> None:
        self._ballot = Ballot(-1)

    def ballot(self, layer: int, seen: int) -> Ballot:
        """The ballot in which a layer votes after `seen` tokens."""
        if not self._ballot.takes(layer, seen):
            self._ballot = Ballot(seen)
        return self._ballot


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
    """Recall the archived tokens with the largest weights for these queries.

    also: positions that all heads must recall, int32 [B, M].
    """
    assert config.recall is not None  # noqa: S101  the cache recalls
    tokens, first = keys.shape[2], archive.first
    queries, keys = as_stored(queries, row_format), as_stored(keys, row_format)
    logits = masked_logits(queries, keys, archive.rows(first, offset)[0], scale, mask)
    group = (*ledger.positions.shape[:2], -1, *logits.shape[2:])
    asked_for = probabilities(logits, sinks).reshape(group).mean(axis=2).max(axis=2)
    visible = mx.not_equal(logits, LOWEST).reshape(group).any(axis=(2, 3))
    asked_for = mx.where(visible, asked_for, -1.0)[:, :, : offset - first]
    settings = config.recall
    if also is not None:  # positions for all heads leave each head half of the rows to choose
        settings = replace(settings, spread=settings.spread // 2, before=settings.before // 2)
    counts, candidates = counted(asked_for, settings, config, first=first, seen=offset + tokens)
    best = ranking(counts, candidates) + first
    numbers = _lists(mx.minimum(candidates.sum(axis=-1), config.recall_rows).reshape(-1))
    ranked = _lists(best.reshape(-1, best.shape[2]))
    choices = [row[:number] for row, number in zip(ranked, numbers, strict=True)]
    if also is not None:
        choices = _joined(choices, also, ledger, archive, config)

    present = mx.ones(ledger.positions.shape, mx.bool_)
    if tokens == 1:  # the step will write its token to this entry
        present = mx.not_equal(mx.arange(config.max_size), ledger.victim[:, :, None])
    recalled = _swapped(
        choices, present, rows, ledger, archive, config, row_format, seen=offset + tokens
    )
    if row_format.has_ring and tokens == 1:
        held = recalled.ledger.held
        assert held is not None  # noqa: S101  the line above set `held`
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
    """Recall positions [B, M] that were chosen for all heads."""
    batch, heads, _ = ledger.positions.shape
    keys = archive.rows(archive.first, archive.length)[0]
    finite = _lists(mx.isfinite(keys).all(axis=-1))
    choices: list[list[int]] = []
    for b in range(batch):
        archived = _archived(_lists(positions[b]), archive)[: config.recall_rows]
        choices += [
            [p for p in archived if finite[b][h][p - archive.first]] for h in range(heads)
        ]
    present = mx.ones(ledger.positions.shape, mx.bool_)
    recalled = _swapped(
        choices, present, rows, ledger, archive, config, row_format, seen=offset
    )
    ledger = recalled.ledger
    importance = importance_of(
        ledger._asdict(), config, recent_from=offset + 1 - config.recent_budget
    )
    victim = eviction_order(importance, ledger.positions)[:, :, 0]
    return recalled._replace(ledger=ledger._replace(victim=victim.astype(mx.int32)))


def _archived(positions: list[int], archive: Archive) -> list[int]:
    """The different positions that the archive has, in order."""
    return [p for p in dict.fromkeys(positions) if archive.first <= p < archive.length]


def _joined(
    choices: list[list[int]],
    also: mx.array,
    ledger: Ledger,
    archive: Archive,
    config: H2OConfig,
) -> list[list[int]]:
    """Return half of each head's own choice, together with the positions for all heads."""
    heads = ledger.positions.shape[1]
    joined = []
    for number, own in enumerate(choices):
        most = most_recall_rows(config)
        others = _archived(_lists(also[number // heads]), archive)[:most]
        best = own[: max(1, config.recall_rows // 2)] if others else own
        joined.append([*best, *(p for p in others if p not in best)][:most])
    return joined


def _lists(array: mx.array) -> Any:
    """The array as nested lists."""
    return array.tolist()


def _swapped(
    choices: list[list[int]],
    present: mx.array,
    rows: Rows,
    ledger: Ledger,
    archive: Archive,
    config: H2OConfig,
    row_format: RowFormat,
    *,
    seen: int,
) -> Recalled:
    """Exchange rows so that each head holds its chosen positions, which are best first."""
    entries = {
        "scores": mx.where(present, ledger.scores, -1.0),
        "positions": ledger.positions,
        "novelty": ledger.novelty,
    }
    importance = importance_of(entries, config, recent_from=seen - config.recent_budget)
    importance = mx.where(present, importance, float("inf"))
    order = eviction_order(importance, ledger.positions)
    source, held = _exchange(choices, present, importance, order, ledger.positions)
    return Recalled(
        _with_rows(rows, archive, source, row_format),
        _with_entries(ledger, archive, source, held),
        int((source >= 0).sum()),
    )


def _exchange(
    choices: list[list[int]],
    present: mx.array,
    importance: mx.array,
    order: mx.array,
    positions: mx.array,
) -> tuple[mx.array, mx.array]:
    """Return the position that each entry receives, or -1, and whether the entry is held.

    choices: the chosen positions of each of the B * Hkv heads, best first. All arrays are [B,
    Hkv, C]. present: whether the entry has a row. importance: each entry's, infinite for
    protected rows. order: entries, the least important first. positions: each entry's.
    """
    shape = positions.shape
    sources, helds = [], []
    heads = [
        _lists(array.reshape(-1, array.shape[-1]))
        for array in (present, mx.isfinite(importance), order, positions)
    ]
    for choice, stays, may_go, ordered, position_of in zip(choices, *heads, strict=True):
        entry_of = {position_of[e]: e for e in range(shape[2]) if stays[e]}
        incoming = [position for position in choice if position not in entry_of]
        held_here = set(choice)
        victims = [e for e in ordered if may_go[e] and position_of[e] not in held_here]
        pairs = min(len(incoming), len(victims))
        source = [-1] * shape[2]
        for position, entry in zip(
            sorted(incoming[:pairs]), sorted(victims[:pairs]), strict=True
        ):
            source[entry] = position
        resident = {entry_of[position] for position in choice if position in entry_of}
        sources.append(source)
        helds.append([source[e] >= 0 or e in resident for e in range(shape[2])])
    return mx.array(sources).reshape(shape), mx.array(helds).reshape(shape)


def _as_the_step_moves_them(
    held: mx.array, victim: mx.array, offset: int, config: H2OConfig
) -> mx.array:
    """Return `held` after the step, which moves its slot's old row to the victim's row."""
    entry = mx.arange(config.max_size)
    slot = config.max_size - config.recent_budget + offset % config.recent_budget
    moved = held[:, :, slot : slot + 1]
    return mx.where(mx.equal(entry, victim[:, :, None]), moved, held) & (entry != slot)


def _with_rows(rows: Rows, archive: Archive, source: mx.array, row_format: RowFormat) -> Rows:
    """Replace rows by archived rows, converted to the format of each buffer."""
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
    """Replace entries by entries of archived rows, which have a novelty but no score."""
    came = source >= 0
    novelty = archive.rows(archive.first, archive.length)[2]
    novelty = mx.take_along_axis(novelty, mx.maximum(source - archive.first, 0), axis=2)
    return ledger._replace(
        scores=mx.where(came, -1.0, ledger.scores),
        positions=mx.where(came, source, ledger.positions),
        novelty=mx.where(came, novelty, ledger.novelty),
        held=held,
    )
