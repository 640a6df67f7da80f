"""A cache that recalls: some tokens are written only when their queries have asked."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import mlx.core as mx

from h2o_py.cache_recall import CacheRecall, Deferred, masks, say_once
from h2o_py.cache_state import CacheState


class RecallingCache(CacheState):
    """What a cache with `recall` in its configuration does besides; nothing without it."""

    @property
    def archive(self) -> Any:
        """What recall chooses from: `length` tokens in `nbytes` bytes; None without recall."""
        return None if self._recall is None else self._recall.archive

    @property
    def recalled(self) -> int:
        """Rows that came back so far, in all heads."""
        return 0 if self._recall is None else self._recall.came

    def _start_recall(self, dims: tuple[int, int]) -> None:
        """Make the archive, for keys and values of these head dims."""
        if self.config.recall_rows > 0 and not self._recall_ended:
            assert self._ledger is not None  # noqa: S101  made before
            self._recall = CacheRecall.started(
                self._backend(), self.config, self.row_format.group_size, dims
            )
            held = mx.zeros(self._ledger.scores.shape, mx.bool_)
            self._ledger = self._ledger._replace(held=held)

    def _archive(self, keys: mx.array, values: mx.array) -> None:
        """Add tokens to the archive, before they are written."""
        if self._recall is not None and self._ledger is not None:
            self._recall.append(keys, values, self._ledger.key_sum, self.row_format)
            self._check_archive()

    def _defer(self, tokens: Deferred) -> tuple[mx.array, mx.array]:
        """Leave the writing of tokens to `attend`; returns rows with them at the end.

        Only attention that does not pass through the cache computes these.
        """
        keys, values, _ = tokens
        if self._rows is not None:
            old_keys, old_values = self._views()
            keys = mx.concatenate([old_keys, keys.astype(old_keys.dtype)], axis=2)
            values = mx.concatenate([old_values, values.astype(old_values.dtype)], axis=2)
        self._deferred = tokens
        self._advance(tokens.keys.shape[2])
        return keys, values

    def _write_deferred(self) -> None:
        """Write deferred tokens without recall, as nothing asked."""
        if self._deferred is not None:
            keys, values, _ = self._take_deferred()
            self._end_recall("recall_not_asked")
            self._write(keys, values)

    def _take_deferred(self) -> Deferred:
        assert self._deferred is not None  # noqa: S101  asked where there are some
        assert self._pending is not None  # noqa: S101
        deferred, self._deferred = self._deferred, None
        (self.offset, self.length), self._pending = self._pending, None
        return deferred

    def _attend_in_parts(
        self, queries: mx.array, mask: mx.array | str | None, **options: Any
    ) -> mx.array:
        """Write and attend the first tokens, recall what the last ones ask for, then these."""
        keys, values, asking = self._take_deferred()
        assert self._recall is not None  # noqa: S101  it deferred them
        tokens, before = keys.shape[2], keys.shape[2] - asking
        size = self.config.max_size
        parts = masks(mask, tokens, asking, min(self.length, size), size)
        outs: list[mx.array] = []

        def take(begin: int, end: int, mask: mx.array | str | None) -> None:
            self._write(keys[:, :, begin:end], values[:, :, begin:end])
            out = self._attend(queries[:, :, begin:end], mask=mask, **options)
            assert out is not None  # noqa: S101  there are queries
            outs.append(out)

        if before:
            take(0, before, parts.before)
        if self._recall is not None:
            recalled = self._backend().recall(
                queries[:, :, before:],
                keys[:, :, before:],
                self._rows,
                self._ledger,
                self._recall.archive,
                offset=self.offset,
                config=self.config,
                mask=parts.own,
                row_format=self.row_format,
                **options,
            )
            self._rows, self._ledger = recalled.rows, recalled.ledger
            self._shared = self._shared and recalled.came == 0  # otherwise the rows are new
            self._recall.since = 0
            self._recall.came += recalled.came
            self._check_archive()
        take(before, tokens, parts.asking)
        return outs[0] if len(outs) == 1 else mx.concatenate(outs, axis=2)

    def _check_archive(self) -> None:
        """Go on without recall if the archive cannot be read or written any more."""
        failure = None if self._recall is None else self._recall.archive.failure
        if failure is not None:
            code, values = failure
            self._end_recall(code, **values)

    def _end_recall(self, code: str, **values: Any) -> None:
        """Forget the archive and what is held, and say why."""
        self._recall, self._recall_ended = None, True
        if self._ledger is not None:
            self._ledger = self._ledger._replace(held=None)
        say_once(code, **values)

    @abstractmethod
    def _write(self, keys: mx.array, values: mx.array) -> None:
        """Archive tokens and put them into the rows."""

    @abstractmethod
    def _attend(self, queries: mx.array | None, **options: Any) -> mx.array | None:
        """Attention of the tokens written last."""
