"""Recall: attention to all positions, and the choice of those whose rows come back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import mlx.core as mx

from h2o_pack.parity.reference.archive import Archive
from h2o_pack.parity.reference.attention import (
    LOWEST,
    Mask,
    logits_of,
    probabilities,
    weighted_sum,
    with_older,
)
from h2o_pack.parity.reference.kept_rows import KeptRows, Part
from h2o_pack.parity.reference.policy import eviction_order, importance_of, protected
from h2o_pack.parity.reference.rows import as_given, as_stored, packed
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.rows import RowFormat


class Reading(NamedTuple):
    """The result of queries that attend to all positions, kept and archived."""

    out: mx.array
    """[B, Hq, L, Dv] in the dtype of the queries."""
    strongest: mx.array
    """float32 [B, Hq, N]: the largest probability that a query gives each archived position."""


def read_everything(
    kept: KeptRows,
    archive: Archive,
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: Mask = None,
    sinks: mx.array | None = None,
) -> Reading:
    """Attention of new tokens to all positions, and the weight that each position gets.

    A position that the cache keeps is read there, and any other one in the archive. mask: of
    the tokens among themselves.
    """
    positions = mx.arange(kept.seen)
    is_row = mx.equal(kept.entries()["positions"][:, :, None], positions[:, None])
    row, is_kept = mx.argmax(is_row.astype(mx.int32), axis=3), is_row.any(axis=3)
    known = is_kept | (positions >= archive.first)
    old_keys, old_values = (
        mx.where(
            is_kept[..., None],
            mx.take_along_axis(of_rows, row[..., None], axis=2),
            mx.pad(archived, [(0, 0), (0, 0), (archive.first, 0), (0, 0)]),
        )
        for of_rows, archived in zip(
            kept.vectors(), archive.rows(archive.first, kept.seen)[:2], strict=True
        )
    )
    logits = asking_logits(kept, queries, keys, old_keys, scale, mask)
    own = mx.ones((*known.shape[:2], keys.shape[2]), mx.bool_)
    visible = mx.repeat(
        mx.concatenate([known, own], axis=2), queries.shape[1] // keys.shape[1], axis=1
    )
    shares = probabilities(mx.where(visible[:, :, None], logits, LOWEST), sinks)
    own_values = as_stored(values, kept.row_format).astype(mx.float32)
    all_values = mx.concatenate([old_values, own_values], axis=2)
    out = weighted_sum(shares, mx.where(mx.isfinite(all_values), all_values, 0.0))
    return Reading(
        as_given(out.astype(queries.dtype), kept.row_format),
        shares.max(axis=2)[..., archive.first : kept.seen],
    )


def choices_of_heads(
    kept: KeptRows,
    archive: Archive,
    queries: mx.array,
    keys: mx.array,
    *,
    scale: float,
    mask: Mask = None,
    sinks: mx.array | None = None,
    chosen: mx.array | None = None,
) -> list[list[int]]:
    """The archived positions with the largest weights for these queries, best first.

    Returns a list of each of the B * Hkv heads. chosen: positions [B, M] that all heads
    recalled for the prompt: these stay, and half of the rows are for each head's own choice.
    """
    config = kept.config
    old_keys = archive.rows(archive.first, kept.seen)[0]
    logits = asking_logits(kept, queries, keys, old_keys, scale, mask)
    group = (*keys.shape[:2], -1, *logits.shape[2:])
    asked_for = probabilities(logits, sinks).reshape(group).mean(axis=2).max(axis=2)
    visible = mx.not_equal(logits, LOWEST).reshape(group).any(axis=(2, 3))
    asked_for = mx.where(visible, asked_for, -1.0)[:, :, : old_keys.shape[2]]
    settings = archive.recall
    if chosen is not None:
        settings = replace(settings, spread=settings.spread // 2, before=settings.before // 2)
    best = chosen_positions(
        asked_for,
        first=archive.first,
        seen=kept.seen + keys.shape[2],
        rows=config.recall_rows,
        config=config,
        settings=settings,
    )
    choices = [[p for p in row if p >= 0] for row in _lists(best.flatten(0, 1))]
    if chosen is None:
        return choices
    of_sequence = _archived(chosen, archive)
    most = most_recall_rows(config)
    joined = []
    for number, own in enumerate(choices):
        others = of_sequence[number // keys.shape[1]][:most]
        best_own = own[: max(1, config.recall_rows // 2)] if others else own
        joined.append([*best_own, *(p for p in others if p not in best_own)][:most])
    return joined


def choices_of_prompt(chosen: mx.array, archive: Archive, config: H2OConfig) -> list[list[int]]:
    """Of positions [B, M] for all heads, those with finite keys, a list of each head."""
    keys = archive.rows(archive.first, archive.length)[0]
    return [
        [p for p in positions[: config.recall_rows] if finite[p - archive.first]]
        for positions, of_heads in zip(
            _archived(chosen, archive), _lists(mx.isfinite(keys).all(axis=-1)), strict=True
        )
        for finite in of_heads
    ]


def asking_logits(
    kept: KeptRows,
    queries: mx.array,
    keys: mx.array,
    old_keys: mx.array,
    scale: float,
    mask: Mask,
) -> mx.array:
    """Logits [B, Hq, L, N + L] over old keys, as stored, and own keys.

    LOWEST for a hidden key, or for one with NaN or infinity.
    """
    queries, keys = as_stored(queries, kept.row_format), as_stored(keys, kept.row_format)
    all_keys = mx.concatenate([old_keys, keys.astype(mx.float32)], axis=2)
    mask = with_older(mask, old_keys.shape[2])
    logits = logits_of(queries, all_keys, scale, mask, low_bias_hides=True)
    return mx.where(mx.isfinite(logits), logits, LOWEST)


def most_recall_rows(config: H2OConfig) -> int:
    """Return the most rows that a recall may hold: all unprotected rows, except one."""
    fixed = {*range(config.sink_size), *(p for pair in config.pinned for p in range(*pair))}
    return config.max_size - 1 - len(fixed) - config.recent_budget


def chosen_positions(
    asked_for: mx.array,
    *,
    first: int,
    seen: int,
    rows: int,
    config: H2OConfig,
    settings: H2ORecall | None = None,
) -> mx.array:
    """The positions with the largest weights, best first, filled up with -1 to `rows`.

    A position gets the largest weight among itself and its neighbors; equal weights are in the
    order of positions. asked_for: [..., N], weights of the positions from `first` on; negative
    for positions that may not be recalled. settings: other settings than those of `config`.
    """
    settings = settings or config.recall
    assert settings is not None  # noqa: S101  the cache recalls
    length = asked_for.shape[-1]
    stays = protected(mx.arange(first, first + length), config, seen - config.recent_budget)
    own = mx.where(stays, -1.0, asked_for)
    nothing = [(0, 0)] * (own.ndim - 1)
    counts = own
    for distance in range(1, min(settings.spread, length - 1) + 1):
        ahead = mx.pad(own[..., :-distance], [*nothing, (distance, 0)], constant_values=-1.0)
        counts = mx.maximum(counts, ahead)
    for distance in range(1, min(settings.before, length - 1) + 1):
        behind = mx.pad(own[..., distance:], [*nothing, (0, distance)], constant_values=-1.0)
        counts = mx.maximum(counts, behind)
    share = mx.array(settings.threshold, mx.float32) / 100.0
    enough = counts >= own.max(axis=-1, keepdims=True) * share
    is_candidate = (own >= 0) & (counts > 0) & enough
    ranked = mx.argsort(mx.where(is_candidate, -counts, float("inf")), axis=-1)[..., :rows]
    found = mx.arange(ranked.shape[-1]) < is_candidate.sum(axis=-1, keepdims=True)
    positions = mx.where(found, ranked.astype(mx.int32) + first, -1)
    return mx.pad(positions, [*nothing, (0, rows - ranked.shape[-1])], constant_values=-1)


def bring_in(
    kept: KeptRows, archive: Archive, choices: Sequence[Sequence[int]], asking: int
) -> int:
    """Let archived rows overwrite the least important ones, so that each head has its choice.

    All chosen rows are then held. Returns how many rows came, over all heads. choices:
    positions of each of the B * Hkv heads, best first. asking: number of tokens that are
    written next.
    """
    config, entries = kept.config, kept.entries()
    scores, positions = entries["scores"], entries["positions"]
    present = mx.ones(positions.shape, mx.bool_)
    if asking == 1:  # the token will overwrite this row
        present = mx.not_equal(mx.arange(config.max_size), kept.victim[:, :, None])
    free = {"scores": mx.where(present, scores, -1.0), "held": mx.zeros_like(present)}
    recent_from = kept.seen + asking - config.recent_budget
    importance = importance_of(entries | free, config, recent_from=recent_from)
    may_go = present & mx.isfinite(importance)
    order = eviction_order(importance, positions)
    of_heads = (_lists(a.flatten(0, 1)) for a in (positions, present, may_go, order))
    sources, helds = zip(
        *(exchange(*head) for head in zip(choices, *of_heads, strict=True)), strict=True
    )
    source, held = (mx.array(lists).reshape(positions.shape) for lists in (sources, helds))

    came, at = source >= 0, mx.maximum(source - archive.first, 0)
    keys, values, novelty = archive.rows(archive.first, archive.length)
    keys, values = (mx.take_along_axis(a, at[..., None], axis=2) for a in (keys, values))
    novelty = mx.take_along_axis(novelty, at, axis=2)

    def overwritten(part: Part, rows: slice, row_format: RowFormat) -> Part:
        archived = packed(keys[:, :, rows], values[:, :, rows], row_format)
        before = part["packed"]
        return part | {"packed": mx.where(came[:, :, rows, None], archived, before)}

    kept.pool = overwritten(kept.pool, slice(kept.pool_size), kept.pool_format)
    kept.ring = overwritten(kept.ring, slice(kept.pool_size, None), kept.ring_format)
    kept.set_entries(
        {
            "scores": mx.where(came, -1.0, scores),
            "positions": mx.where(came, source, positions),
            "novelty": mx.where(came, novelty, entries["novelty"]),
            "held": held,
        }
    )
    return int(came.sum())


def exchange(
    choice: Sequence[int],
    positions: Sequence[int],
    present: Sequence[bool],
    may_go: Sequence[bool],
    order: Sequence[int],
) -> tuple[list[int], list[bool]]:
    """Return the position that each row of a head receives, or -1, and whether it is held.

    choice: chosen positions, best first. positions: of the rows. present: whether the row
    stays. may_go: whether it may be overwritten. order: rows, the least important first.
    """
    row_of = {position: row for row, position in enumerate(positions) if present[row]}
    coming = [position for position in choice if position not in row_of]
    going = [row for row in order if may_go[row] and positions[row] not in choice]
    count = min(len(coming), len(going))
    source = [-1] * len(positions)
    for position, row in zip(sorted(coming[:count]), sorted(going[:count]), strict=True):
        source[row] = position
    resident = {row_of[position] for position in choice if position in row_of}
    return source, [source[row] >= 0 or row in resident for row in range(len(positions))]


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


def _archived(positions: mx.array, archive: Archive) -> list[list[int]]:
    """The different positions [B, M] that the archive has, in order, for each sequence."""
    return [
        [p for p in dict.fromkeys(row) if archive.first <= p < archive.length]
        for row in _lists(positions)
    ]


def _lists(array: mx.array) -> Any:
    """The array as nested lists."""
    return cast("Any", array.tolist())
