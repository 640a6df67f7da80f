"""Names, formulas and messages of the source as the languages write them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping

from interface.source import Case, Field, Source

_NAME = re.compile(r"[A-Za-z_]\w*")
_HOLE = re.compile(r"\{(name\.)?(\w+)(!r)?\}")


def camel(name: str) -> str:
    """max_size -> maxSize."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def pascal(name: str) -> str:
    """no_recent_rows -> NoRecentRows."""
    return "".join(part.capitalize() for part in name.split("_"))


def replace_names(formula: str, replacements: Mapping[str, str]) -> str:
    """A formula with other names, whole names only."""
    return _NAME.sub(lambda found: replacements.get(found[0], found[0]), formula)


def in_python(formula: str, source: Source, prefix: str = "self.") -> str:
    """A formula on the attributes of an object."""
    names = {field.name: f"{prefix}{field.name}" for field in source.fields}
    return replace_names(
        formula, names | {name: name.upper() for name in source.policy.constants}
    )


def in_cpp(formula: str, source: Source) -> str:
    """A formula on `policy`, in int64_t."""
    names = {
        field.name: f"policy.{field.name}"
        if field.type == "ranges"
        else f"int64_t(policy.{field.name})"
        for field in source.fields
    }
    functions = {"min": "std::min<int64_t>", "max": "std::max<int64_t>"}
    return replace_names(formula, names | functions | _constants(source)).replace("//", "/")


def in_swift(formula: str, source: Source) -> str:
    """A formula on properties."""
    names = {field.name: camel(field.name) for field in source.fields}
    return replace_names(formula, names | _constants(source)).replace("//", "/")


def pieces(template: str, text: Callable[[str], str], hole: Callable[[str], str]) -> list[str]:
    """A message as literals and values, names of settings written out.

    `{name.field}` is the value `field`; quotes stand around what has `!r`.
    """
    parts: list[tuple[str, str]] = []
    end = 0
    for found in _HOLE.finditer(template):
        parts.append(("text", template[end : found.start()]))
        named, word, quoted = found.groups()
        if named and word != "field":
            parts.append(("text", word))
        elif quoted and word != "value":
            parts += [("text", '"'), ("hole", word), ("text", '"')]
        else:
            parts.append(("hole", word))
        end = found.end()
    parts.append(("text", template[end:]))
    merged: list[tuple[str, str]] = []
    for kind, part in parts:
        if kind == "text" and merged and merged[-1][0] == "text":
            merged[-1] = ("text", merged[-1][1] + part)
        else:
            merged.append((kind, part))
    return [text(part) if kind == "text" else hole(part) for kind, part in merged if part]


def message(case: Case) -> str:
    """The template of all that a case says."""
    return f"{case.what}. {case.remedy}".strip()


def quoted(text: str) -> str:
    """A string literal of C++ and Swift."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def comment(text: str) -> str:
    """Prose without the backticks of Markdown."""
    return text.replace("`", "")


def swift_comment(text: str) -> str:
    """Prose with Swift's names where it has settings in backticks."""
    return re.sub(r"`(\w+)`", lambda found: f"`{camel(found[1])}`", text)


def python_text(text: str, indent: str) -> str:
    """A string literal, over several lines if it is long."""
    lines = textwrap.wrap(
        text, 86 - len(indent), break_on_hyphens=False, drop_whitespace=False
    ) or [""]
    return f"\n{indent}".join(quoted(line) for line in lines)


def inlined(formula: str, let: Mapping[str, str]) -> str:
    """A formula with the formulas of a rule's names in their places."""
    while names := {name for name in _NAME.findall(formula) if name in let}:
        formula = replace_names(formula, {name: f"({let[name]})" for name in names})
    return formula


def names_in_order(formula: str, source: Source) -> list[str]:
    """The settings that a formula names, in their order."""
    named = set(_NAME.findall(formula))
    return [field.name for field in source.fields if field.name in named]


def default_text(field: Field) -> str:
    """What a setting is by default, for people; "" where it must be given."""
    if field.required:
        return ""
    if field.type == "ranges":
        return "none"
    return field.default_meaning or f"{field.default}"


def documented(field: Field) -> str:
    """What a setting means and its default."""
    default = default_text(field)
    return f"{field.meaning} Default: {default}." if default else field.meaning


def _constants(source: Source) -> dict[str, str]:
    return {name: str(value) for name, value in source.policy.constants.items()}
