"""The core's functions on arrays, of which `h2o::LayerCache` is made, for tests of each.

With those of `h2o_py.fast`: a module of the same functions is a backend of tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from h2o_pack.parity.reference.recall import Recalled
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
    """The ledger after all rows from `length` on were dropped."""
    native = _native(config, row_format)
    return Ledger(*ext.trim_ledger(rows, ledger, length, native))


class Archive(ext.Archive):
    """Keys after RoPE, values and novelty of all tokens of one layer, to recall from."""

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
        """Add the next tokens, without evaluating them."""
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
        """The archive in memory that had `arrays`, with `length` tokens seen."""
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
    """The rows and the ledger once archived tokens that these queries ask for came back."""
    kept_rows, state, arrived = ext.recall(
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
    return Recalled(Rows(*kept_rows), Ledger(*state), arrived)


def chosen_positions(
    asked_for: mx.array, *, first: int, seen: int, rows: int, config: H2OConfig
) -> mx.array:
    """The positions that are asked for most, int32 [B, rows], the best first; -1 for none."""
    return ext.chosen_positions(
        asked_for,
        first=first,
        seen=seen,
        rows=rows,
        config=_native(config),
        recall=config.recall,
    )
