"""What a cache is: its rows, ledger and archive, and these as arrays and strings."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import mlx.core as mx

from h2o_py import saved_archive, saved_state
from h2o_py.cache_recall import SUFFIX, CacheRecall, Deferred
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OStateError
from h2o_py.ledger import LEDGER_ARRAYS, Ledger, Rows
from h2o_py.row_format import DENSE, RowFormat
from h2o_py.saved_cache import SavedCache


class Before(NamedTuple):
    """The cache just before the tokens that were written last."""

    offset: int
    length: int


class CacheState(SavedCache, ABC):
    """The state of one layer's cache."""

    FORMAT: str
    """What a saved cache of this class says of itself first; `+recall` follows it where the
    cache has an archive."""

    _BUFFERS: tuple[str, ...] = ("rows",)
    _STRINGS = 5
    _KIND = "an H2O cache"

    config: H2OConfig
    backend: ModuleType | None = None
    row_format: RowFormat = DENSE

    def _reset(self) -> None:
        self.offset = 0
        """Tokens seen so far: the position of the next one, which only grows."""
        self.length = 0
        """Rows in use; above `max_size` only between a chunk's write and its attention."""
        self._rows: Rows | None = None
        self._ledger: Ledger | None = None
        self._recall: CacheRecall | None = None
        self._recall_ended = False
        self._deferred: Deferred | None = None
        self._pending: Before | None = None
        self._shared = False
        self._loaded: list[mx.array] = []

    @property
    def _buffers(self) -> list[mx.array]:
        return [] if self._rows is None else [a for a in self._rows if a is not None]

    @property
    def arrays(self) -> list[mx.array]:
        """The rows, the ledger, then the archive if there is one; empty while the cache is.

        The rows in use, [B, Hkv, N, row], or those of pool and ring, in which a row of zeros
        stands for none.
        """
        self._write_deferred()
        if self._rows is None or self._ledger is None:
            return []
        self._shared = True
        in_use = saved_state.rows_in_use(
            self.config, self.row_format, self.offset, self._waiting
        )
        # Nothing is said of spare rows, not even what is in their memory.
        buffers = zip(self._buffers, in_use, strict=False)
        rows = [_first_rows(rows, count) for rows, count in buffers]
        archived = [] if self._recall is None else self._recall.archive.arrays
        return [*rows, *self._ledger.arrays, *archived]

    @arrays.setter
    def arrays(self, arrays: Sequence[mx.array]) -> None:
        self._reset()
        self._loaded = list(arrays)

    @property
    def header(self) -> tuple[str, ...]:
        """What `arrays` are of, as strings.

        Format, offset, length, tokens written but not attended, configuration as JSON; the
        row format as JSON if the class has several; the archive's settings as JSON.
        """
        self._write_deferred()
        counts = (str(self.offset), str(self.length), str(self._waiting))
        config = json.dumps(self.config.to_dict(), sort_keys=True)
        strings = (*counts, config, *self._row_format_strings())
        if self._recall is None:
            return (self.FORMAT, *strings)
        return (self.FORMAT + SUFFIX, *strings, self._recall.saved)

    @header.setter
    def header(self, values: Sequence[str]) -> None:
        arrays = self._loaded
        self._reset()  # and so it stays if anything is refused
        recalls = bool(values) and values[0] == self.FORMAT + SUFFIX
        own = values[: self._STRINGS] if recalls else values
        saved = saved_state.read_strings(own, self.FORMAT + SUFFIX * recalls, self._STRINGS)
        row_format = self._saved_row_format(own)
        config, recall = saved_archive.without_folder(saved.config), None
        if arrays or saved.offset or recalls:
            rows, ledger, archived = self._parted(arrays, recalls=recalls)
            saved_state.check_arrays(saved, row_format, rows, ledger)
            if recalls:
                text = values[self._STRINGS :]
                recall = self._restored_recall(saved, text, row_format, rows, ledger, archived)
                config = recall.config
            self._rows, self._ledger, self._shared = rows, ledger, True
            self._recall_ended = not recalls
        self.config, self.row_format = config, row_format
        self.offset, self.length = saved.offset, saved.length
        self._recall = recall
        if saved.pending:
            before = saved.before
            self._pending = Before(before, min(before, self.config.max_size))

    def _parted(
        self, arrays: list[mx.array], *, recalls: bool
    ) -> tuple[Rows, Ledger, list[mx.array]]:
        """Rows, ledger and archive of loaded arrays."""
        names = (*self._BUFFERS, *LEDGER_ARRAYS, *(("held",) if recalls else ()))
        if len(arrays) < len(names) or (len(arrays) > len(names) and not recalls):
            raise H2OStateError(
                "other_state", found=len(arrays), kind=self._KIND, names=", ".join(names)
            )
        count = len(self._BUFFERS)
        ledger = Ledger(*arrays[count : len(names)])
        return Rows(*arrays[:count]), ledger, arrays[len(names) :]

    def _restored_recall(
        self,
        saved: saved_state.Saved,
        strings: Sequence[str],
        row_format: RowFormat,
        rows: Rows,
        ledger: Ledger,
        archived: list[mx.array],
    ) -> CacheRecall:
        values = saved_archive.read(saved, strings)
        key_dim = ledger.key_sum.shape[2]
        value_dim = row_format.pool.value_dim(rows.pool.shape[3], key_dim)
        saved_archive.check(saved, values, ledger, value_dim, archived)
        in_files = "files" in values
        return CacheRecall.restored(
            self._backend(),
            saved.config if in_files else saved_archive.without_folder(saved.config),
            archived,
            values,
            key_dim=key_dim,
            length=saved.offset,
        )

    @property
    def _waiting(self) -> int:
        """Tokens that were written and not attended yet."""
        return 0 if self._pending is None else self.offset - self._pending.offset

    def _row_format_strings(self) -> tuple[str, ...]:
        """What a class of several row formats saves of its own."""
        return ()

    def _saved_row_format(self, values: Sequence[str]) -> RowFormat:  # noqa: ARG002
        """The row format that the strings of a saved cache of this class say."""
        return DENSE

    @abstractmethod
    def _write_deferred(self) -> None:
        """Write tokens that `attend` would write."""

    def _advance(self, tokens: int) -> None:
        """Count tokens whose attention is outstanding."""
        self._pending = Before(self.offset, self.length)
        self.offset += tokens
        if tokens > 1 or self.length < self.config.max_size:
            self.length += tokens

    def _views(self, *, share: bool = True) -> tuple[mx.array, mx.array]:
        """Keys and values of the rows in use; if `share`, the next write copies them."""
        self._write_deferred()
        assert self._rows is not None  # noqa: S101  asked of a cache that has rows
        assert self._ledger is not None  # noqa: S101
        self._shared = self._shared or share
        before = self.offset if self._pending is None else self._pending.offset
        keys, values = self._backend().cache_fetch(
            self._rows,
            self._ledger.key_sum.shape[2],
            before,
            self.config,
            tokens=self.offset - before,
            row_format=self.row_format,
        )
        return keys, values

    def _backend(self) -> ModuleType:
        """What computes."""
        if self.backend is None:
            from h2o_py import fast  # noqa: PLC0415  the compiled module, only where used

            type(self).backend = fast
            return fast
        return self.backend


def _first_rows(rows: mx.array, count: int) -> mx.array:
    """Return the first rows of a buffer; one of zeros for none, for MLX 0.31 saves none."""
    if count == 0:
        return mx.zeros((*rows.shape[:2], 1, rows.shape[3]), rows.dtype)
    return rows if rows.shape[2] == count else rows[:, :, :count]
