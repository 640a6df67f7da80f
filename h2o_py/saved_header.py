"""The header of a saved cache: the strings in a file, in addition to the arrays.

They are, in order: format, offset, length, number of written tokens without attention, and the
configuration as JSON. Then comes the row format as JSON, if the class of the cache has several,
and the archive's settings as JSON, if there is an archive. A file may be damaged or hostile, so
the core checks numbers and arrays before it uses them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from h2o_py.config import H2OConfig, without_warnings
from h2o_py.errors import H2OFileError, H2OStateError
from h2o_py.rows import BITS, DENSE, DTYPES, RowFormat, check_choice

RECALL = "+recall"
"""Follows the format of a saved cache with an archive."""
_DENSE, _MIXED = "h2o.dense.1", "h2o.mixed.1"
_LARGEST = 2**62  # fits the core's integers
_LONGEST_JSON = 1 << 20
_Count = Annotated[int, msgspec.Meta(ge=0, lt=_LARGEST)]


class Mark(msgspec.Struct, forbid_unknown_fields=True):
    """What a saved cache says of its archive in files."""

    session: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
    count: Annotated[int, msgspec.Meta(ge=-1, lt=_LARGEST)]
    """Number of segments."""
    chain: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class SavedArchive(msgspec.Struct, forbid_unknown_fields=True):
    """What a saved cache says of its archive."""

    bits: _Count
    dtype: str
    """One of `h2o_py.rows.DTYPES`."""
    first: _Count
    """The oldest position in the archive."""
    group_size: _Count
    since: _Count
    """Steps since the last recall."""
    files: Any = None
    """The archive's `Mark`, if the archive is in files."""


class Saved(NamedTuple):
    """The parsed header of a saved cache."""

    counts: tuple[int, int, int]
    """Offset, length, and tokens written whose attention is outstanding."""
    config: H2OConfig
    row_format: RowFormat
    archive: SavedArchive | None


def strings(form: str, config: H2OConfig, row_format: RowFormat, layer: Any) -> tuple[str, ...]:
    """Return the header of a layer's cache; `form` is the format of the cache's class."""
    archive = layer.archive
    saved = [
        form if archive is None else form + RECALL,
        *map(str, (layer.offset, layer.length, layer.waiting)),
        json.dumps(config.to_dict(), sort_keys=True),
    ]
    if form != _DENSE:
        values = {"group_size": row_format.group_size, "dtype": str(row_format.dtype)}
        if form == _MIXED:
            values["heavy_bits"], values["recent_bits"] = (
                row_format.key_bits,
                row_format.ring.key_bits,
            )
            values["value_dim"] = 0 if layer.is_empty else layer.views()[1].shape[3]
        else:
            values["key_bits"], values["value_bits"] = (
                row_format.key_bits,
                row_format.value_bits,
            )
        if row_format.rotated:  # left out if false; files without the key are valid
            values["rotated"] = True
        saved.append(json.dumps(values, sort_keys=True))
    if archive is not None:
        values = {
            "bits": archive.bits,
            "dtype": str(archive.dtype),
            "first": archive.first,
            "group_size": archive.group_size,
            "since": layer.since,
        }
        if archive.mark is not None:
            values["files"] = msgspec.structs.asdict(Mark(*archive.mark))
        saved.append(json.dumps(values, sort_keys=True))
    return tuple(saved)


