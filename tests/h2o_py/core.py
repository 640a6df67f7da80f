"""The core's functions on arrays, of which `h2o::LayerCache` is made, for tests of each.

With those of `h2o_py.fast`: a module of the same functions is a backend of tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from h2o_py._compiled import ext
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.fast import *  # noqa: F403  a backend has these too
from h2o_py.fast import _native
from h2o_py.rows import DENSE, DTYPES, Ledger, RowFormat, Rows
from h2o_py.store import unless_failed


class Recalled(NamedTuple):
    """Rows and ledger after a recall, and how many rows came back, over all heads."""

    rows: Rows
    ledger: Ledger
    came: int


def open_folder(path: str, mark: tuple[str, int, str] | None = None) -> ext.SegmentFolder:
    """Make the folder of one layer's archive, or continue it from `mark`."""
    return unless_failed(ext.open_segment_folder(path, mark))


def trim_ledger(
    rows: Rows, ledger: Ledger, length: int, config: H2OConfig, row_format: RowFormat = DENSE
) -> Ledger:
    """The ledger after all rows from `length` on were dropped."""
    native = _native(config, row_format)
    return Ledger(*ext.trim_ledger(rows, ledger, length, native))


def restored_archive(
    arrays: Sequence[mx.array],
    saved: dict[str, Any],
    recall: H2ORecall,
    *,
    key_dim: int,
    length: int,
) -> ext.Archive:
    """The archive in memory that had `arrays`, with `length` tokens seen."""
    values = {**saved, "dtype": DTYPES[saved["dtype"]]}
    return ext.restored_archive(list(arrays), recall, key_dim=key_dim, length=length, **values)


def recall(
    queries: mx.array,
    keys: mx.array,
    rows: Rows,
    ledger: Ledger,
    archive: ext.Archive,
    *,
    config: H2OConfig,
    row_format: RowFormat = DENSE,
    **options: Any,
) -> Recalled:
    """The rows and the ledger once archived tokens that these queries ask for came back.

    options: offset, scale, mask, sinks, also, and fallback: whether to use MLX's operations.
    """
    native = _native(config, row_format)
    kept_rows, state, came = ext.recall(
        queries, keys, rows, ledger, archive, config=native, **options
    )
    return Recalled(Rows(*kept_rows), Ledger(*state), came)


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
