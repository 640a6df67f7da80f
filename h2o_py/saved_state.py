"""Checks of what a saved cache says of itself: its strings, and its arrays against them.

A file may be damaged, or made to harm. Nothing of it is used before all of it fits together;
the core bounds what it reads from arrays besides.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from h2o_py.config import H2OConfig
from h2o_py.errors import H2OStateError
from h2o_py.ledger import Ledger, Rows
from h2o_py.policy_fields import LARGEST
from h2o_py.row_format import DTYPES, RowFormat

_COUNT = re.compile("[0-9]{1,10}")
_LONGEST_JSON = 1 << 20


class Saved(NamedTuple):
    """The strings of a saved cache that all caches have."""

    offset: int
    length: int
    pending: int
    """Tokens written whose attention is outstanding."""
    config: H2OConfig

    @property
    def before(self) -> int:
        """Tokens that the ledger has seen."""
        return self.offset - self.pending


def read_strings(values: Sequence[str], form: str, count: int) -> Saved:
    """Read and check the first strings of a saved cache of the format `form`.

    Raises:
        H2OStateError: another format or number of strings, or counts that contradict.
        H2OConfigError: the configuration is none.

    """
    if not values or values[0] != form:
        found = values[0] if values else "nothing"
        raise H2OStateError("other_state_format", found=str(found)[:80], format=form)
    if len(values) != count or not all(isinstance(each, str) for each in values):
        raise wrong("strings", len(values), f"{count} texts")
    offset, length, pending = (
        _count(value, name)
        for value, name in zip(values[1:4], ("offset", "length", "pending"), strict=True)
    )
    try:
        config = H2OConfig.from_dict(read_json(values[4], "configuration"))
    except (OverflowError, TypeError, RecursionError) as error:
        raise wrong("configuration", values[4], "one that a cache has") from error
    saved = Saved(offset, length, pending, config)
    if pending > offset:
        raise wrong("pending", pending, f"at most offset = {offset}")
    expected = min(offset, config.max_size)
    if pending > 1:
        expected = min(saved.before, config.max_size) + pending
    if length != expected:
        raise wrong("length", length, f"{expected} after {offset} tokens")
    return saved


def read_json(text: str, name: str) -> dict[str, Any]:
    """The object in a saved cache's JSON.

    Raises:
        H2OStateError: it is none, or too long.

    """
    try:
        values = json.loads(text, parse_constant=_no_number) if _is_short(text) else None
    except (ValueError, RecursionError) as error:
        raise wrong(name, text, "JSON") from error
    if not isinstance(values, dict):
        raise wrong(name, text, f"a JSON object of at most {_LONGEST_JSON} characters")
    return values


def read_row_format(text: str, *, has_ring: bool) -> RowFormat:
    """The row format in a saved cache's JSON.

    Raises:
        H2OStateError: it has other keys, or values of other types.
        H2OConfigError: there is no such row format.

    """
    values = read_json(text, "row format")
    bits = (
        ("heavy_bits", "recent_bits", "value_dim") if has_ring else ("key_bits", "value_bits")
    )
    names = {*bits, "group_size"}
    whole = all(type(values.get(name)) is int for name in names)
    rotated = not has_ring and values.pop("rotated", False)
    fits = values.keys() == names | {"dtype"} and whole and values["dtype"] in [*DTYPES]
    if not fits or type(rotated) is not bool:
        raise wrong("row format", text, f"a dtype, and integers {', '.join(sorted(names))}")
    key_bits, value_bits, recent_bits = (
        (values["heavy_bits"], values["heavy_bits"], values["recent_bits"])
        if has_ring
        else (values["key_bits"], values["value_bits"], None)
    )
    dtype = DTYPES[values["dtype"]]
    return RowFormat(
        key_bits, value_bits, values["group_size"], dtype, recent_bits, rotated=rotated
    )


def check_arrays(saved: Saved, row_format: RowFormat, rows: Rows, ledger: Ledger) -> None:
    """Check the arrays of a saved cache against its strings; evaluates the ledger.

    Raises:
        H2OStateError: shapes, dtypes or contents that no such cache has.

    """
    value_dim = _check_shapes(saved, row_format, rows, ledger)
    if value_dim < 1:
        raise misshapen("rows", rows.pool, f"rows of keys of {ledger.key_sum.shape[2]}")
    found = {
        "positions": _positions_fit(saved, row_format, ledger.positions),
        "victim": _victim_fits(saved, ledger.victim),
        "scores": all_finite(ledger.scores)
        & ((ledger.scores == -1) | (ledger.scores >= 0)).all(),
        "novelty": all_finite(ledger.novelty),
        "key_sum": all_finite(ledger.key_sum),
    }
    mx.eval(found)
    for name, fits in found.items():
        if not fits.item():
            raise H2OStateError(f"damaged_{'numbers' if name in _NUMBERS else name}", part=name)


_NUMBERS = ("scores", "novelty", "key_sum")


def rows_in_use(
    config: H2OConfig, row_format: RowFormat, offset: int, pending: int
) -> tuple[int, int]:
    """Rows of pool and ring in use after `offset` tokens, `pending` of them not attended."""
    waiting = pending if pending > 1 else 0  # a chunk, which stands behind all others
    slots = config.recent_budget if row_format.has_ring else 0
    pool = max(0, min(offset - waiting - slots, config.max_size - slots))
    ring = min(offset - waiting, slots)
    return (pool, ring + waiting) if slots else (pool + waiting, 0)


def _check_shapes(saved: Saved, row_format: RowFormat, rows: Rows, ledger: Ledger) -> int:
    """Check the shapes and dtypes; return the values' head dim, below 1 if no row has it."""
    config, before = saved.config, saved.before
    slots = config.recent_budget if row_format.has_ring else 0
    if ledger.key_sum.ndim != 3 or min(ledger.key_sum.shape) < 1:  # noqa: PLR2004
        raise misshapen("key_sum", ledger.key_sum, "float32 [B, Hkv, Dk]")
    batch, heads, key_dim = ledger.key_sum.shape
    entries = (batch, heads, config.max_size)
    expected = {
        "scores": (entries, mx.float32),
        "positions": (entries, mx.int32),
        "novelty": (entries, mx.float32),
        "key_sum": ((batch, heads, key_dim), mx.float32),
        "victim": ((batch, heads), mx.int32),
    }
    for name, (shape, dtype) in expected.items():
        array = getattr(ledger, name)
        if array.shape != shape or array.dtype != dtype or not has_memory(array):
            raise misshapen(name, array, f"{dtype} {shape}")
    pool_used, ring_used = rows_in_use(config, row_format, saved.offset, saved.pending)
    if rows.pool.ndim != 4:  # noqa: PLR2004
        raise misshapen("rows", rows.pool, "[B, Hkv, rows, row]")
    value_dim = row_format.pool.value_dim(rows.pool.shape[3], key_dim)
    for name, array, used in (("rows", rows.pool, pool_used), ("ring", rows.ring, ring_used)):
        if array is None:
            continue
        form = row_format.pool if name == "rows" else row_format.ring
        dtype = form.dtype if form.is_dense else mx.uint32
        if row_format.is_all_dense and rows.pool.dtype in DTYPES.values():
            dtype = rows.pool.dtype
        fits = (
            array.ndim == 4  # noqa: PLR2004
            and array.shape[:2] == (batch, heads)
            and (array.shape[2] >= used if slots else array.shape[2] == used)
            and form.value_dim(array.shape[3], key_dim) == value_dim
            and array.dtype == dtype
            and has_memory(array)
        )
        if not fits:
            raise misshapen(
                name, array, f"{dtype} rows for {used} tokens of {before} in {(batch, heads)}"
            )
    return value_dim


