"""The core's functions on arrays, of which `h2o::LayerCache` is made, for tests of each.

With those of `h2o_py.fast`: a module of the same functions is a backend of tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from h2o_pack.parity.reference.recall import Reading, Recalled
from h2o_py._compiled import ext
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.fast import *  # noqa: F403  a backend has these too
from h2o_py.fast import _native
from h2o_py.rows import DENSE, DTYPES, Ledger, RowFormat, Rows
from h2o_py.store import unless_failed


def open_folder(path: str, mark: tuple[str, int, str] | None = None) -> ext.SegmentFolder:
    """Make the folder of one layer's archive, or continue it from `mark`."""
    return unless_failed(ext.open_segment_folder(path, mark))


def trim_ledger(
    rows: Rows, ledger: Ledger, length: int, config: H2OConfig, row_format: RowFormat = DENSE
) -> Ledger:
    """The ledger after all rows from `length` on were dropped.

    No row may be evicted yet, and there may be no ring.
    """
    native = _native(config, row_format)
    return Ledger(*ext.trim_ledger(rows, ledger, length, native))


class Archive(ext.Archive):
    """Keys after RoPE, values and novelty of all tokens of one layer, to recall from.

    Tokens are packed in segments of 256, which never change and which copies share. A single
    token costs nothing until 64 of them are packed together; what an archive says does not
    depend on that.

    Args:
        recall: its `archive_bits`, `limit` and `store`, the folder of this layer.

    Raises:
        H2OFileError: the folder cannot be used.

    """

    def __init__(self, recall: H2ORecall) -> None:
        folder = None if recall.store is None else open_folder(recall.store)
        super().__init__(recall, folder)

    def append(
        self,
        keys: mx.array,
        values: mx.array,
        key_sum: mx.array,
        config: H2OConfig,
        row_format: RowFormat = DENSE,
    ) -> None:
        """Add the next tokens, without evaluating them.

        Args:
            keys: [B, Hkv, L, Dk], after RoPE.
            values: [B, Hkv, L, Dv].
            key_sum: float32 [B, Hkv, Dk], the ledger's before these tokens.
            config: the policy, for `novelty_margin`.
            row_format: of the cache's rows; tokens are rotated here as they are there.

        """
        super().append(keys, values, key_sum, _native(config, row_format))

    @classmethod
    def restored(
        cls,
        arrays: Sequence[mx.array],
        saved: dict[str, Any],
        recall: H2ORecall,
        *,
        key_dim: int,
        length: int,
    ) -> ext.Archive:
        """The archive in memory that had `arrays`, with `length` tokens seen.

        Raises:
            ValueError: they do not fit each other.

        """
        return ext.restored_archive(
            list(arrays),
            recall,
            bits=saved["bits"],
            group_size=saved["group_size"],
            dtype=DTYPES[saved["dtype"]],
            key_dim=key_dim,
            first=saved["first"],
            length=length,
        )


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
    """The rows and the ledger once archived tokens that these queries ask for came back.

    Evaluates its arguments. The rows are new buffers if any came, else the given ones.

    Args:
        queries: [B, Hq, L, Dk] of the tokens that ask.
        keys: [B, Hkv, L, Dk], theirs.
        rows: the cache's before these tokens are written, C in use.
        ledger: from before the write.
        archive: all tokens before these.
        offset: tokens seen before them.
        config: the policy.
        scale: factor of q.k.
        mask: which of each other they see: None or "causal", or an array that broadcasts to
            [B, Hq, L, L].
        sinks: [Hq], logits without a value.
        also: int32 [B, M], positions to hold besides, the best first; half of a head's own
            choice makes place for them.
        row_format: how the rows are stored.

    """
    kept, state, came = ext.recall(
        queries,
        keys,
        rows,
        ledger,
        archive,
        offset=offset,
        config=_native(config, row_format),
        scale=scale,
        mask=mask,
        sinks=sinks,
        also=also,
    )
    return Recalled(Rows(*kept), Ledger(*state), came)


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
) -> Reading | None:
    """Attention of these queries to all positions, and what each position gets of it.

    A position that a KV head keeps is taken from the cache, any other from the archive. The
    archive is read in tiles, so that logits and widened rows of a few segments are in memory.
    None where an archive in files cannot be read; its `failure` says why.

    Args:
        queries: [B, Hq, L, Dk] of the tokens that ask.
        keys: [B, Hkv, L, Dk], theirs.
        values: [B, Hkv, L, Dv], theirs.
        rows: the cache's before these tokens are written, C in use.
        ledger: from before the write.
        archive: all tokens before these.
        offset: tokens seen before them.
        config: the policy.
        scale: factor of q.k.
        mask: which of each other they see: None or "causal", or an array that broadcasts to
            [B, Hq, L, L].
        sinks: [Hq], logits without a value.
        row_format: how the rows are stored.

    """
    reading = ext.read_everything(
        queries,
        keys,
        values,
        rows,
        ledger,
        archive,
        offset=offset,
        config=_native(config, row_format),
        scale=scale,
        mask=mask,
        sinks=sinks,
    )
    return None if reading is None else Reading(*reading)


def chosen_positions(
    asked_for: mx.array, *, first: int, seen: int, rows: int, config: H2OConfig
) -> mx.array:
    """The positions that are asked for most, int32 [B, rows], the best first; -1 for none.

    A position brings the `spread` behind it and the `before` ahead of it. Those that count
    less than `threshold` percent of the best stay out, and so do sinks, pinned and recent
    positions, which are kept anyway and bring nothing. Ties go to the lowest position.

    Args:
        asked_for: float32 [B, N], of the positions from `first` on.
        first: the position of the first.
        seen: tokens so far.
        rows: how many to choose at most.
        config: the policy, with its recall.

    """
    return ext.chosen_positions(
        asked_for,
        first=first,
        seen=seen,
        rows=rows,
        config=_native(config),
        recall=config.recall,
    )


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
    """The rows and the ledger once positions came back that were chosen for all layers.

    Each KV head then holds them, and nothing else; a new victim is chosen. Evaluates its
    arguments.

    Args:
        positions: int32 [B, M], the best first; -1 stands for none.
        rows: the cache's, C in use.
        ledger: of these rows.
        archive: all tokens so far.
        offset: that many.
        config: the policy.
        row_format: how the rows are stored.

    """
    kept, state, came = ext.bring_back(
        positions,
        rows,
        ledger,
        archive,
        offset=offset,
        config=_native(config, row_format),
    )
    return Recalled(Rows(*kept), Ledger(*state), came)
