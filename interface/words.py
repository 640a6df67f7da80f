"""Writes names, values and messages in the syntax of each language."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from interface.source import Field

PYTHON_TYPES = {
    "integer": "int",
    "score": "Score",
    "ranges": "tuple[tuple[int, int], ...]",
    "bytes": "int",
    "layers": "tuple[int, ...]",
    "folder": "str",
}
CPP_TYPES = {
    "integer": "int",
    "score": "Score",
    "ranges": "std::vector<std::pair<int, int>>",
    "bytes": "int64_t",
    "folder": "std::string",
}


def camel(name: str) -> str:
    """Convert a name to camel case: max_size becomes maxSize."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def quoted(text: str) -> str:
    """Return a text as a string literal of C++ and Swift."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def cpp_constant(value: int | str) -> str:
    """Return a default as a C++ expression."""
    return quoted(value) if isinstance(value, str) else f"int64_t({value})"


def comment(text: str) -> str:
    """Return prose without the backticks of Markdown."""
    return text.replace("`", "")


def swift_comment(text: str) -> str:
    """Return prose in which settings in backticks have their Swift names."""
    return re.sub(r"`(\w+)`", lambda match: f"`{camel(match[1])}`", text)


def python_text(text: str, indent: str) -> str:
    """Return a text as a Python string literal, over several lines if it is long."""
    lines = textwrap.wrap(
        text, 86 - len(indent), break_on_hyphens=False, drop_whitespace=False
    ) or [""]
    return f"\n{indent}".join(quoted(line) for line in lines)


def default_text(field: Field) -> str:
    """Describe a setting's default in words; "" if it has none."""
    if field.required:
        return ""
    if field.type == "ranges":
        return "none"
    return field.default_meaning or f"{field.default}"


def documented(field: Field) -> str:
    """Return a setting's meaning and its default, as prose."""
    default = default_text(field)
    return f"{field.meaning} Default: {default}." if default else field.meaning


def wrapped(text: str, prefix: str, width: int = 92) -> str:
    """Wrap a text; each line begins with the prefix."""
    lines = textwrap.wrap(text, width - len(prefix), break_on_hyphens=False)
    return "\n".join(prefix + line for line in lines)


def listed(items: Iterable[str], prefix: str) -> str:
    """Join items with commas; a line never breaks inside an item."""
    unbroken = ", ".join(item.replace(" ", "\0") for item in items)
    return wrapped(unbroken, prefix, 98).replace("\0", " ")
