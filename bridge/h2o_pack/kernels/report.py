"""What the kernels are: their buffers, constants, memory, and which checks see them."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_pack import assets
from h2o_pack.kernels import sources
from h2o_pack.kernels.calls import reachable, read_calls, read_names, threadgroup_bytes
from h2o_pack.kernels.constants import function_constants
from h2o_pack.kernels.interface import Buffer, kernels_of
from h2o_pack.kernels.prepared import KERNELS, Prepared, prepare
from h2o_pack.kernels.syntax_tree import walk
from h2o_pack.kernels.translation import find_clang, translate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from h2o_pack.kernels.translation import Translation

BYTES = "metal/bytes.json"
DERIVED = re.compile(r"^constant\s+\w+\s+(\w+)\s*=([^=][^;]*);", re.MULTILINE)
COVERED = ("language", "address spaces", "limits", "Metal compiler")
OURS = ("fast math", *COVERED)


@dataclass(frozen=True)
class Kernel:
    """A kernel and its instances; threadgroup memory in bytes, the most of all instances.

    What only a compiler knows (instances, constants, memory) is None without clang.
    """

    name: str
    file: str
    buffers: tuple[Buffer, ...]
    instances: tuple[str, ...] | None
    constants: tuple[str, ...] | None
    threadgroup_bytes: int | None
    checks: tuple[str, ...]


@dataclass(frozen=True)
class Library:
    """A compiled library: calls, functions of its kernels, names that functions refer to."""

    calls: Mapping[str, tuple[str, ...]]
    names: Mapping[str, str]
    referred: Mapping[str, set[str]]


@dataclass(frozen=True)
class KernelReport:
    """All kernels, and the bytes of a token and layer if they were counted."""

    kernels: tuple[Kernel, ...]
    formats: tuple[dict[str, Any], ...]

    def document(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return {
            "format": 1,
            "kernels": [asdict(each) for each in self.kernels],
            "bytes": list(self.formats),
        }


def make_report() -> KernelReport:
    """Describe the kernels of this installation."""
    root = assets.root() / KERNELS
    texts = {
        f"{KERNELS}/{path.name}": path.read_text("utf-8") for path in sorted(root.glob("*"))
    }
    with tempfile.TemporaryDirectory(prefix="h2o-kernels-") as name:
        folder = Path(name).resolve()
        prepared = prepare(folder)
        header = folder / "headers" / sources.HEADER
        texts[sources.HEADER.as_posix()] = header.read_text("utf-8")
        clang = find_clang()
        libraries = prepared.libraries if clang else ()
        read = [
            read_library(translate(prepared, each, str(clang)), prepared) for each in libraries
        ]
    kernels = [
        describe(kernel, file, buffers, read, texts)
        for file, text in texts.items()
        for kernel, buffers in kernels_of(text).items()
    ]
    return KernelReport(tuple(sorted(kernels, key=lambda each: each.name)), read_bytes())


def read_library(translation: Translation, prepared: Prepared) -> Library:
    """Gather what the compiler knows of a library."""
    calls = read_calls(translation.ir)
    names = read_names(translation.ir)
    return Library(calls, names, referred(translation, prepared))


def describe(
    name: str,
    file: str,
    buffers: tuple[Buffer, ...],
    libraries: list[Library],
    texts: Mapping[str, str],
) -> Kernel:
    """Describe a kernel by its source and by what the compiler made of it."""
    checks = OURS if file.startswith(KERNELS) else COVERED
    if not libraries:
        return Kernel(name, file, buffers, None, None, None, checks)
    instances: list[str] = []
    taken = [0]
    used = {each.gate for each in buffers if each.gate}
    mangled = re.compile(rf"^_Z{len(name)}{name}I")
    for library in libraries:
        for instance, function in library.names.items():
            if not mangled.match(function):
                continue
            instances.append(instance)
            taken.append(threadgroup_bytes(library.calls, function))
            for each in reachable(library.calls, function):
                used |= library.referred.get(each, set())
    return Kernel(name, file, buffers, tuple(instances), given(used, texts), max(taken), checks)


def referred(translation: Translation, prepared: Prepared) -> dict[str, set[str]]:
    """Return the names that each function of our sources refers to."""
    found: dict[str, set[str]] = {}
    for node in walk(translation.tree):
        if node.kind == "DeclRefExpr" and prepared.inside(node.file) in prepared.own:
            name = str(node.data["referencedDecl"].get("name"))
            found.setdefault(node.function, set()).add(name)
    return found


def given(used: set[str], texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return "index name" of the function constants that names depend on."""
    derived = {name: value for text in texts.values() for name, value in DERIVED.findall(text)}
    needed: set[str] = set()
    waiting = set(used)
    while waiting:
        needed |= waiting
        named = {word for name in waiting for word in re.findall(r"\w+", derived.get(name, ""))}
        waiting = named - needed
    declared = {
        each.index: each.name for text in texts.values() for each in function_constants(text)
    }
    return tuple(
        f"{index} {name}" for index, name in sorted(declared.items()) if name in needed
    )


def read_bytes() -> tuple[dict[str, Any], ...]:
    """Return the counted bytes of each cache format, none where nobody counted."""
    path = assets.root() / BYTES
    if not path.is_file():
        return ()
    formats = json.loads(path.read_text("utf-8")).get("formats", ())
    return tuple(each for each in formats if isinstance(each, dict) and "name" in each)
