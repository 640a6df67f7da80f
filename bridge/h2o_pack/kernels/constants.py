"""Function constants of Metal kernels, given values in the text.

Metal gives function constants their values when a pipeline is made, and then
removes what they switch off. A compiler of C++ does the same once the constants
are `constexpr`, which is what `bake` makes of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DECLARED = re.compile(
    r"^constant\s+(?P<type>\w+)\s+(?P<name>\w+)\s*"
    r"\[\[\s*function_constant\(\s*(?P<index>\d+)\s*\)\s*\]\]\s*;",
    re.MULTILINE,
)
DERIVED = re.compile(r"^constant(?=\s+\w+\s+\w+\s*=[^=])", re.MULTILINE)


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


def bake(text: str) -> str:
    """Return a kernel's source with its function constants known when it is compiled.

    All are on, and numbers are 32; constants derived from others are made `constexpr` too.
    Attributes of parameters stay as they are, since C++ ignores those that it does not know.
    """

    def declared(match: re.Match[str]) -> str:
        value = "true" if match["type"] == "bool" else "32"
        return f"constexpr constant {match['type']} {match['name']} = {value};"

    return DERIVED.sub("constexpr constant", DECLARED.sub(declared, text))
