"""The cache of a layer: the rows that it keeps, and the archive of all tokens."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from h2o_pack.parity.reference.archive import Archive
from h2o_pack.parity.reference.attention import Mask, masks_of_parts, with_older
from h2o_pack.parity.reference.kept_rows import KeptRows
from h2o_pack.parity.reference.policy import novelties
from h2o_pack.parity.reference.recall import (
    Ballot,
    PromptChoice,
    bring_in,
    choices_of_heads,
    choices_of_prompt,
    read_everything,
)
from h2o_pack.parity.reference.rows import as_given, as_stored
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigError, H2OStateError, say_once
from h2o_py.policy_fields import ARCHIVE_GROUP
from h2o_py.rows import Ledger, RowFormat, Rows

_OWN_DTYPE = 16


class Deferred(NamedTuple):
    """Tokens that only `attend` writes, because recall must come before the last of them.

    asking: how many of the last tokens ask the archive before their attention.
    """

    keys: mx.array
    values: mx.array
    asking: int


class LayerCache:
    """The cache of one layer; `H2OKVCache` documents its methods."""

    def __init__(self, config: H2OConfig, row_format: RowFormat) -> None:
        self.config, self.row_format = config, row_format
        self.kept: KeptRows | None = None
        self.archive: Archive | None = None
        self.since = self.recalled = 0
        self.chosen: mx.array | None = None
        self.expects_queries = True
        self._deferred: Deferred | None = None
        self._recall_ended = False
        self._choice: PromptChoice | None = None
        self._layer = 0
        self._ballot: Ballot | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return self.kept is None

    @property
    def offset(self) -> int:
        """Tokens seen so far."""
        deferred = 0 if self._deferred is None else self._deferred.keys.shape[2]
        return deferred + (self.kept.seen if self.kept else 0)

    @property
    def unattended(self) -> int:
        """Written tokens without attention."""
        if self._deferred is not None:
            return int(self._deferred.keys.shape[2])
        return self.kept.unattended if self.kept else 0

    @property
    def length(self) -> int:
        """Rows in use, without deferred tokens."""
        return self.kept.length if self.kept else 0

    @property
    def dtype(self) -> mx.Dtype:
        """The dtype of the first keys."""
        return self.row_format.dtype

    @property
    def is_trimmable(self) -> bool:
        """Whether the newest tokens can be removed."""
        whole = self.archive is None or self.archive.first == 0
        return whole and not self.row_format.has_ring and self.offset <= self.config.max_size

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(array.nbytes) for array in self._arrays())

    @property
    def rows(self) -> Rows | None:
        """The rows in use."""
        return None if self.kept is None else self.kept.rows

    @property
    def ledger(self) -> Ledger | None:
        """The ledger of these rows."""
        return None if self.kept is None else self.kept.ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        assert self.kept is not None  # noqa: S101  the cache has rows
        self.kept.ledger = ledger

    def join(self, choice: PromptChoice, layer: int) -> None:
        """From now on, attend to all positions at prompts and choose with other layers."""
        self._choice, self._layer = choice, layer

    def share(self) -> None:
        """Do nothing: this cache never writes rows in place."""

    def copy(self) -> LayerCache:
        """An independent cache in the same state."""
        twin = copy.copy(self)
        twin.kept, twin.archive = copy.copy(self.kept), copy.copy(self.archive)
        return twin

    def write(
        self,
        keys: mx.array,
        values: mx.array,
        copy: bool = False,  # noqa: ARG002, FBT001, FBT002  the core's signature
    ) -> tuple[mx.array, mx.array]:
        """Write tokens; returns keys and values of all rows in use."""
        if self.unattended:
            if self.expects_queries:
                say_once("not_routed")
            self.settle()
        if self.kept is None:
            self._start(keys, values)
        self._bring_back()
        asking = self._asking(keys.shape[2])
        if not asking:
            self._put(keys, values)
            return self.views()
        old_keys, old_values = self.views()
        self._deferred = Deferred(keys, values, asking)
        return (
            mx.concatenate([old_keys, keys.astype(old_keys.dtype)], axis=2),
            mx.concatenate([old_values, values.astype(old_values.dtype)], axis=2),
        )

    def attend(self, queries: mx.array, *, mask: Mask = None, **options: Any) -> mx.array:
        """Attention of the tokens just written; also updates scores and evicts.

        options: `scale` and `sinks`.
        """
        if self.kept is None or not self.unattended:
            raise H2OStateError("attend_before_write")
        if self._deferred is None:
            return self.kept.attend(queries, mask=mask, **options)
        kept, archive = self.kept, self.archive
        assert archive is not None  # noqa: S101  tokens ask it
        (keys, values, asking), self._deferred = self._deferred, None
        tokens = keys.shape[2]
        mask, own_mask = masks_of_parts(mask, tokens, asking, kept.length)
        outs = []
        if tokens > asking:
            first = slice(tokens - asking)
            self._put(keys[:, :, first], values[:, :, first])
            outs.append(kept.attend(queries[:, :, first], mask=mask, **options))
        queries, keys, values = (a[:, :, -asking:] for a in (queries, keys, values))
        reading = None
        if self._choice is not None and tokens > 1:  # the layers choose when all have voted
            reading = read_everything(
                kept, archive, queries, keys, values, mask=own_mask, **options
            )
            self._ballot = self._choice.ballot(self._layer, kept.seen + asking)
            self._ballot.add(self._layer, reading.strongest, archive.first, self.config)
        else:  # each head chooses now
            choices = choices_of_heads(
                kept, archive, queries, keys, mask=own_mask, chosen=self.chosen, **options
            )
            self._bring_in(choices, asking)
        mask = with_older(own_mask, kept.length)
        self._put(keys, values)
        out = kept.attend(queries, mask=mask, **options)
        outs.append(out if reading is None else reading.out)
        return mx.concatenate(outs, axis=2)

    def settle(self) -> None:
        """Complete the written tokens without attention and scores."""
        self.finish()
        if self.kept is not None and self.kept.unattended:
            if self.archive is not None:
                self._end_recall("recall_not_asked")
            self.kept.settle()

    def finish(self) -> None:
        """Recall the positions that layers chose, and write deferred tokens without recall."""
        self._bring_back()
        if self._deferred is not None:
            (keys, values, _), self._deferred = self._deferred, None
            self._end_recall("recall_not_asked")
            self._put(keys, values)

    def trim(self, n: int) -> int:
        """Remove the `n` newest tokens; returns how many were removed."""
        if not self.is_trimmable or self.kept is None:
            return 0
        self.settle()
        n = max(0, min(n, self.kept.seen))
        if n:
            self.kept.trim(n)
            if self.archive is not None:
                self.archive.trim(n)
        return n

    def arrays(self) -> list[mx.array]:
        """The rows in use, the ledger, the chosen positions and the archive's arrays."""
        self.finish()
        return self._arrays()

    def _arrays(self) -> list[mx.array]:
        if self.kept is None:
            return []
        archived = [] if self.archive is None else self.archive.arrays
        arrays = [*self.kept.rows, *self.kept.ledger, self.chosen, *archived]
        return [array for array in arrays if array is not None]

    def header(self) -> str:
        """Nothing, because this cache is never saved; finishes what was begun."""
        self.finish()
        return ""

    def views(self) -> tuple[mx.array, mx.array]:
        """Keys and values of the rows in use."""
        self.finish()
        assert self.kept is not None  # noqa: S101  the cache has rows
        keys, values = (
            as_given(a.astype(self.dtype), self.row_format) for a in self.kept.vectors()
        )
        return keys, values

    @classmethod
    def restored(cls, saved: Any, arrays: Sequence[mx.array]) -> LayerCache:
        """Make a cache from what the core saved while no tokens awaited attention.

        saved: the header as `h2o_py._ext.SavedCache`; the arrays are not checked.
        """
        config, row_format = H2OConfig.from_dict(saved.settings), RowFormat(*saved.row_format)
        cache = cls(config, row_format)
        if not arrays:
            return cache
        buffers = 2 if row_format.has_ring else 1
        rows = Rows(*arrays[:buffers])
        if row_format.is_dense and buffers == 1:
            cache.row_format = dataclasses.replace(row_format, dtype=rows.pool.dtype)
        end = buffers + len(Ledger._fields) - (saved.archive is None)
        ledger, archived = Ledger(*arrays[buffers:end]), list(arrays[end:])
        cache.kept = KeptRows(config, cache.row_format, saved.offset, rows, ledger)
        cache._recall_ended = saved.archive is None
        if saved.archive is not None and config.recall is not None:
            if len(archived) % 2:  # the archive has pairs of arrays
                cache.chosen = archived.pop(0)
            first, cache.since, dtype = saved.archive
            cache.archive = Archive(config.recall, ledger.key_sum.shape[2], dtype)
            cache.archive.restore(archived, first, saved.offset)
        return cache

    def _start(self, keys: mx.array, values: mx.array) -> None:
        """Make the rows, and the archive, if the cache recalls."""
        self.row_format = dataclasses.replace(self.row_format, dtype=keys.dtype)
        settings = self.config.recall
        dims = (keys.shape[3], values.shape[3])
        if settings is not None and self.config.recall_rows and not self._recall_ended:
            if settings.archive_bits != _OWN_DTYPE and any(dim % ARCHIVE_GROUP for dim in dims):
                words = " and ".join(map(str, dims))
                raise H2OConfigError("archive_group", bits=settings.archive_bits, dims=words)
            self.archive = Archive(settings, dims[0], keys.dtype)
        self.kept = KeptRows.empty(self.config, self.row_format, keys, values)
        self.kept.can_hold = self.archive is not None

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
        kept = self.kept
        assert kept is not None  # noqa: S101  the cache has started
        if self.archive is not None:
            stored_keys, stored_values = (as_stored(a, self.row_format) for a in (keys, values))
            novelty, _ = novelties(
                stored_keys, kept.key_sum, kept.seen, self.config.novelty_margin
            )
            self.archive.append(stored_keys, stored_values, novelty)
        kept.write(keys, values)

    def _bring_back(self) -> None:
        """Recall the positions that the layers chose together, if they chose any."""
        ballot, self._ballot = self._ballot, None
        if ballot is None or self.archive is None or self.kept is None:
            return
        self.chosen = ballot.chosen()
        self._bring_in(choices_of_prompt(self.chosen, self.archive, self.config), 0)
        self.kept.choose_victim()

    def _bring_in(self, choices: Sequence[Sequence[int]], asking: int) -> None:
        assert self.kept is not None  # noqa: S101  a cache that recalls has evicted
        assert self.archive is not None  # noqa: S101
        self.recalled += bring_in(self.kept, self.archive, choices, asking)
        self.since = 0

    def _end_recall(self, code: str) -> None:
        """Drop the archive, unprotect the recalled rows, and warn with the reason `code`."""
        self.archive, self._recall_ended = None, True
        self.since = self.recalled = 0
        self._ballot = self.chosen = None
        if self.kept is not None:
            self.kept.hold_none()
        say_once(code)
