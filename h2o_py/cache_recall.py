"""When a cache recalls, what of its tokens asks, and the archive that it asks."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import mlx.core as mx

from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigError, H2ORecallWarning
from h2o_py.row_format import RowFormat

SUFFIX = "+recall"
"""Stands behind the format of a saved cache that has an archive."""
_LEAST_GROUP = 32
_OWN_DTYPE = 16
_said: set[str] = set()


class Deferred(NamedTuple):
    """Tokens that are written by `attend`, because the last of them ask first."""

    keys: mx.array
    values: mx.array
    asking: int


class Masks(NamedTuple):
    """A chunk's mask for its two parts, and what its asking tokens see of each other."""

    before: mx.array | str | None
    own: mx.array | str | None
    asking: mx.array | str | None


class CacheRecall:
    """The archive of a cache, and how long ago the last recall was."""

    def __init__(self, config: H2OConfig, archive: Any) -> None:
        assert config.recall is not None  # noqa: S101  made where there are settings
        self.config, self.recall = config, config.recall
        self.archive = archive
        self.since = 0
        """Single steps since the last recall."""
        self.came = 0
        """Rows that came back so far, in all heads."""

    @classmethod
    def started(
        cls, backend: ModuleType, config: H2OConfig, group_size: int, dims: tuple[int, int]
    ) -> CacheRecall:
        """With an empty archive for keys and values of these head dims.

        Raises:
            H2OConfigError: they cannot be quantized in groups.

        """
        assert config.recall is not None  # noqa: S101  asked for where there are settings
        for group in (group_size, _LEAST_GROUP):
            if all(dim % group == 0 for dim in dims):
                break
        else:
            if config.recall.archive_bits != _OWN_DTYPE:
                bits = config.recall.archive_bits
                raise H2OConfigError(
                    "archive_group", bits=bits, dims=" and ".join(map(str, dims))
                )
            group = group_size
        return cls(config, backend.Archive(config.recall, group))

    @classmethod
    def restored(
        cls,
        backend: ModuleType,
        config: H2OConfig,
        arrays: Sequence[mx.array],
        saved: Mapping[str, Any],
        *,
        key_dim: int,
        length: int,
    ) -> CacheRecall:
        """What gave `arrays` and the values in `saved`, with `length` tokens seen."""
        rest = {name: value for name, value in saved.items() if name != "since"}
        archive = backend.Archive.restored(
            arrays, rest, config.recall, key_dim=key_dim, length=length
        )
        restored = cls(config, archive)
        restored.since = saved["since"]
        return restored

    @property
    def saved(self) -> str:
        """What must be known beside the archive's arrays, as JSON."""
        return json.dumps({**self.archive.saved, "since": self.since}, sort_keys=True)

    def copy(self) -> CacheRecall:
        """A recall of its own, whose archive shares the segments."""
        twin = copy.copy(self)
        twin.archive = self.archive.copy()
        return twin

    def asking(self, tokens: int, offset: int) -> int:
        """How many of the new tokens, the last ones, ask before their attention.

        None where nothing will have been evicted, nor between recalls. Counts the steps.
        """
        if tokens == 1:
            self.since += 1
            due = self.recall.every and self.since >= self.recall.every
            return int(bool(due) and offset > self.config.max_size)
        asking = min(self.recall.ask, tokens)
        return asking if offset + tokens - asking > self.config.max_size else 0

    def append(
        self, keys: mx.array, values: mx.array, key_sum: mx.array, row_format: RowFormat
    ) -> None:
        """Archive the next tokens; `key_sum` is the ledger's before them."""
        self.archive.append(keys, values, key_sum, self.config, row_format)
        if self.archive.first > 0:
            say_once("recall_limit", limit=self.recall.limit)


def masks(mask: mx.array | str | None, tokens: int, asking: int, rows: int, kept: int) -> Masks:
    """What the two parts of a chunk see.

    A part of one token sees all rows: the cache is full then.

    Args:
        mask: of all `tokens`: None or "causal", or an array that broadcasts to
            [B, Hq, tokens, rows + tokens].
        tokens: of the chunk.
        asking: the last ones, which see all rows that are older than they are: after an
            eviction these have no common order.
        rows: in use before the chunk.
        kept: in use before the asking tokens.

    """
    before = tokens - asking
    if not isinstance(mask, mx.array):
        return Masks(*("causal" if part > 1 else None for part in (before, asking, asking)))
    mask = mx.broadcast_to(mask, (*mask.shape[:-2], tokens, rows + tokens))
    own = mask[..., before:, -asking:]
    older = mx.zeros((*own.shape[:-1], kept), own.dtype)
    seen = mx.concatenate([older == 0 if own.dtype == mx.bool_ else older, own], axis=-1)
    return Masks(
        mask[..., :before, : rows + before] if before > 1 else None,
        own if asking > 1 else None,
        seen if asking > 1 else None,
    )


def say_once(code: str, **values: Any) -> None:
    """Warn of something about recall; later caches are silent about it."""
    if code not in _said:
        _said.add(code)
        warnings.warn(H2ORecallWarning(code, **values), stacklevel=4)
