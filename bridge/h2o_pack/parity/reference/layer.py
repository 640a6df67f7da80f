"""The cache of a layer in Python, with the same states as the core's `h2o::LayerCache`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from h2o_pack.parity.reference import cache as rows_and_ledger
from h2o_pack.parity.reference.archive import Archive
from h2o_pack.parity.reference.recall import (
    Ballot,
    PromptChoice,
    Recalled,
    bring_back,
    read_everything,
    recall,
)
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigError, H2OStateError, say_once
from h2o_py.policy_fields import ARCHIVE_GROUP
from h2o_py.rows import Ledger, RowFormat, Rows
from h2o_py.saved_header import Saved

_OWN_DTYPE = 16


class Deferred(NamedTuple):
    """Tokens that only `attend` writes, because recall must come before the last of them.

    asking: how many of the last tokens ask the archive before their attention.
    """

    keys: mx.array
    values: mx.array
    asking: int


class Masks(NamedTuple):
    """The masks of a chunk's two parts: the tokens that ask the archive, and those before them.

    before: for the tokens before the asking ones. own: for the asking tokens among themselves.
    asking: for the asking tokens and all rows.
    """

    before: mx.array | str | None
    own: mx.array | str | None
    asking: mx.array | str | None


class LayerCache:
    """The cache of one layer; `H2OKVCache` documents its methods."""

    def __init__(self, config: H2OConfig, row_format: RowFormat) -> None:
        self.config, self._row_format = config, row_format
        self.dtype = row_format.dtype
        self.offset = self.length = self.waiting = self.since = self.recalled = 0
        self.rows: Rows | None = None
        self.ledger: Ledger | None = None
        self.archive: Archive | None = None
        self.chosen: mx.array | None = None
        self.expects_queries = True
        self._before = 0
        """Rows in use before the tokens that wait for their attention."""
        self._deferred: Deferred | None = None
        self._recall_ended = False
        self._choice: PromptChoice | None = None
        self._layer = 0
        self._ballot: Ballot | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return self.rows is None

    @property
    def is_trimmable(self) -> bool:
        """Whether the newest tokens can be removed."""
        whole = self.archive is None or self.archive.first == 0
        return whole and not self._row_format.has_ring and self.offset <= self.config.max_size

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        if self.rows is None or self.ledger is None:
            return 0
        archived = 0 if self.archive is None else self.archive.nbytes
        buffers = [a for a in self.rows if a is not None]
        return archived + sum(int(a.nbytes) for a in (*buffers, *self.ledger.arrays))

    def join(self, choice: PromptChoice, layer: int) -> None:
        """From now on, attend to all positions at prompts and choose with other layers."""
        self._choice, self._layer = choice, layer

    def share(self) -> None:
        """Do nothing: this cache never writes rows in place."""

    def copy(self) -> LayerCache:
        """An independent cache in the same state."""
        twin = copy.copy(self)
        twin.archive = self.archive and self.archive.copy()
        return twin

    def write(
        self,
        keys: mx.array,
        values: mx.array,
        copy: bool = False,  # noqa: ARG002, FBT001, FBT002  the core's signature
    ) -> tuple[mx.array, mx.array]:
        """Write tokens; returns keys and values of all rows in use."""
        if self.waiting:
            if self.expects_queries:
                say_once("not_routed")
            self.settle()
        if self.rows is None:
            self._start(keys, values)
        self._bring_back()
        asking = self._asking(keys.shape[2])
        if asking:
            return self._defer(Deferred(keys, values, asking))
        self._put(keys, values)
        return self.views()

    def attend(
        self, queries: mx.array, *, mask: mx.array | str | None = None, **options: Any
    ) -> mx.array:
        """Attention of the tokens just written; also updates scores and evicts."""
        if self._deferred is not None:
            return self._attend_in_parts(queries, mask, **options)
        out = self._attend(queries, mask=mask, **options)
        assert out is not None  # noqa: S101  there are queries
        return out

    def settle(self) -> None:
        """Add the written tokens to the ledger without scores."""
        self.finish()
        if self.waiting:
            if self.archive is not None:
                self._end_recall("recall_not_asked")
            self._attend(None)

    def finish(self) -> None:
        """Recall the positions that layers chose, and write deferred tokens without recall."""
        self._bring_back()
        if self._deferred is not None:
            keys, values, _ = self._take_deferred()
            self._end_recall("recall_not_asked")
            self._put(keys, values)

    def trim(self, n: int) -> int:
        """Remove the `n` newest tokens; returns how many were removed."""
        if not self.is_trimmable or self.rows is None or self.ledger is None:
            return 0
        self.settle()
        n = max(0, min(n, self.length))
        if n == 0:
            return 0
        self.offset -= n
        self.length -= n
        self.ledger = rows_and_ledger.trim_ledger(
            self.rows, self.ledger, self.length, self.config, self._stored
        )
        if self.archive is not None:
            self.archive.trim(n)
        return n

    def arrays(self) -> list[mx.array]:
        """The rows in use, the ledger, the chosen positions and the archive's arrays."""
        self.finish()
        if self.rows is None or self.ledger is None:
            return []
        slots = self.config.recent_budget if self._row_format.has_ring else 0
        chunk = self.waiting if self.waiting > 1 else 0  # a chunk's rows are after all others
        seen = self.offset - chunk
        pool = max(0, min(seen - slots, self.config.max_size - slots))
        ring = min(seen, slots)
        in_use = (pool, ring + chunk) if slots else (pool + chunk, 0)
        buffers = [
            _first_rows(rows, count)
            for rows, count in zip(self.rows, in_use, strict=True)
            if rows is not None
        ]
        chosen = [] if self.chosen is None else [self.chosen]
        archived = [] if self.archive is None else self.archive.arrays
        return [*buffers, *self.ledger.arrays, *chosen, *archived]

    def views(self) -> tuple[mx.array, mx.array]:
        """Keys and values of the rows in use."""
        self.finish()
        assert self.rows is not None  # noqa: S101  the cache has rows
        assert self.ledger is not None  # noqa: S101
        return rows_and_ledger.cache_fetch(
            self.rows,
            self.ledger.key_sum.shape[2],
            self.offset - self.waiting,
            self.config,
            tokens=self.waiting,
            row_format=self._stored,
        )

    @classmethod
    def restored(cls, saved: Saved, arrays: Sequence[mx.array]) -> LayerCache:
        """Make a cache from arrays that the core saved; they are not checked."""
        cache = cls(saved.config, saved.row_format)
        if not arrays:
            return cache
        buffers = 2 if saved.row_format.has_ring else 1
        parts = 6 if saved.archive else 5
        cache.rows = Rows(*arrays[:buffers])
        cache.ledger = Ledger(*arrays[buffers : buffers + parts])
        cache.offset, cache.length, cache.waiting = saved.counts
        before = cache.offset - cache.waiting
        cache._before = min(before, saved.config.max_size)
        cache._recall_ended = saved.archive is None
        if saved.archive and saved.config.recall is not None:
            archived = list(arrays[buffers + parts :])
            if len(archived) % 2:  # the archive has pairs of arrays
                cache.chosen = archived.pop(0)
            cache.since = saved.archive["since"]
            values = {**saved.archive, "dtype": str(saved.archive["dtype"])}
            cache.archive = Archive.restored(
                archived,
                values,
                saved.config.recall,
                key_dim=cache.ledger.key_sum.shape[2],
                length=cache.offset,
            )
        return cache

    @property
    def _stored(self) -> RowFormat:
        """The row format, with the dtype of the first keys."""
        form = self._row_format
        return RowFormat(
            form.key_bits,
            form.value_bits,
            form.group_size,
            self.dtype,
            form.recent_bits,
            rotated=form.rotated,
        )

    def _start(self, keys: mx.array, values: mx.array) -> None:
        batch, heads, _, key_dim = keys.shape
        if self._row_format.has_ring or not self._row_format.is_dense:
            self.dtype = keys.dtype
        self.ledger = rows_and_ledger.make_ledger(batch, heads, key_dim, self.config)
        settings = self.config.recall
        if settings is None or self.config.recall_rows == 0 or self._recall_ended:
            return
        dims = (key_dim, values.shape[3])
        if settings.archive_bits != _OWN_DTYPE and any(dim % ARCHIVE_GROUP for dim in dims):
            words = " and ".join(map(str, dims))
            raise H2OConfigError("archive_group", bits=settings.archive_bits, dims=words)
        self.archive = Archive(settings)
        self.ledger = self.ledger._replace(held=mx.zeros(self.ledger.scores.shape, mx.bool_))

    def _asking(self, tokens: int) -> int:
        """How many of the last new tokens ask the archive before their attention."""
        if self.archive is None:
            return 0
        settings = self.archive.recall
        if tokens == 1:
            self.since += 1
            due = settings.every and self.since >= settings.every
            return int(bool(due) and self.offset > self.config.max_size)
        asking = min(settings.ask, tokens)
        return asking if self.offset + tokens - asking > self.config.max_size else 0

    def _put(self, keys: mx.array, values: mx.array) -> None:
        """Archive the tokens and put them into the rows."""
        assert self.ledger is not None  # noqa: S101  the cache has started
        if self.archive is not None:
            self.archive.append(keys, values, self.ledger.key_sum, self.config, self._stored)
        self.rows = rows_and_ledger.cache_write(
            self.rows,
            keys,
            values,
            self.ledger.victim,
            self.offset,
            self.config,
            row_format=self._stored,
        )
        self._advance(keys.shape[2])

    def _advance(self, tokens: int) -> None:
        self._before, self.waiting = self.length, tokens
        self.offset += tokens
        if tokens > 1 or self.length < self.config.max_size:
            self.length += tokens

    def _attend(self, queries: mx.array | None, **options: Any) -> mx.array | None:
        if not self.waiting or self.ledger is None or self.rows is None:
            raise H2OStateError("attend_before_write")
        attended = rows_and_ledger.cache_attend(
            queries,
            self.rows,
            self.ledger,
            tokens=self.waiting,
            offset=self.offset - self.waiting,
            config=self.config,
            row_format=self._stored,
            **options,
        )
        self.rows, self.ledger = attended.rows, attended.ledger
        self.length, self.waiting = min(self.length, self.config.max_size), 0
        return attended.out

    def _defer(self, tokens: Deferred) -> tuple[mx.array, mx.array]:
        """Defer writing tokens until `attend`; returns keys and values with them at the end."""
        keys, values, _ = tokens
        if self.rows is not None:
            old_keys, old_values = self.views()
            keys = mx.concatenate([old_keys, keys.astype(old_keys.dtype)], axis=2)
            values = mx.concatenate([old_values, values.astype(old_values.dtype)], axis=2)
        self._deferred = tokens
        self._advance(tokens.keys.shape[2])
        return keys, values

    def _take_deferred(self) -> Deferred:
        assert self._deferred is not None  # noqa: S101  tokens are deferred
        deferred, self._deferred = self._deferred, None
        self.offset, self.length = self.offset - self.waiting, self._before
        self.waiting = 0
        return deferred

    def _attend_in_parts(
        self, queries: mx.array, mask: mx.array | str | None, **options: Any
    ) -> mx.array:
        """Write the first tokens and attend; recall; then do the same with the last tokens."""
        keys, values, asking = self._take_deferred()
        tokens, before = keys.shape[2], keys.shape[2] - asking
        size = self.config.max_size
        parts = masks(mask, tokens, asking, min(self.length, size), size)
        outs: list[mx.array] = []

        def take(begin: int, end: int, mask: mx.array | str | None) -> None:
            self._put(keys[:, :, begin:end], values[:, :, begin:end])
            out = self._attend(queries[:, :, begin:end], mask=mask, **options)
            assert out is not None  # noqa: S101  there are queries
            outs.append(out)

        if before:
            take(0, before, parts.before)
        rows, ledger, archive = self._kept()
        asking_queries, asking_keys = queries[:, :, before:], keys[:, :, before:]
        if self._choice is not None and tokens > 1:
            reading = read_everything(
                asking_queries,
                asking_keys,
                values[:, :, before:],
                rows,
                ledger,
                archive,
                offset=self.offset,
                config=self.config,
                mask=parts.own,
                row_format=self._stored,
                **options,
            )
            self._ballot = self._choice.ballot(self._layer, self.offset + asking)
            self._ballot.add(self._layer, reading.strongest, archive.first, self.config)
            take(before, tokens, parts.asking)
            outs[-1] = reading.out
        else:
            recalled = recall(
                asking_queries,
                asking_keys,
                rows,
                ledger,
                archive,
                offset=self.offset,
                config=self.config,
                mask=parts.own,
                also=self.chosen,
                row_format=self._stored,
                **options,
            )
            self._take(recalled)
            take(before, tokens, parts.asking)
        return outs[0] if len(outs) == 1 else mx.concatenate(outs, axis=2)

    def _bring_back(self) -> None:
        """Recall the positions that the layers chose together, if they chose any."""
        ballot, self._ballot = self._ballot, None
        if ballot is None or self.archive is None:
            return
        self.chosen = ballot.chosen()
        recalled = bring_back(
            self.chosen,
            *self._kept(),
            offset=self.offset,
            config=self.config,
            row_format=self._stored,
        )
        self._take(recalled)

    def _kept(self) -> tuple[Rows, Ledger, Archive]:
        """Rows, ledger and archive of a cache that recalls."""
        assert self.rows is not None  # noqa: S101  a cache that recalls has evicted
        assert self.ledger is not None  # noqa: S101
        assert self.archive is not None  # noqa: S101
        return self.rows, self.ledger, self.archive

    def _take(self, recalled: Recalled) -> None:
        self.rows, self.ledger = recalled.rows, recalled.ledger
        self.since = 0
        self.recalled += recalled.came

    def _end_recall(self, code: str) -> None:
        """Drop the archive, unprotect the recalled rows, and warn with the reason `code`."""
        self.archive, self._recall_ended = None, True
        self.since = self.recalled = 0
        self._ballot = self.chosen = None
        if self.ledger is not None:
            self.ledger = self.ledger._replace(held=None)
        say_once(code)