def read(values: Sequence[str], form: str, store: str | None) -> Saved:
    """Parse the header of a saved cache.

    Args:
        values: the strings of the header.
        form: the format of the class that the cache must have.
        store: the folder of the conversation's archive, if it is in files. The caller gives
            it, because a file must not choose which folder is opened.

    Raises:
        H2OStateError: the format or the number of strings differs, or a string is invalid.
        H2OConfigError: the configuration or the row format is invalid.
        H2OFileError: the archive is in files, and `store` is None or has another archive.

    """
    recalls = bool(values) and values[0] == form + RECALL
    if not recalls and (not values or values[0] != form):
        first = str(values[0])[:80] if values else "nothing"
        raise H2OStateError("other_state_format", found=first, known=form)
    count = 5 + (form != _DENSE) + recalls
    if len(values) != count or not all(isinstance(text, str) for text in values):
        raise _wrong("strings", len(values), f"{count} texts")
    offset, length, pending = map(_count, values[1:4], ("offset", "length", "pending"))
    try:
        config = H2OConfig.from_dict(_json(values[4], "configuration"))
    except (OverflowError, TypeError, RecursionError) as error:
        raise _wrong("configuration", values[4], "a value that a cache has") from error
    row_format = DENSE if form == _DENSE else _row_format(values[5], has_ring=form == _MIXED)
    archive = _archive(values[-1]) if recalls else None
    folder = None
    if archive is not None and archive.files is not None:
        folder = _layer_folder(config, store)
        archive.files = _mark(archive.files, folder)
    return Saved((offset, length, pending), _in_folder(config, folder), row_format, archive)


def _row_format(text: str, *, has_ring: bool) -> RowFormat:
    values = _json(text, "row format")
    bits = (
        ("heavy_bits", "recent_bits", "value_dim") if has_ring else ("key_bits", "value_bits")
    )
    names = {*bits, "group_size"}
    whole = all(type(values.get(name)) is int for name in names)
    rotated = not has_ring and values.pop("rotated", False)
    fits = values.keys() == names | {"dtype"} and whole and values["dtype"] in [*DTYPES]
    if not fits or type(rotated) is not bool:
        raise _wrong("row format", text, f"a dtype, and integers {', '.join(sorted(names))}")
    dtype = DTYPES[values["dtype"]]
    if has_ring:
        heavy, recent = values["heavy_bits"], values["recent_bits"]
        return RowFormat(heavy, heavy, values["group_size"], dtype, recent)
    check_choice("key_bits", values["key_bits"], BITS)
    return RowFormat(
        values["key_bits"], values["value_bits"], values["group_size"], dtype, rotated=rotated
    )


def _archive(text: str) -> SavedArchive:
    try:
        archive = msgspec.convert(_json(text, "archive"), SavedArchive)
    except msgspec.ValidationError:
        archive = None
    if archive is None or archive.dtype not in DTYPES:
        counts = "bits, first, group_size, since"
        raise _wrong("archive", text, f"a dtype, and counts {counts}")
    return archive


def _in_folder(config: H2OConfig, folder: str | None) -> H2OConfig:
    """Return the configuration with its archive in `folder`, or in memory for None."""
    if config.recall is None or config.recall.store == folder:
        return config
    recall = dataclasses.replace(config.recall, store=folder)
    with without_warnings():
        return dataclasses.replace(config, recall=recall)


def _layer_folder(config: H2OConfig, store: str | None) -> str:
    """Return the folder of the layer's archive in `store`.

    The saved cache also names a folder. Only the last part of its path is used, and only if it
    is the name of a layer's folder.
    """
    if store is None:
        raise H2OFileError("archive_not_given")
    saved = (config.recall.store if config.recall else None) or ""
    layer = saved.rpartition("/")[2]
    return f"{store}/{layer}" if re.fullmatch("layer-[0-9]{3,9}", layer) else store


def _mark(values: Any, folder: str) -> Mark:
    try:
        return msgspec.convert(values, Mark)
    except msgspec.ValidationError:
        raise H2OFileError("archive_other", path=folder) from None


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        values = (
            json.loads(text, parse_constant=_no_number) if len(text) <= _LONGEST_JSON else None
        )
    except (ValueError, RecursionError) as error:
        raise _wrong(name, text, "JSON") from error
    if not isinstance(values, dict):
        raise _wrong(name, text, f"a JSON object of at most {_LONGEST_JSON} characters")
    return values


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _count(text: str, name: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise _wrong(name, text, "a count")
    return int(text)


def _wrong(part: str, value: object, allowed: str) -> H2OStateError:
    return H2OStateError("damaged_header", part=part, found=str(value)[:80], allowed=allowed)
