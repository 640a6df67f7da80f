"""The cache's settings as Swift writes them."""

from __future__ import annotations

import textwrap

from h2o_py.config import H2OConfig
from h2o_py.policy_fields import FIELDS, RECALL_FIELDS

COLUMNS = 100
OF_SESSION = "store"  # the session chooses the archive's folder
SPACE = "\0"  # where no line may end


def config_arguments(config: H2OConfig, indent: int = 12) -> str:
    """Arguments of Swift's H2OConfiguration, on indented lines of at most 100 columns."""
    text = arguments(config, [field.name for field in FIELDS])
    if config.recall is not None:
        names = [field.name for field in RECALL_FIELDS if field.name != OF_SESSION]
        text += f", recall:{SPACE}H2ORecall({arguments(config.recall, names)})"
    lines = textwrap.wrap(
        text, COLUMNS - indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(" " * indent + line for line in lines).replace(SPACE, " ")


def arguments(settings: object, names: list[str]) -> str:
    """Arguments for settings of these names."""
    values = ((name, swift_value(getattr(settings, name))) for name in names)
    return ", ".join(f"{camel(name)}:{SPACE}{value}" for name, value in values)


def camel(name: str) -> str:
    """Return a setting's name in Swift."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def swift_value(value: object) -> str:
    """Return a setting's value in Swift."""
    if value is None:
        return "nil"
    if isinstance(value, str):
        return f".{camel(value)}"
    if isinstance(value, tuple):
        return f"[{f',{SPACE}'.join(map(element, value))}]"
    return str(value)


def element(value: object) -> str:
    """Return an element of a list in Swift: a range of positions, or a number."""
    if isinstance(value, tuple):
        begin, end = value
        return f"{begin}{SPACE}..<{SPACE}{end}"
    return str(value)
