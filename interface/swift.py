"""What the Swift templates write of settings, formulas and messages."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from interface.source import Case, Field, Source
from interface.words import camel, in_swift, names_in_order, pieces

TYPES = {
    "integer": "Int",
    "number": "Float",
    "score": "Score",
    "ranges": "[Range<Int>]",
    "bytes": "Int",
    "layers": "[Int]",
    "folder": "String",
}
VALUE_TYPES = {"text": "String", "integer": "Int", "names": "[String]"}


def tools(source: Source) -> dict[str, Callable[..., object]]:
    """Functions of templates, by their names there."""
    return {
        "swift": lambda formula: in_swift(formula, source),
        "swift_value": value,
        "swift_default": default,
        "swift_recall_type": recall_type,
        "swift_recall_default": recall_default,
        "swift_arguments": lambda field, derived="": arguments(source, field, derived),
        "swift_formula_parameters": lambda field: ", ".join(
            f"{camel(name)}: Int" for name in names_in_order(field.formula, source)
        ),
        "swift_constants": lambda formulas: constants(source, formulas),
        "swift_case_values": lambda case: [
            f"{camel(name)}: {VALUE_TYPES[kind]}" for name, kind in shown(case).items()
        ],
        "swift_case_bindings": lambda case: [f"let {camel(name)}" for name in shown(case)],
        "swift_text": text_literal,
        "swift_message": lambda case, indent: message(source, case, indent),
        "field_named": lambda name: next(f for f in source.fields if f.name == name),
    }


def value(field: Field, given: object) -> str:
    """A value of a setting."""
    return f".{camel(str(given))}" if field.type == "score" else str(given)


def default(field: Field) -> str:
    """What follows a parameter's type."""
    if field.required:
        return ""
    if field.derived:
        return "? = nil"
    return " = []" if field.type == "ranges" else f" = {value(field, field.default)}"


def recall_type(field: Field) -> str:
    """The type of a setting of recall, whose defaults are not worked out in its structure."""
    return TYPES[field.type] + ("?" if field.default is None else "")


def recall_default(field: Field) -> str:
    """The default of a setting of recall."""
    return "nil" if field.default is None else f"{field.default}"


def arguments(source: Source, field: Field, derived: str) -> list[str]:
    """The arguments of a formula's function; `derived` stands before what is a formula."""
    formulas = {each.name for each in source.fields if each.formula}
    return [
        f"{camel(name)}: {derived if name in formulas else ''}{camel(name)}"
        for name in names_in_order(field.formula, source)
    ]


def constants(source: Source, formulas: dict[str, str]) -> list[str]:
    """Defaults that formulas of a named policy start from, as `name = value`."""
    named = {name for each in formulas.values() for name in names_in_order(each, source)}
    return [
        f"{camel(field.name)} = {field.default}"
        for field in source.fields
        if field.name in named - set(formulas) and field.default is not None
    ]


def shown(case: Case) -> dict[str, str]:
    """The values that a case of the Swift enum has: no nearest name."""
    return {name: kind for name, kind in case.values.items() if name != "near"}


def message(source: Source, case: Case, indent: str) -> str:
    """A case's text as string literals with interpolation, on lines of their own."""

    def hole(name: str) -> str:
        if name in source.policy.constants:
            return str(source.policy.constants[name])
        if case.values[name] == "names":
            return f'\\({camel(name)}.joined(separator:\0", "))'
        return f"\\({camel(name)})"

    remedy = "" if "near" in case.remedy else case.remedy
    template = f"{case.what}. {remedy}".strip()
    return text_literal(
        "".join(pieces(template, lambda part: part.replace('"', '\\"'), hole)), indent
    )


def text_literal(text: str, indent: str) -> str:
    """An escaped text as string literals on lines of their own; NUL is an unbroken space."""
    lines = textwrap.wrap(
        text, 82 - len(indent), break_on_hyphens=False, break_long_words=False
    )
    literals = [f'"{line} "' for line in lines[:-1]] + [f'"{lines[-1]}"']
    joined = f"\n{indent}    + ".join(literals)
    return f"{indent}{joined}".replace("\0", " ")
