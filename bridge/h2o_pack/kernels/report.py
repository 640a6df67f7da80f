"""What the kernels are: their buffers, constants, memory, and which checks see them."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from h2o_pack import assets
from h2o_pack.kernels import text
from h2o_pack.kernels.calls import reachable, read_calls, read_names, threadgroup_bytes
from h2o_pack.kernels.constants import function_constants
from h2o_pack.kernels.interface import Buffer, kernels_of
from h2o_pack.kernels.prepared import Prepared, prepare
from h2o_pack.kernels.syntax_tree import walk
from h2o_pack.kernels.translation import find_clang, translate
from h2o_pack.results import Count, Result, doc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from h2o_pack.kernels.translation import Translation

BYTES = "metal/bytes.json"
DERIVED = re.compile(r"^constant\s+\w+\s+(\w+)\s*=([^=][^;]*);", re.MULTILINE)


@dataclass(frozen=True)
class Kernel:
    """A kernel and its instances."""

    name: Annotated[str, doc("The kernel's function or template.")]
    file: Annotated[str, doc("Where it is defined.")]
    buffers: Annotated[tuple[Buffer, ...], doc("Its arguments.")]
    instances: Annotated[
        tuple[str, ...] | None, doc("Names in the library; null without clang.")
    ]
    constants: Annotated[
        tuple[str, ...] | None, doc('Function constants as "INDEX NAME"; null without clang.')
    ]
    threadgroup_bytes: Annotated[
        int | None,
        doc("Threadgroup memory, the most of all instances; null without clang."),
    ]


@dataclass(frozen=True)
class FormatBytes:
    """Bytes of a step of one layer, for one way to store rows."""

    name: Annotated[str, doc("How rows are stored.")]
    read: Annotated[Count, doc("Bytes that a token and layer read.")]
    written: Annotated[Count, doc("Bytes that they write.")]
    ratio: Annotated[float, doc("Read beside 16-bit rows.")]
    counted: Annotated[
        bool, doc("Whether kernels were run and their accesses counted; else from shapes.")
    ]


@dataclass(frozen=True)
class CountedBytes:
    """The file of counted bytes."""

    formats: tuple[FormatBytes, ...] = ()


@dataclass(frozen=True)
class Library:
    """A compiled library: calls, functions of its kernels, names that functions refer to."""

    calls: Mapping[str, tuple[str, ...]]
    names: Mapping[str, str]
    referred: Mapping[str, set[str]]


@dataclass(frozen=True)
class KernelReport(Result):
    """The Metal kernels, and the bytes that a token moves."""

    kernels: Annotated[tuple[Kernel, ...], doc("All kernels of this project.")]
    bytes: Annotated[
        tuple[FormatBytes, ...], doc("A step of one layer; empty where nobody counted.")
    ]


def make_report() -> KernelReport:
    """Describe the kernels of this installation."""
    texts = {f"{text.FOLDER}/{name}": text.read_header(name) for name in text.headers()}
    with tempfile.TemporaryDirectory(prefix="h2o-kernels-") as name:
        prepared = prepare(Path(name).resolve())
        clang = find_clang()
        libraries = prepared.libraries if clang else ()
        read = [
            read_library(translate(prepared, each, str(clang)), prepared) for each in libraries
        ]
    kernels = [
        describe(kernel, file, buffers, read, texts)
        for file, source in texts.items()
        for kernel, buffers in kernels_of(source).items()
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
    if not libraries:
        return Kernel(name, file, buffers, None, None, None)
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
    return Kernel(name, file, buffers, tuple(instances), given(used, texts), max(taken))


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
    derived = {name: value for each in texts.values() for name, value in DERIVED.findall(each)}
    needed: set[str] = set()
    waiting = set(used)
    while waiting:
        needed |= waiting
        named = {word for name in waiting for word in re.findall(r"\w+", derived.get(name, ""))}
        waiting = named - needed
    declared = {
        each.index: each.name
        for source in texts.values()
        for each in function_constants(source)
    }
    return tuple(
        f"{index} {name}" for index, name in sorted(declared.items()) if name in needed
    )


def read_bytes() -> tuple[FormatBytes, ...]:
    """Return the counted bytes of each cache format, none where nobody counted."""
    path = assets.root() / BYTES
    if not path.is_file():
        return ()
    return msgspec.json.decode(path.read_bytes(), type=CountedBytes).formats
