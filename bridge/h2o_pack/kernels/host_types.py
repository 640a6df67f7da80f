"""The C++ that drives MLX's Metal classes, compiled for macOS on any machine.

Compiled against the headers of mlx's macOS wheel, metal-cpp among them, with Apple's
kind of libc++, so that the objects need the very symbols that a Mac's would.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from h2o_pack import assets
from h2o_pack.kernels.findings import Finding
from h2o_pack.kernels.translation import DIAGNOSTIC, broken, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SOURCES = "cexport/h2o"
MACOS = "arm64-apple-macosx14"
SIMULATORS = ("arm64-apple-ios17.0-simulator", "x86_64-apple-ios17.0-simulator")
"""Those of Macs with Apple silicon, and of the last with Intel's."""


def find_compiler() -> str | None:
    """Return clang++ on PATH."""
    return shutil.which("clang++")


def host_sources() -> list[Path]:
    """Return the C++ sources of our primitives."""
    return sorted((assets.root() / SOURCES).rglob("*.cpp"))


def metal_sources() -> list[Path]:
    """Return those that use MLX's Metal classes, which differ between its versions."""
    return [path for path in host_sources() if path.parent.name == "metal"]


def options(macos: Path, mlx: Path, target: str) -> list[str]:
    """Return the compiler's options; macos: the unpacked wheels, mlx: that of one version."""
    root = assets.root()
    shims = root / "metal/check/macos"
    return [
        *("-target", target, "-std=c++20", "-fblocks", "-w"),
        *("-nostdinc++", "-nostdlibinc", "-fno-color-diagnostics"),
        *("-include", str(shims / "libcxx_configuration.h"), f"-I{shims}"),
        *("-isystem", str(macos / "libcxx"), "-idirafter", str(macos / "libc")),
        *("-isystem", str(mlx / "include"), "-isystem", str(mlx / "include/metal_cpp")),
        *(f"-I{root / SOURCES}", f"-I{root / 'metal/kernels'}"),
    ]


def compile_host(
    mlx: Path, compiler: str, objects: Path, sources: Sequence[Path], target: str = MACOS
) -> list[Finding]:
    """Compile sources into {objects}/*.o and return the errors.

    mlx: one of the folders of `wheels.mlx_folders`. target: clang's name of a system.
    """
    objects.mkdir(parents=True, exist_ok=True)

    def one(numbered: tuple[int, Path]) -> list[Finding]:
        number, source = numbered
        made = objects / f"{number}.o"
        command = [
            compiler,
            *options(mlx.parent, mlx, target),
            "-c",
            str(source),
            "-o",
            str(made),
        ]
        done = run(command)
        found = read_errors(done.stderr)
        if done.returncode != 0 and not found:
            raise broken(compiler, done.stderr)
        return found

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(one, enumerate(sources))
        return sorted({finding for result in results for finding in result})


def read_errors(text: str) -> list[Finding]:
    """Return the errors among the compiler's words, files as in the checkout."""
    found = []
    for line in text.splitlines():
        match = DIAGNOSTIC.match(line)
        if match:
            file = match["file"].removeprefix(f"{assets.root()}/")
            found.append(Finding(file, int(match["line"]), match["text"]))
    return found
