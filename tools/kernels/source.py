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


KERNEL = re.compile(
    r"\[\[\s*kernel\b[^\]]*\]\]\s*void\s+(?P<name>\w+)\s*\((?P<parameters>[^{;]*)\)\s*\{"
)
BUFFER = re.compile(
    r"(?P<name>\w+)\s*\[\[\s*buffer\(\s*(?P<index>\d+)\s*\)(?P<gate>\s*,\s*function_constant)?"
)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
LAST_BUFFER = 30
"""The largest index of every GPU since the A11 (Apple family 4, Metal's feature set tables)."""


@dataclass(frozen=True)
class Buffer:
    """A buffer argument of a kernel; gated: whether a function constant can disable it."""

    kernel: str
    name: str
    index: int
    line: int
    gated: bool


def read_buffers(text: str) -> list[Buffer]:
    """Return the buffers of all kernels in a source."""
    bare = COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    return [
        Buffer(
            kernel["name"],
            match["name"],
            int(match["index"]),
            bare.count("\n", 0, match.start()) + 1,
            bool(match["gate"]),
        )
        for kernel in KERNEL.finditer(bare)
        for match in BUFFER.finditer(bare, *kernel.span("parameters"))
    ]


def check_buffers(text: str, path: str) -> list[Finding]:
    """Return findings about buffers whose index is too large or used twice at once.

    path: the source's name in findings.
    """
    findings, buffers = [], read_buffers(text)
    always = [(buffer.kernel, buffer.index) for buffer in buffers if not buffer.gated]
    for buffer in buffers:
        uses = always.count((buffer.kernel, buffer.index))
        if buffer.index > LAST_BUFFER:
            words = f"{buffer.kernel}: buffer {buffer.index}, but the last is {LAST_BUFFER}"
            findings.append(Finding(path, buffer.line, words))
        if uses > 1 or (buffer.gated and uses):
            words = f"{buffer.kernel}: {buffer.name} shares the index {buffer.index}"
            findings.append(Finding(path, buffer.line, words))
    return findings


DECLARED = re.compile(
    r"^constant\s+(?P<type>\w+)\s+(?P<name>\w+)\s*"
    r"\[\[\s*function_constant\(\s*(?P<index>\d+)\s*\)\s*\]\]\s*;",
    re.MULTILINE,
)
DERIVED = re.compile(r"^constant(?=\s+\w+\s+\w+\s*=[^=])", re.MULTILINE)
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


def bake(text: str) -> str:
    """Return a kernel's source whose function constants are compile-time constants.

    Truth values become true and numbers become 32; constants derived from others become
    `constexpr` too. Attributes of parameters do not change, because C++ ignores unknown ones.
    """

    def declared(match: re.Match[str]) -> str:
        value = "true" if match["type"] == "bool" else "32"
        return f"constexpr constant {match['type']} {match['name']} = {value};"

    return DERIVED.sub("constexpr constant", DECLARED.sub(declared, text))


def referenced(match: re.Match[str]) -> str:
    """Return the declaration of a threadgroup variable, rewritten as a reference."""
    type_, extent = match["type"], match["extent"]
    memory = f"h2o_threadgroup_variable<threadgroup {type_}{extent}, sizeof({type_}{extent})>"
    return f"{match['start']}threadgroup {type_} (&{match['name']}){extent} = *{memory}();"


def annotated(match: re.Match[str]) -> str:
    """Return the beginning of a named instantiation, with its name in an annotation."""
    gaps = match["gap1"] + match["gap2"] + match["gap3"]
    return f"template __attribute__((annotate({match['name'].strip()}))){gaps}"
