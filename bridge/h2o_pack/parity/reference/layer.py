"""The cache of a layer: the rows that it keeps, and the archive of all tokens."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from h2o_pack.parity.reference.archive import Archive
from h2o_pack.parity.reference.attention import Mask
from h2o_pack.parity.reference.kept_rows import KeptRows
from h2o_pack.parity.reference.reading import elsewhere
from h2o_pack.parity.reference.rows import as_given, as_stored, dim_of
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigError, H2OStateError, say_once
from h2o_py.policy_fields import ARCHIVE_GROUP
from h2o_py.rows import Ledger, RowFormat, Rows

_OWN_DTYPE = 16


class LayerCache:
    """The cache of one layer; `H2OKVCache` documents its methods."""

    def __init__(self, config: H2OConfig, row_format: RowFormat) -> None:
        self.config, self.row_format = config, row_format
        self.kept: KeptRows | None = None
        self.archive: Archive | None = None
        self.expects_queries = True
        self._recall_ended = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return self.kept is None

    @property
    def offset(self) -> int:
        """Tokens seen so far."""
        return self.kept.seen if self.kept else 0

    @property
    def unattended(self) -> int:
        """Written tokens without attention."""
        return self.kept.unattended if self.kept else 0

    @property
    def length(self) -> int:
        """Rows in use."""
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
        return sum(int(array.nbytes) for array in self.arrays())

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

    def share(self) -> None:
        """Do nothing: this cache never writes rows in place."""

    def copy(self) -> LayerCache:
        """An independent cache in the same state."""
        twin = copy.copy(self)
        twin.kept, twin.archive = copy.copy(self.kept), copy.copy(self.archive)
        return twin

    def write(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write tokens; returns keys and values of all rows in use."""
        if self.unattended:
            if self.expects_queries:
                say_once("not_routed")
            self.settle()
        if self.kept is None:
            self._start(keys, values)
        self._put(keys, values)
        return self.views()

    def attend(self, queries: mx.array, *, mask: Mask = None, **options: Any) -> mx.array:
        """Attention of the tokens just written; also updates scores and evicts.

        options: `scale` and `sinks`.
        """
        if self.kept is None or not self.unattended:
            raise H2OStateError("attend_before_write")
        read = None
        if self.archive is not None:
            asked = as_stored(queries, self.row_format)
            read = elsewhere(self.kept, self.archive, asked, options["scale"])
        return self.kept.attend(queries, mask=mask, elsewhere=read, **options)

    def settle(self) -> None:
        """Complete the written tokens without attention and scores."""
        if self.kept is not None and self.kept.unattended:
            if self.archive is not None:
                self._end_recall("recall_not_asked")
            self.kept.settle()

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
        """Keys and values of the rows in use, the ledger and the archive's arrays."""
        if self.kept is None:
            return []
        archived = [] if self.archive is None else self.archive.arrays
        return [*self.kept.stored_vectors, *self.kept.ledger, *archived]

    def header(self) -> str:
        """Nothing, because this cache is never saved."""
        return ""

    def views(self) -> tuple[mx.array, mx.array]:
        """Keys and values of the rows in use."""
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
        vectors = 4 if row_format.has_ring else 2
        if row_format.is_dense and not row_format.has_ring:
            cache.row_format = dataclasses.replace(row_format, dtype=arrays[0].dtype)
        end = vectors + len(Ledger._fields)
        key_dim = dim_of(arrays[0], cache.row_format.pool)
        buffers = [
            mx.concatenate(list(arrays[i : i + 2]), axis=3) for i in range(0, vectors, 2)
        ]
        cache.kept = KeptRows(
            config,
            cache.row_format,
            key_dim=key_dim,
            seen=saved.offset,
            rows=Rows(*buffers),
            ledger=Ledger(*arrays[vectors:end]),
        )
        cache._recall_ended = saved.archive is None
        if saved.archive is not None and config.recall is not None:
            first, dtype = saved.archive
            cache.archive = Archive(config.recall, key_dim, dtype)
            cache.archive.restore(arrays[end:], first, saved.offset)
        return cache

    def _start(self, keys: mx.array, values: mx.array) -> None:
        """Make the rows, and the archive, if the cache recalls."""
        self.row_format = dataclasses.replace(self.row_format, dtype=keys.dtype)
        settings = self.config.recall
        dims = (keys.shape[3], values.shape[3])
        if settings is not None and not self._recall_ended:
            if settings.archive_bits != _OWN_DTYPE and any(dim % ARCHIVE_GROUP for dim in dims):
                words = " and ".join(map(str, dims))
                raise H2OConfigError("archive_group", bits=settings.archive_bits, dims=words)
            self.archive = Archive(settings, dims[0], keys.dtype)
        self.kept = KeptRows.empty(self.config, self.row_format, keys, values)

    def _put(self, keys: mx.array, values: mx.array) -> None:
        """Archive the tokens and put them into the rows."""
        kept = self.kept
        assert kept is not None  # noqa: S101  the cache has started
        if self.archive is not None:
            stored_keys, stored_values = (as_stored(a, self.row_format) for a in (keys, values))
            self.archive.append(stored_keys, stored_values)
        kept.write(keys, values)

    def _end_recall(self, code: str) -> None:
        """Drop the archive, and warn with the reason `code`."""
        self.archive, self._recall_ended = None, True
        say_once(code)
