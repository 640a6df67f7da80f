"""Compiles the C++ that uses MLX's Metal classes for macOS, on any machine.

It is compiled with the headers of mlx's macOS wheels, which include metal-cpp, and with a
libc++ like Apple's from zig's wheel. The objects then need the same symbols as on a Mac, and
libmlx.dylib must export them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from tools.kernels.compiler import CompilerError, find, read_errors, run
from tools.kernels.source import ROOT, Finding
from tools.wheels import fetch

FOLDER = ROOT / "build/macos"
"""The folder in which the wheels are unpacked."""
SOURCES = ROOT / "cexport/h2o"
SHIMS = ROOT / "tests/metal/check/macos"
MACOS = "arm64-apple-macosx14"
SIMULATOR = "arm64-apple-ios17.0-simulator"
LIBRARY = "lib/libmlx.dylib"
NEEDED = re.compile(r"^__Z(?:T[VTIS])?N[VKRO]*(?:3mlx|3MTL|2NS|2CA)")
"""Symbols that libmlx.dylib or Metal must export."""


class Wheel(NamedTuple):
    """A wheel in the package index."""

    name: str
    version: str
    platform: str
    sha256: str


# The mlx of Python, the mlx in mlx-swift, and libc++ with macOS's C headers.
WHEELS = (
    Wheel(
        "mlx-metal",
        "0.32.4",
        "macosx_14_0_arm64",
        "8019b2db622599267d66cc168b2f0dbf5af929790a6c3b3913e00eabc42a7947",
    ),
    Wheel(
        "mlx-metal",
        "0.31.1",
        "macosx_14_0_arm64",
        "70741174131dbf7fdd479cb730e06e08c358eac3bf7905d9e884e7960cfdd5b8",
    ),
    Wheel(
        "ziglang",
        "0.15.2",
        "manylinux_2_12_x86_64",
        "806316453d1ede7174ed3fefb8e5348154629089c3bb5fe812dfd0e172fac130",
    ),
)
UNPACKED = {
    "mlx/include/": "mlx-{version}/include/",
    "mlx/lib/libmlx.dylib": "mlx-{version}/lib/libmlx.dylib",
    "ziglang/lib/libcxx/include/": "libcxx/",
    "ziglang/lib/libc/include/any-macos-any/": "libc/",
}


def host_code(folder: Path) -> list[Finding]:
    """Return what does not fit the headers of each mlx for macOS, or its libmlx lacks, sorted.

    folder: for objects.
    """
    newest, *others = mlx_folders()
    findings = compile_host(newest, folder / newest.name, host_sources())
    for mlx in others:
        findings += compile_host(mlx, folder / mlx.name, metal_sources())
    if not findings:
        for mlx in (newest, *others):
            findings += check_symbols(mlx, folder / mlx.name)
    return sorted(set(findings))


def mlx_folders() -> list[Path]:
    """Return the folder of each mlx in the unpacked wheels; the mlx of Python comes first.

    Fetches the wheels if they are missing: 170 MB.
    """
    # The name changes if any wheel changes.
    key = hashlib.sha256(repr((WHEELS, UNPACKED)).encode()).hexdigest()[:12]
    folder = FOLDER / key
    FOLDER.mkdir(parents=True, exist_ok=True)
    with FileLock(FOLDER / "wheels.lock"):
        if not folder.is_dir():
            unpack(folder)
    return [folder / f"mlx-{wheel.version}" for wheel in WHEELS if wheel.name == "mlx-metal"]


def unpack(folder: Path) -> None:
    """Fetch the wheels and unpack them into a new folder."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        staging = Path(scratch) / "unpacked"
        for wheel in WHEELS:
            place = Path(scratch) / wheel.sha256[:12]
            place.mkdir()
            target = (
                "--only-binary=:all:",
                "--python-version=311",
                f"--platform={wheel.platform}",
            )
            path = fetch(f"{wheel.name}=={wheel.version}", wheel.sha256, place, *target)
            with zipfile.ZipFile(path) as archive:
                extract(archive, staging, wheel.version)
        staging.rename(folder)


def extract(archive: zipfile.ZipFile, folder: Path, version: str) -> None:
    """Unpack the parts of a wheel that are needed."""
    for name in archive.namelist():
        for start, to in UNPACKED.items():
            if name.startswith(start) and not name.endswith("/"):
                path = folder / (to.format(version=version) + name.removeprefix(start))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))


