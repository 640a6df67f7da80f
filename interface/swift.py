"""Writes settings and messages as Swift source, for the templates."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from interface.source import Case, ErrorsFile, Field, Message
from interface.words import camel

TYPES = {
    "integer": "Int",
    "score": "Score",
    "ranges": "[Range<Int>]",
    "bytes": "Int",
    "layers": "[Int]",
    "folder": "String",
}
VALUE_TYPES = {"text": "String", "integer": "Int", "names": "[String]"}
SETTINGS = {  # Swift for a setting that is passed to the core, by the setting's type
    "integer": ".integer({})",
    "score": ".text({}.rawValue)",
    "ranges": ".integers({}.flatMap {{ [$0.lowerBound, $0.upperBound] }})",
    "bytes": ".integer({})",
    "layers": ".integers({})",
    "folder": ".text({})",
}
VALUES = {  # Swift for a setting that the core returns, by its type
    "integer": 'policy.integer("{}")',
    "score": 'Score(rawValue: policy.text("{}")) ?? .peak',
    "ranges": 'policy.ranges("{}")',
    "bytes": 'policy.integer("{}")',
    "folder": 'policy.text("{}")',
}


def value(field: Field, setting: object) -> str:
    """Return the Swift literal of a setting's value."""
    return f".{camel(str(setting))}" if field.type == "score" else str(setting)


def parameter(field: Field) -> str:
    """Return the parameter of an initializer that sets a setting, with its default value."""
    declaration = f"{camel(field.name)}: {TYPES[field.type]}"
    if field.required:
        return declaration
    if field.type == "ranges":
        return f"{declaration} = []"
    if field.default is None:
        return f"{declaration}? = nil"
    return f"{declaration} = {value(field, field.default)}"


def parameters(fields: Iterable[Field]) -> list[str]:
    """Return the parameters that set these settings."""
    return [parameter(field) for field in fields]


def recall_type(field: Field) -> str:
    """Return the type of a setting of recall; optional if the core computes its default."""
    return TYPES[field.type] + ("?" if field.default is None else "")


def setting(field: Field, may_be_nil: bool = False) -> str:  # noqa: FBT001, FBT002  templates call it
    """Return the expression that passes a setting to the core; nil if it is not set."""
    name, expression = camel(field.name), SETTINGS[field.type]
    if may_be_nil:
        return f"{name}.map {{ {expression.format('$0')} }}"
    return expression.format(name)


def value_of(field: Field) -> str:
    """Return the expression that reads a setting from a policy that the core returns."""
    return VALUES[field.type].format(field.name)


def recall_value_of(field: Field) -> str:
    """Return the expression that reads a setting of recall; 0 and empty texts are nil."""
    value = VALUES[field.type].format(f"recall.{field.name}")
    if field.default is not None:
        return value
    is_none = f"{value}.isEmpty" if field.type == "folder" else f"{value} == 0"
    return f"{is_none} ? nil : {value}"


def case_values(case: Case) -> list[str]:
    """Return the associated values of an enum case, with their types."""
    return [
        f"{camel(name)}: {VALUE_TYPES[kind]}" for name, kind in associated_values(case).items()
    ]


def case_bindings(case: Case) -> list[str]:
    """Return the patterns that bind the associated values of an enum case."""
    return [f"let {camel(name)}" for name in associated_values(case)]


def case_arguments(case: Case) -> list[str]:
    """Return the arguments that make an enum case from a problem that the core reports."""
    return [
        f"{camel(name)}: {problem_value(name, kind)}"
        for name, kind in associated_values(case).items()
    ]


def problem_value(name: str, kind: str) -> str:
    """Return the expression that reads one value of a problem that the core reports."""
    if name == "allowed":
        return "H2OCacheError.allowed(problem)"
    expression = f'problem.{"integer" if kind == "integer" else "text"}("{name}")'
    return f'{expression}.components(separatedBy:\0", ")' if kind == "names" else expression


def allowed(template: str) -> str:
    """Return a string literal that states a setting's allowed values, from the problem."""

    def hole(match: re.Match[str]) -> str:
        kind = "text" if match[1] == "choices" else "integer"
        return f'\\(problem.{kind}("{match[1]}"))'

    return f'"{re.sub("{(.*?)}", hole, template)}"'


def associated_values(case: Case) -> dict[str, str]:
    """Return the values of the Swift case: all values except the nearest name."""
    return {name: kind for name, kind in case.values.items() if name != "near"}


def message(case: Case, indent: str) -> str:
    """Return a message as string literals with interpolation, one per line."""

    def hole(match: re.Match[str]) -> str:
        setting, word, is_quoted = match.groups()
        if setting and word != "field":
            return word
        names = case.values[word] == "names"
        value = f'{camel(word)}.joined(separator:\0", ")' if names else camel(word)
        quote = '\\"' if is_quoted and word != "value" else ""
        return f"{quote}\\({value}){quote}"

    remedy = "" if "near" in case.remedy else case.remedy
    template = f"{case.what}. {remedy}".strip().replace('"', '\\"')
    return text_literal(re.sub(r"\{(name\.)?(\w+)(!r)?\}", hole, template), indent)


def of_core(errors: ErrorsFile) -> list[Message]:
    """Return the messages for codes that the core reports, warnings included."""
    warnings = [
        Message(code=case.code, what=case.what, remedy=case.remedy.removesuffix("."))
        for case in errors.warning
    ]
    return [message for message in errors.message if message.swift == "core"] + warnings


def parameters_of(message: Message) -> str:
    """Return the parameters of the function that returns a message."""
    return ", ".join(
        f"{camel(name)}: {VALUE_TYPES[kind]}" for name, kind in message.values.items()
    )


def text_of(template: str, indent: str, *, of_core: bool) -> str:
    """Return a text as string literals, with the values of the core or of parameters."""

    def hole(match: re.Match[str]) -> str:
        setting, name, is_quoted = match.groups()
        if setting:
            return name
        value = f'value("{name}")' if of_core else camel(name)
        quote = '\\"' if is_quoted else ""
        return f"{quote}\\({value}){quote}"

    escaped = template.replace('"', '\\"')
    return text_literal(re.sub(r"\{(name\.)?(\w+)(!r)?\}", hole, escaped), indent).lstrip()


def sentences(message: Message) -> str:
    """Return what is wrong and what to do, as one text."""
    remedy = message.remedy if message.swift_remedy is None else message.swift_remedy
    return f"{message.what}. {remedy}." if remedy else f"{message.what}."


def text_literal(text: str, indent: str) -> str:
    """Return a text as string literals, one per line; NUL marks spaces that must not break."""
    lines = textwrap.wrap(
        text, 82 - len(indent), break_on_hyphens=False, break_long_words=False
    )
    literals = [f'"{line} "' for line in lines[:-1]] + [f'"{lines[-1]}"']
    joined = f"\n{indent}    + ".join(literals)
    return f"{indent}{joined}".replace("\0", " ")
