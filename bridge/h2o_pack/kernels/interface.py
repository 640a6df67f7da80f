"""What a kernel takes from its caller, read from its source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from h2o_pack.results import Count, doc

KERNEL = re.compile(r"\[\[\s*kernel\b[^\]]*\]\]\s*void\s+(\w+)\s*\(")
BUFFER = re.compile(r"\[\[.*\bbuffer\(\s*(\d+)\s*\)")
GATE = re.compile(r"\bfunction_constant\(\s*(\w+)\s*\)")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


Role = Literal["in", "out", "value"]


@dataclass(frozen=True)
class Buffer:
    """An argument of a kernel."""

    index: Annotated[Count, doc("Index of the argument.")]
    name: Annotated[str, doc("Its name in the kernel.")]
    role: Annotated[
        Role,
        doc("Read, written (perhaps read too), or a value in constant memory."),
    ]
    gate: Annotated[str, doc("Function constant without which it is not bound, or empty.")] = ""


def kernels_of(text: str) -> dict[str, tuple[Buffer, ...]]:
    """Return the buffers of each kernel in a source, by the kernel's function."""
    bare = COMMENT.sub("", text)
    return {
        match[1]: tuple(buffers(enclosed(bare, match.end()))) for match in KERNEL.finditer(bare)
    }


def enclosed(text: str, begin: int) -> str:
    """Return the text from `begin` to the bracket that closes there."""
    depth = 1
    for end in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return text[begin:end]
    return text[begin:]


def buffers(parameters: str) -> Iterator[Buffer]:
    """Yield those of a kernel's parameters that are buffers."""
    for parameter in split(parameters):
        match = BUFFER.search(parameter)
        if match:
            declared = parameter.partition("[[")[0]
            gate = GATE.search(parameter)
            words = re.findall(r"\w+", declared)
            name = words[-1] if words else "?"
            yield Buffer(int(match[1]), name, role(declared), gate[1] if gate else "")


def role(declared: str) -> Role:
    """Return what a parameter is for, by its address space and const."""
    words = set(re.findall(r"\w+", declared))
    if "constant" in words:
        return "value"
    return "in" if "const" in words else "out"


def split(parameters: str) -> Iterator[str]:
    """Yield the parameters of a list, which commas separate outside of brackets."""
    depth = 0
    begin = 0
    for at, letter in enumerate(parameters):
        depth += (letter in "([<{") - (letter in ")]>}")
        if letter == "," and depth == 0:
            yield parameters[begin:at]
            begin = at + 1
    yield parameters[begin:]