def _positions_fit(saved: Saved, row_format: RowFormat, positions: mx.array) -> mx.array:
    """Whether each row has one of the positions that it may have, and no two have the same."""
    before, size = saved.before, saved.config.max_size
    slots = saved.config.recent_budget if row_format.has_ring else 0
    older = max(0, before - slots)
    in_pool, in_ring = positions[:, :, : size - slots], positions[:, :, size - slots :]
    entries = mx.arange(size - slots)
    if older <= size - slots:  # nothing was evicted: all older positions are there
        used = entries < older
        # Without a ring they are in order; what left a ring stands in that of its slots.
        found = mx.sort(mx.where(used, in_pool, size), axis=-1) if slots else in_pool
        fits = (mx.where(used, found, in_pool) == mx.where(used, entries, -1)).all()
    else:
        ascending = mx.sort(in_pool, axis=-1)
        apart = (ascending[:, :, 1:] > ascending[:, :, :-1]).all()
        fits = apart & (ascending[:, :, 0] >= 0).all() & (ascending[:, :, -1] < older).all()
    if slots:
        newest = before - 1 - (before - 1 - mx.arange(slots)) % slots
        fits = fits & (in_ring == mx.maximum(newest, -1)).all()
    return fits


def _victim_fits(saved: Saved, victim: mx.array) -> mx.array:
    size = saved.config.max_size
    if saved.before < size:
        return (victim == -1).all()
    return ((victim >= 0) & (victim < size)).all()


def all_finite(array: mx.array) -> mx.array:
    """Whether all numbers are finite."""
    return mx.isfinite(array).all()


def has_memory(array: mx.array) -> bool:
    """Whether as many bytes were read as its shape says; that product may overflow."""
    return bool(math.prod(array.shape) * array.itemsize == array.nbytes)


def _is_short(text: str) -> bool:
    return len(text) <= _LONGEST_JSON


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _count(text: str, name: str) -> int:
    if not _COUNT.fullmatch(text) or int(text) >= LARGEST:
        raise wrong(name, text, f"a count below {LARGEST}")
    return int(text)


def wrong(name: str, found: object, allowed: str) -> H2OStateError:
    """The error for a string that is not what it must be."""
    return H2OStateError("damaged_header", part=name, found=str(found)[:80], allowed=allowed)


def misshapen(name: str, array: mx.array, allowed: str) -> H2OStateError:
    """The error for an array of another shape or dtype."""
    return H2OStateError(
        "damaged_shape", part=name, shape=array.shape, dtype=array.dtype, allowed=allowed
    )
