"""Makes tables of the facts that h2o-pack relies on, from the TOML files in h2o_pack/facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from docs.docgen.markdown import code, plain, table, yes

LAST = ("measured", "source")
HIDDEN = ("config",)
"""Keys that the tables leave out."""
RARE = 4
"""A column that less than one row in so many has is joined with others."""


def tables(name: str) -> str:
    """Return the Markdown of a file of facts: its comment, its plain values and its tables."""
    from h2o_pack.facts import FOLDER  # imported late: other pages do not need the package

    text = (FOLDER / f"{name}.toml").read_text("utf-8")
    document = msgspec.toml.decode(text)
    parts = [plain(comment(text))]
    single = {key: value for key, value in document.items() if not is_rows(value)}
    if single:
        parts.append(table(["key", "value"], [(f"`{k}`", cell(v)) for k, v in single.items()]))
    lists = {key: rows for key, rows in document.items() if is_rows(rows)}
    for key, rows in lists.items():
        heading = [f"### {name}: {key}"] if len(lists) > 1 else []
        parts += [*heading, rows_table(rows)]
    if name == "swift_models":
        parts.append(without_swift())
    return "\n\n".join(part for part in parts if part)


def without_swift() -> str:
    """Name the model types of mlx-lm that mlx-swift-lm does not have."""
    from h2o_pack.models.config import types_of_mlx_lm, why_refused

    reasons: dict[str, list[str]] = {}
    for model_type in types_of_mlx_lm():
        reasons.setdefault(why_refused(model_type), []).append(code(model_type))
    reasons.pop("")
    heads = ["the other model types of mlx-lm", "why they are refused"]
    return table(heads, [(", ".join(types), plain(why)) for why, types in reasons.items()])


def comment(text: str) -> str:
    """Return the comment that a file begins with."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return "\n".join(lines)


def is_rows(value: object) -> bool:
    """Whether a value is a `[[key]]` table."""
    return isinstance(value, list) and bool(value) and all(isinstance(x, dict) for x in value)


def rows_table(rows: list[Mapping[str, Any]]) -> str:
    """Write rows with the columns that any of them has, in the order of the file.

    Columns that few rows have are joined in one.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    columns = [key for key in columns if key not in (*LAST, *HIDDEN)]
    rare = [key for key in columns if sum(key in row for row in rows) < len(rows) / RARE]
    common = [key for key in columns if key not in rare]
    last = [key for key in LAST if any(key in row for row in rows)]
    heads = [*(key.replace("_", " ") for key in common), *(["besides"] if rare else []), *last]
    return table(
        heads,
        [
            [
                named(row, common[0]),
                *values(row, common[1:]),
                *([besides(row, rare)] if rare else []),
                *values(row, last),
            ]
            for row in rows
        ],
    )


def besides(row: Mapping[str, Any], keys: list[str]) -> str:
    """Write the keys that a row has of these, with their values."""
    parts = (f"{key.replace('_', ' ')}: {cell(row[key])}" for key in keys if key in row)
    return "; ".join(parts)


def named(row: Mapping[str, Any], key: str) -> str:
    """Write a row's name as code, so that it is not broken over lines."""
    value = row.get(key, "")
    return code(value) if isinstance(value, str) and value else cell(value)


def values(row: Mapping[str, Any], columns: list[str]) -> list[str]:
    """Write the cells of a row in these columns."""
    return [cell(row.get(key, "")) for key in columns]


def cell(value: object) -> str:
    """Write a value; addresses become links named after their host."""
    if isinstance(value, bool):
        return yes(value)
    if isinstance(value, int):
        return f"{value:,}" if value >= 100_000 else str(value)  # noqa: PLR2004
    if isinstance(value, list):
        return ", ".join(cell(element) for element in value)
    if isinstance(value, dict):
        return ", ".join(f"{plain(str(k))}: {cell(v)}" for k, v in value.items())
    text = str(value)
    if text.startswith(("https://", "http://")) and " " not in text:
        return f"[{urlsplit(text).hostname}](<{text}>)"
    return plain(text)
