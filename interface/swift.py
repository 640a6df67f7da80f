"""What the Swift templates write of settings and messages."""

from __future__ import annotations

import re
import textwrap

from interface.source import Case, Field
from interface.words import camel

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
SETTINGS = {  # what the core is given
    "integer": ".integer({})",
    "number": ".number(Double({}))",
    "score": ".text({}.rawValue)",
    "ranges": ".integers({}.flatMap {{ [$0.lowerBound, $0.upperBound] }})",
    "bytes": ".integer({})",
    "layers": ".integers({})",
    "folder": ".text({})",
}
VALUES = {  # and what it gives back; ranges stay what they are
    "integer": 'policy.integer("{}")',
    "number": 'Float(policy.number("{}"))',
    "score": 'Score(rawValue: policy.text("{}")) ?? .peak',
    "ranges": "pinned",
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


def setting(field: Field, may_be_nil: bool = False) -> str:  # noqa: FBT001, FBT002  a template's
    """What the core gets of a setting; nil where it was left out."""
    name, made = camel(field.name), SETTINGS[field.type]
    return f"{name}.map {{ {made.format('$0')} }}" if may_be_nil else made.format(name)


def case_values(case: Case) -> list[str]:
    """The values of a case with their types."""
    return [f"{camel(name)}: {VALUE_TYPES[kind]}" for name, kind in shown(case).items()]


def case_arguments(case: Case) -> list[str]:
    """The values of a case as they are read of the core's problem."""
    return [f"{camel(name)}: {given(name, kind)}" for name, kind in shown(case).items()]


def given(name: str, kind: str) -> str:
    """A value of the core's problem."""
    if name == "allowed":
        return "H2OCacheError.allowed(problem)"
    read = f'problem.{"integer" if kind == "integer" else "text"}("{name}")'
    return f'{read}.components(separatedBy:\0", ")' if kind == "names" else read


def allowed(template: str) -> str:
    """What a setting allows as a string literal, its values those of the core's problem."""

    def hole(found: re.Match[str]) -> str:
        kind = "text" if found[1] == "choices" else "integer"
        return f'\\(problem.{kind}("{found[1]}"))'

    return f'"{re.sub("{(.*?)}", hole, template)}"'


def shown(case: Case) -> dict[str, str]:
    """The values that a case of the Swift enum has: no nearest name."""
    return {name: kind for name, kind in case.values.items() if name != "near"}


def message(case: Case, indent: str) -> str:
    """A case's text as string literals with interpolation, on lines of their own."""

    def hole(found: re.Match[str]) -> str:
        setting, word, is_quoted = found.groups()
        if setting and word != "field":
            return word
        names = case.values[word] == "names"
        value = f'{camel(word)}.joined(separator:\0", ")' if names else camel(word)
        quote = '\\"' if is_quoted and word != "value" else ""
        return f"{quote}\\({value}){quote}"

    remedy = "" if "near" in case.remedy else case.remedy
    template = f"{case.what}. {remedy}".strip().replace('"', '\\"')
    return text_literal(re.sub(r"\{(name\.)?(\w+)(!r)?\}", hole, template), indent)


def text_literal(text: str, indent: str) -> str:
    """An escaped text as string literals on lines of their own; NUL is an unbroken space."""
    lines = textwrap.wrap(
        text, 82 - len(indent), break_on_hyphens=False, break_long_words=False
    )
    literals = [f'"{line} "' for line in lines[:-1]] + [f'"{lines[-1]}"']
    joined = f"\n{indent}    + ".join(literals)
    return f"{indent}{joined}".replace("\0", " ")


TOOLS = {
    "swift_types": TYPES,
    "swift_value": value,
    "swift_default": default,
    "swift_recall_type": recall_type,
    "swift_recall_default": recall_default,
    "swift_setting": setting,
    "swift_value_of": lambda field: VALUES[field.type].format(field.name),
    "swift_case_values": case_values,
    "swift_case_arguments": case_arguments,
    "swift_case_bindings": lambda case: [f"let {camel(name)}" for name in shown(case)],
    "swift_text": text_literal,
    "swift_message": message,
    "swift_allowed": allowed,
}
"""What templates use, by the names that it has there."""