def host_sources() -> list[Path]:
    """Return the C++ sources of the core."""
    return sorted(SOURCES.rglob("*.cpp"))


def metal_sources() -> list[Path]:
    """Return the sources that use MLX's Metal classes, which differ between MLX's versions."""
    return [path for path in host_sources() if path.parent.name == "metal"]


def compile_options(macos: Path, mlx: Path, target: str) -> list[str]:
    """Return clang's options, given the folder of all wheels and the folder of one mlx."""
    return [
        *("-target", target, "-std=c++20", "-fblocks", "-w"),
        *("-nostdinc++", "-nostdlibinc", "-fno-color-diagnostics"),
        *("-include", str(SHIMS / "libcxx_configuration.h"), f"-I{SHIMS}"),
        *("-isystem", str(macos / "libcxx"), "-idirafter", str(macos / "libc")),
        *("-isystem", str(mlx / "include"), "-isystem", str(mlx / "include/metal_cpp")),
        *(f"-I{SOURCES}", f"-I{ROOT / 'metal/kernels'}"),
    ]


def compile_host(
    mlx: Path, objects: Path, sources: Sequence[Path], target: str = MACOS
) -> list[Finding]:
    """Compile sources into {objects}/*.o and return the errors.

    mlx: one of `mlx_folders`. target: clang's name of a system.
    """
    objects.mkdir(parents=True, exist_ok=True)
    compiler, options = find("clang++"), compile_options(mlx.parent, mlx, target)

    def compile_one(unit: Path) -> list[Finding]:
        process = run([compiler, *options, "-c", str(unit), "-o", str(unit.with_suffix(".o"))])
        findings = read_errors(process.stderr, lambda file: file.removeprefix(f"{ROOT}/"))
        if process.returncode != 0 and not findings:
            raise CompilerError(compiler, process.stderr)
        return findings

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(compile_one, units(objects, sources))
        return sorted({finding for result in results for finding in result})


def units(folder: Path, sources: Sequence[Path]) -> list[Path]:
    """Write the files to compile: one that includes most sources, and the inner loops.

    Reading MLX's headers takes longer than compiling the sources, so these are one file. The
    inner loops include no header of MLX and stay separate, as in the module's own build.
    """
    apart = [source for source in sources if source.name == "kernels.cpp"]
    unit_files = []
    for name, parts in (("kernels", apart), ("all", [s for s in sources if s not in apart])):
        if parts:
            unit_files.append(folder / f"{name}.cpp")
            unit_files[-1].write_text("".join(f'#include "{part}"\n' for part in parts))
    return unit_files


def check_symbols(mlx: Path, objects: Path) -> list[Finding]:
    """Return the undefined symbols that libmlx.dylib and Metal do not export."""
    undefined: set[str] = set()
    defined: set[str] = set()
    for path in sorted(objects.glob("*.o")):
        for kind, name in symbols(path):
            (undefined if kind == "U" else defined).add(name)
    library = symbols(mlx / LIBRARY)
    exported = {name for kind, name in library if kind.isupper() and kind != "U"}
    hidden = {name for kind, name in library if kind.islower()}
    return [
        Finding(
            f"{mlx.name}/libmlx.dylib",
            0,
            f"{readable(name)} is "
            + ("only for libmlx itself" if name in hidden else "missing"),
        )
        for name in sorted(undefined - defined - exported)
        if NEEDED.match(name)
    ]


def symbols(path: Path) -> list[tuple[str, str]]:
    """Return (kind, name) of a file's symbols; the kind of a local symbol is in lower case."""
    process = run([find("llvm-nm"), "--format=posix", str(path)])
    if process.returncode != 0:
        raise CompilerError("llvm-nm", process.stderr)
    lines = (line.split() for line in process.stdout.splitlines())
    return [(parts[1], parts[0]) for parts in lines if len(parts) > 1]


def readable(name: str) -> str:
    """Return a symbol in the syntax of C++; unchanged if no program can do this."""
    demangle = shutil.which("llvm-cxxfilt") or shutil.which("c++filt")
    plain = name.removeprefix("_")  # macOS puts an underscore before every symbol
    return run([demangle, plain]).stdout.strip() if demangle else name
