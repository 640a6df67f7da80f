"""Kernels as clang's C++ for OpenCL reads them, with real address spaces.

Three things of Metal have no counterpart there and are rewritten, each in its own
line, so that a finding names the line of the original:

- function constants get values (`constants.bake`);
- variables in threadgroup memory, which OpenCL allows in `__kernel` functions only,
  become references of the same type to such memory;
- the names of instantiated kernels become annotations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_pack import assets
from h2o_pack.kernels import constants, text

if TYPE_CHECKING:
    from pathlib import Path

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

    own: the files that findings are wanted for, by their path in the folder; each with
    the name that people know it by.
    """

    folder: Path
    own: dict[str, str]

    @property
    def libraries(self) -> tuple[str, ...]:
        """The files to compile, by their path in the folder."""
        return tuple(sorted(name for name in self.own if name.endswith(".metal")))

    def inside(self, path: str) -> str:
        """Return a path as seen from the folder."""
        return path.removeprefix(f"{self.folder}/")

    def shown(self, path: str) -> str:
        """Return how a file is named in messages."""
        inside = self.inside(path)
        return self.own.get(inside, inside)


def prepare(folder: Path, kernels: Path | None = None) -> Prepared:
    """Write kernels, rewritten, into a folder.

    kernels: the folder with the .metal files and their headers, by default our headers and
    a file for each library with all of its instances.
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = kernels or assets.root() / text.FOLDER
    shown = text.FOLDER if kernels is None else str(kernels)
    sources = {
        path.name: path.read_text("utf-8")
        for path in sorted(given.iterdir())
        if path.suffix in {".h", ".metal"}
    }
    own = {name: f"{shown}/{name}" for name in sources}
    if kernels is None:
        for header in text.libraries():
            name = header.replace(".h", ".metal")
            sources[name] = f'#include "{header}"\n{text.instances(header)}'
            own[name] = own[header]
    for name, source in sources.items():
        (folder / name).write_text(rewrite(source), "utf-8")
    return Prepared(folder, own)


def rewrite(source: str) -> str:
    """Return a kernel's source for C++ for OpenCL, line by line the same."""
    return NAMED.sub(annotated, SHARED.sub(referenced, constants.bake(source)))


def referenced(match: re.Match[str]) -> str:
    """Return a variable in threadgroup memory as a reference."""
    type_, extent = match["type"], match["extent"]
    memory = f"h2o_threadgroup_variable<threadgroup {type_}{extent}, sizeof({type_}{extent})>"
    return f"{match['start']}threadgroup {type_} (&{match['name']}){extent} = *{memory}();"


def annotated(match: re.Match[str]) -> str:
    """Return the start of a named instantiation with an annotation for its name."""
    gaps = match["gap1"] + match["gap2"] + match["gap3"]
    return f"template __attribute__((annotate({match['name'].strip()}))){gaps}"
