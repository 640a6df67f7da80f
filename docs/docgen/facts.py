"""The facts that the tools rely on, as tables: every TOML file in h2o_pack/facts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from docs.docgen.markdown import code, plain, table, yes

if TYPE_CHECKING:
    from collections.abc import Mapping

INTRODUCTION = """\
---
hide: [toc]
---

# Facts

Numbers and names that change with the world: upstream's versions, models, devices. They are
TOML files in `bridge/h2o_pack/facts`, each entry with its source; `measured` says whether
somebody measured it or whether it is derived or reported.
"""
LAST = ("measured", "source")


def page() -> str:
    """Return the page."""
    from h2o_pack.facts import FOLDER, toml  # noqa: PLC0415 - the package is only needed here

    files = sorted(FOLDER.glob("*.toml"))
    sections = [section(path, toml.loads(path.read_text("utf-8"))) for path in files]
    index = ", ".join(f"[{path.stem}](#{path.stem})" for path in files) + "."
    return "\n\n".join([INTRODUCTION, index, *sections]) + "\n"


def section(path: Path, document: Mapping[str, Any]) -> str:
    """Describe one file: its remarks, single values and tables."""
    parts = [f"## {path.stem}", plain(remark(path.read_text("utf-8")))]
    single = {key: value for key, value in document.items() if not is_rows(value)}
    if single:
        parts.append(table(["key", "value"], [(f"`{k}`", cell(v)) for k, v in single.items()]))
    tables = {key: rows for key, rows in document.items() if is_rows(rows)}
    for key, rows in tables.items():
        heading = [f"### {path.stem}: {key}"] if len(tables) > 1 else []
        parts += [*heading, rows_table(rows)]
    return "\n\n".join(part for part in parts if part)


def remark(text: str) -> str:
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
    """Write rows with the columns that any of them has, in the order of the file."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    columns = [key for key in columns if key not in LAST] + [k for k in LAST if k in columns]
    heads = [key.replace("_", " ") for key in columns]
    return table(heads, [[named(row, columns[0]), *values(row, columns[1:])] for row in rows])


def named(row: Mapping[str, Any], key: str) -> str:
    """Write what a row is known by: as code, so that it stays in one piece."""
    value = row.get(key, "")
    return code(value) if isinstance(value, str) and value else cell(value)


def values(row: Mapping[str, Any], columns: list[str]) -> list[str]:
    """Write the other cells of a row."""
    return [cell(row.get(key, "")) for key in columns]


def cell(value: object) -> str:
    """Write a value; addresses become links, large numbers get separators."""
    if isinstance(value, bool):
        return yes(value)
    if isinstance(value, int):
        return f"{value:,}" if value >= 100_000 else str(value)  # noqa: PLR2004
    if isinstance(value, list):
        return ", ".join(cell(each) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{plain(str(k))}: {cell(v)}" for k, v in value.items())
    text = str(value)
    if text.startswith(("https://", "http://")) and " " not in text:
        return f"<{text}>"
    return plain(text)
