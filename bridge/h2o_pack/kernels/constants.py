"""Function constants of Metal kernels, given values in the text.

Metal gives function constants their values when a pipeline is made, and then
removes what they switch off. A compiler of C++ does the same once the constants
are `constexpr`, which is what `bake` makes of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

DECLARED = re.compile(
    r"^constant\s+(?P<type>\w+)\s+(?P<name>\w+)\s*"
    r"\[\[\s*function_constant\(\s*(?P<index>\d+)\s*\)\s*\]\]\s*;",
    re.MULTILINE,
)
DERIVED = re.compile(r"^constant(?=\s+\w+\s+\w+\s*=[^=])", re.MULTILINE)
DEFINED = re.compile(r"\bis_function_constant_defined\(\s*(\w+)\s*\)")


@dataclass(frozen=True)
class FunctionConstant:
    """A constant that a pipeline gives its value, by name or by index."""

    name: str
    type: str
    index: int


def function_constants(text: str) -> tuple[FunctionConstant, ...]:
    """Return the function constants that a kernel's source declares, in order."""
    return tuple(
        FunctionConstant(match["name"], match["type"], int(match["index"]))
        for match in DECLARED.finditer(text)
    )


def bake(text: str, values: Mapping[str, str]) -> str:
    """Return a kernel's source with its function constants known when it is compiled.

    values has the C++ text of each value by name ({"has_mask": "true"}); names
    that the text does not declare are ignored, so that one mapping serves all
    files of a kernel. A constant without a value is zero and not defined, as
    in Metal; so are the arguments that it gates. Constants derived from others
    are made `constexpr` too; attributes of parameters stay as they are, since
    C++ ignores attributes that it does not know.
    """

    def declared(match: re.Match[str]) -> str:
        value = values.get(match["name"], "{}")
        return f"constexpr constant {match['type']} {match['name']} = {value};"

    def defined(match: re.Match[str]) -> str:
        return "true" if match[1] in values else "false"

    text = DECLARED.sub(declared, text)
    return DERIVED.sub("constexpr constant", DEFINED.sub(defined, text))
