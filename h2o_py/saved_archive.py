"""Checks of the archive in a saved cache: its string, and its arrays against the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from h2o_py.config import H2OConfig
from h2o_py.errors import H2OStateError
from h2o_py.ledger import Ledger
from h2o_py.policy_fields import SEGMENT_TOKENS
from h2o_py.recall_rules import warned_before
from h2o_py.row_format import BITS, DTYPES, GROUP_SIZES, RowFormat
from h2o_py.saved_state import Saved, all_finite, has_memory, misshapen, read_json, wrong

_COUNTS = ("bits", "first", "group_size", "since")


def read(saved: Saved, strings: Sequence[str]) -> dict[str, Any]:
    """Read and check what a saved cache says of its archive.

    Raises:
        H2OStateError: no recall in the configuration, other keys, or values out of range.

    """
    if len(strings) != 1:
        raise wrong("strings", len(strings), "one more text, of the archive")
    if saved.config.recall_rows == 0:
        raise wrong("configuration", "no recall", "one with recall")
    values = read_json(strings[0], "archive")
    fits = (
        values.keys() - {"files"} == {"dtype", *_COUNTS}
        and all(type(values[name]) is int and values[name] >= 0 for name in _COUNTS)
        and values["bits"] in {*BITS, 16}
        and values["group_size"] in GROUP_SIZES
        and values["dtype"] in [*DTYPES]
        and values["first"] % SEGMENT_TOKENS == 0
        and max(values["first"], values["since"]) <= saved.offset
    )
    if not fits:
        raise wrong("archive", strings[0], f"a dtype, and counts {', '.join(_COUNTS)}")
    return values


def without_folder(config: H2OConfig) -> H2OConfig:
    """The configuration with its archive in memory.

    A saved cache that has no archive in files must not name a folder to write one to.
    """
    if config.recall is None or config.recall.store is None:
        return config
    recall = dataclasses.replace(config.recall, store=None)
    with warned_before():
        return dataclasses.replace(config, recall=recall)


def check(
    saved: Saved,
    values: Mapping[str, Any],
    ledger: Ledger,
    value_dim: int,
    arrays: Sequence[mx.array],
) -> None:
    """Check an archive's arrays, and what is held, against the rest of a saved cache.

    Of an archive in files, the arrays are those of its newest tokens.

    Raises:
        H2OStateError: shapes, dtypes or contents that no such archive has.

    """
    held = ledger.held
    assert held is not None  # noqa: S101  a cache with an archive has it
    if held.shape != ledger.positions.shape or held.dtype != mx.bool_ or not has_memory(held):
        raise misshapen("held", held, f"bool {ledger.positions.shape}")
    sizes = _sizes(saved.offset - values["first"])
    if "files" in values:
        sizes = sizes[max(0, len(sizes) - len(arrays) // 2) :]
    if len(arrays) != 2 * len(sizes):
        raise wrong("archive's number of arrays", len(arrays), str(2 * len(sizes)))
    form = RowFormat(
        values["bits"], values["bits"], values["group_size"], DTYPES[values["dtype"]]
    )
    for size, rows, novelty in zip(sizes, arrays[::2], arrays[1::2], strict=True):
        _check_block(size, form, ledger.key_sum.shape, value_dim, rows, novelty)
    few = (held.sum(axis=-1) <= saved.config.recall_rows).all()
    finite = [all_finite(novelty) for novelty in arrays[1::2]]
    mx.eval(few, finite)
    if not (few.item() and all(each.item() for each in finite)):
        raise H2OStateError("damaged_numbers", part="archive" if few.item() else "held")


def _sizes(count: int) -> list[int]:
    """Tokens of each block of an archive of so many tokens."""
    rest = count % SEGMENT_TOKENS
    return [SEGMENT_TOKENS] * (count // SEGMENT_TOKENS) + ([rest] if rest else [])


def _check_block(
    size: int,
    form: RowFormat,
    key_sum_shape: Sequence[int],
    value_dim: int,
    rows: mx.array,
    novelty: mx.array,
) -> None:
    batch, heads, key_dim = key_sum_shape
    dtype = form.dtype if form.is_dense else mx.uint32
    width = rows.shape[3] if rows.ndim == 4 else 0  # noqa: PLR2004
    fits = (
        rows.shape == (batch, heads, size, width)
        and form.value_dim(width, key_dim) == value_dim
        and rows.dtype == dtype
        and has_memory(rows)
    )
    if not fits:
        raise misshapen("archive", rows, f"{dtype} rows of {size} tokens")
    shape = (batch, heads, size)
    if novelty.shape != shape or novelty.dtype != mx.float32 or not has_memory(novelty):
        raise misshapen("archive's novelty", novelty, f"float32 {shape}")