def masks(
    mask: mx.array | str | None, tokens: int, asking: int, rows: int, rows_before: int
) -> Masks:
    """Return the masks of a chunk's two parts; a part of one token sees all rows.

    mask: None, "causal", or an array that broadcasts to [B, Hq, tokens, rows + tokens]. asking:
    number of tokens at the chunk's end that ask the archive. They see all older rows, because
    after an eviction heads have their rows in different orders. rows: number of rows in use
    before the chunk. rows_before: number of rows in use before the asking tokens.
    """
    before = tokens - asking
    if not isinstance(mask, mx.array):
        return Masks(*("causal" if part > 1 else None for part in (before, asking, asking)))
    mask = mx.broadcast_to(mask, (*mask.shape[:-2], tokens, rows + tokens))
    own = mask[..., before:, -asking:]
    older = mx.zeros((*own.shape[:-1], rows_before), own.dtype)
    whole = mx.concatenate([older == 0 if own.dtype == mx.bool_ else older, own], axis=-1)
    return Masks(
        mask[..., :before, : rows + before] if before > 1 else None,
        own if asking > 1 else None,
        whole if asking > 1 else None,
    )


def _first_rows(rows: mx.array, count: int) -> mx.array:
    """Return the first `count` rows; for 0, a row of zeros: MLX 0.31 saves no empty array."""
    if count == 0:
        return mx.zeros((*rows.shape[:2], 1, rows.shape[3]), rows.dtype)
    return rows if rows.shape[2] == count else rows[:, :, :count]
