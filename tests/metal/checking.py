"""Kernels of a few lines, read as the checks read ours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tools.kernels import macos as wheels
from tools.kernels.compiler import Translation, find_clang, translate
from tools.kernels.source import Prepared, prepare

ROOT = Path(__file__).parents[2]
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
KERNEL = """
template <typename T>
[[kernel]] void tested(
    device T* out [[buffer(0)]],
    const device T* in [[buffer(1)]],
    const constant int& count [[buffer(2)]]) {
"""
NAMED = (
    'template [[host_name("tested_float")]] [[kernel]] decltype(tested<float>) tested<float>;\n'
)


def read(folder: Path, source: str) -> tuple[Translation, Prepared]:
    """Read one .metal file of our own."""
    kernels = folder / "own"
    kernels.mkdir()
    (kernels / "t.metal").write_text(source)
    prepared = prepare(folder / "made", kernels)
    (library,) = prepared.libraries
    return translate(prepared, library, clang()), prepared


def kernel(body: str, before: str = "") -> str:
    """Write a kernel with a body, after other declarations."""
    return kernels([body], before)[0]


def kernels(bodies: Iterable[str], before: str = "") -> tuple[str, list[int]]:
    """Write a kernel for each body; return the line in which each body begins too."""
    source, lines = HEAD + textwrap.dedent(before), []
    for number, body in enumerate(bodies):
        name = f"tested{number or ''}"
        source += KERNEL.replace("tested", name)
        lines.append(source.count("\n") + 1)
        inside = textwrap.indent(textwrap.dedent(body), "  ")
        source += f"{inside}\n}}\n{NAMED.replace('tested', name)}"
    return source, lines


def line_of(source: str, part: str) -> int:
    """Return the line that a part of a source is in."""
    return source[: source.index(part)].count("\n") + 1


def clang() -> str:
    found = find_clang()
    assert found, "these tests need clang on PATH"
    return found


@cache
def macos() -> Path:
    """The macOS wheels, downloaded once for all runs in this checkout."""
    return wheels.download(wheels.FOLDER)
