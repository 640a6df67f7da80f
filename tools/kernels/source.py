"""Reads the kernels' buffers, and rewrites the kernels' sources for clang.

clang reads the kernels as C++ for OpenCL, which has address spaces too. Three features of Metal
are missing there and are rewritten. Each stays in its line, so that a finding has the line of
the original source:

- function constants get values, which a pipeline gives them on a GPU (`bake`);
- variables in threadgroup memory, which OpenCL allows only in `__kernel` functions, become
  references of the same type to such memory;
- the names of instantiated kernels become annotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interface import kernel_text

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, order=True)
class Finding:
    """An error in a line of a source; line: 0 if the error is not in a line."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


DECLARED = re.compile(
    r"^constant\s+(?P<type>\w+)\s+(?P<name>\w+)\s*"
    r"\[\[\s*function_constant\(\s*(?P<index>\d+)\s*\)\s*\]\]\s*;",
    re.MULTILINE,
)
DERIVED = re.compile(r"^constant(?=\s+\w+\s+\w+\s*=[^=])", re.MULTILINE)


def bake(text: str) -> str:
    """Return a kernel's source whose function constants are compile-time constants.

    Truth values become true and numbers become 32; constants derived from others become
    `constexpr` too. Attributes of parameters do not change, because C++ ignores unknown ones.
    """

    def declared(match: re.Match[str]) -> str:
        value = "true" if match["type"] == "bool" else "32"
        return f"constexpr constant {match['type']} {match['name']} = {value};"

    return DERIVED.sub("constexpr constant", DECLARED.sub(declared, text))


KERNEL = re.compile(r"\[\[\s*kernel\b[^\]]*\]\]\s*void\s+(\w+)\s*\(")
BUFFER = re.compile(r"\[\[.*\bbuffer\(\s*(\d+)\s*\)")
GATE = re.compile(r"\bfunction_constant\(\s*(\w+)\s*\)")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Buffer:
    """A buffer argument of a kernel; gate: the function constant that enables it, or ""."""

    index: int
    name: str
    gate: str = ""


def kernels_of(text: str) -> dict[str, tuple[Buffer, ...]]:
    """Return the buffers of each kernel in a source, by the name of the kernel's function."""
    bare = COMMENT.sub("", text)
    return {
        match[1]: tuple(buffers(enclosed(bare, match.end()))) for match in KERNEL.finditer(bare)
    }


def enclosed(text: str, begin: int) -> str:
    """Return the text from `begin` to the closing bracket of the list that begins there."""
    depth = 1
    for end in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return text[begin:end]
    return text[begin:]


def buffers(parameters: str) -> Iterator[Buffer]:
    """Yield the buffers among a kernel's parameters."""
    for parameter in split(parameters):
        match = BUFFER.search(parameter)
        if match:
            gate = GATE.search(parameter)
            words = re.findall(r"\w+", parameter.partition("[[")[0])
            yield Buffer(int(match[1]), words[-1] if words else "?", gate[1] if gate else "")


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


SHARED = re.compile(
    r"^(?P<start>[ \t]+)threadgroup[ \t]+(?P<type>\w+(?:<[^;<>]*>)?)[ \t]+(?P<name>\w+)"
    r"(?P<extent>(?:\[[^\];]+\])*);",
    re.MULTILINE,
)
NAMED = re.compile(
    r"template(?P<gap1>[\s\\]*)\[\[\s*host_name\((?P<gap2>[\s\\]*)(?P<name>[^()]+)\)\s*\]\]"
    r"(?P<gap3>[\s\\]*)\[\[\s*kernel\s*\]\]"
)


@dataclass(frozen=True)
class Prepared:
    """A folder with kernels that clang can read.

    own: the files that are checked: for each path in the folder, the name to show in findings.
    """

    folder: Path
    own: dict[str, str]

    @property
    def libraries(self) -> tuple[str, ...]:
        """The files to compile, by their path in the folder."""
        return tuple(sorted(name for name in self.own if name.endswith(".metal")))

    def inside(self, path: str) -> str:
        """Return a path relative to the folder."""
        return path.removeprefix(f"{self.folder}/")

    def shown(self, path: str) -> str:
        """Return the name of a file in messages."""
        inside = self.inside(path)
        return self.own.get(inside, inside)


def prepare(folder: Path, kernels: Path | None = None) -> Prepared:
    """Write rewritten kernels into a folder.

    kernels: the folder with the .metal files and their headers; None for the project's headers
    and a .metal file per library, with all of its instances.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder_of_sources = kernels or ROOT / kernel_text.FOLDER
    root = kernel_text.FOLDER if kernels is None else str(kernels)
    sources = {
        path.name: path.read_text("utf-8")
        for path in sorted(folder_of_sources.iterdir())
        if path.suffix in {".h", ".metal"}
    }
    own = {name: f"{root}/{name}" for name in sources}
    if kernels is None:
        for header in kernel_text.libraries():
            name = header.replace(".h", ".metal")
            sources[name] = f'#include "{header}"\n{kernel_text.instances(header)}'
            own[name] = own[header]
    for name, source in sources.items():
        (folder / name).write_text(rewrite(source), "utf-8")
    return Prepared(folder, own)


def rewrite(source: str) -> str:
    """Return a kernel's source as C++ for OpenCL, with the same lines."""
    return NAMED.sub(annotated, SHARED.sub(referenced, bake(source)))


def referenced(match: re.Match[str]) -> str:
    """Return the declaration of a threadgroup variable, rewritten as a reference."""
    type_, extent = match["type"], match["extent"]
    memory = f"h2o_threadgroup_variable<threadgroup {type_}{extent}, sizeof({type_}{extent})>"
    return f"{match['start']}threadgroup {type_} (&{match['name']}){extent} = *{memory}();"


def annotated(match: re.Match[str]) -> str:
    """Return the beginning of a named instantiation, with its name in an annotation."""
    gaps = match["gap1"] + match["gap2"] + match["gap3"]
    return f"template __attribute__((annotate({match['name'].strip()}))){gaps}"
