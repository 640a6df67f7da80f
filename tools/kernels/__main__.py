"""Check the Metal kernels with this machine's compilers: python -m tools.kernels [--download].

Each check prints its findings. The exit code is 1 if a check failed. A check whose compiler or
wheels are missing is skipped and says so. On a Mac, MLX also compiles every kernel instance.
"""
# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from h2o_py._compiled import ext
from interface import kernel_text
from tools.kernels import macos
from tools.kernels.compiler import (
    Translation,
    check_address_spaces,
    check_buffers,
    check_language,
    check_limits,
    find_clang,
    translate,
)
from tools.kernels.source import Finding, Prepared, prepare

GET_CLANG = "install clang (Debian: apt-get install clang), or Swift from swift.org/install"


class Skip(Exception):  # noqa: N818
    """A check cannot run on this machine; the message says why, and what to do."""


class Workplace:
    """Files that several checks need, made only once.

    folder: for these files. kernels: a folder of kernels to check instead of the project's.
    download: whether macOS wheels may be fetched.
    """

    def __init__(
        self, folder: Path, kernels: Path | None = None, *, download: bool = False
    ) -> None:
        self.folder = folder
        self.kernels = kernels
        self.download = download
        self.compiled = False

    @cached_property
    def prepared(self) -> Prepared:
        """The kernels, rewritten so that clang can read them."""
        return prepare(self.folder / "kernels", self.kernels)

    @cached_property
    def translations(self) -> tuple[Translation, ...]:
        """The results of reading the kernels with clang."""
        clang = find_clang()
        if clang is None:
            raise Skip(f"there is no clang on PATH: {GET_CLANG}")
        return tuple(
            translate(self.prepared, library, clang) for library in self.prepared.libraries
        )

    @cached_property
    def mlx_folders(self) -> list[Path]:
        """The folders of the unpacked mlx wheels for macOS; the mlx of Python comes first."""
        if not self.download and not macos.is_unpacked(macos.FOLDER):
            raise Skip("the macOS wheels of mlx are missing: use --download (170 MB, once)")
        return macos.mlx_folders(macos.download(macos.FOLDER))


def language(work: Workplace) -> list[Finding]:
    """Kernels use nothing that Metal lacks."""
    return [
        finding
        for translation in work.translations
        for finding in check_language(translation, work.prepared)
    ]


def address_spaces(work: Workplace) -> list[Finding]:
    """Pointers stay in their address spaces."""
    findings = [
        finding
        for translation in work.translations
        for finding in check_address_spaces(translation, work.prepared)
    ]
    return sorted(set(findings))


def limits(work: Workplace) -> list[Finding]:
    """Threadgroup memory and buffers are within Metal's limits."""
    findings = check_buffers(work.prepared)
    for translation in work.translations:
        if not translation.ir:
            raise Skip("a kernel does not compile: see the other checks")
        findings += check_limits(translation, work.prepared)
    return findings


def host_types(work: Workplace) -> list[Finding]:
    """The C++ fits the Metal headers of each mlx for macOS."""
    compiler = macos.find_compiler()
    if compiler is None:
        raise Skip(f"there is no clang++ on PATH: {GET_CLANG}")
    newest, *others = work.mlx_folders
    jobs = [(newest, macos.host_sources())]
    jobs += [(mlx, macos.metal_sources()) for mlx in others]
    findings = [
        finding
        for mlx, sources in jobs
        for finding in macos.compile_host(
            mlx, compiler, work.folder / "objects" / mlx.name, sources
        )
    ]
    work.compiled = not findings
    return sorted(set(findings))


def symbols(work: Workplace) -> list[Finding]:
    """Each macOS libmlx exports the symbols that the C++ needs."""
    nm = macos.find_nm()
    if nm is None:
        raise Skip(f"there is no llvm-nm on PATH: {GET_CLANG}")
    if not work.compiled:
        raise Skip("the C++ is not compiled: see the check of host types")
    return [
        finding
        for mlx in work.mlx_folders
        for finding in macos.check_symbols(mlx, work.folder / "objects" / mlx.name, nm)
    ]


def metal_compiler(_work: Workplace) -> list[Finding]:
    """MLX compiles every instance of the kernels."""
    if sys.platform != "darwin":
        raise Skip("Apple's compiler runs on macOS only: run this on a Mac as well")
    return [
        Finding(f"{kernel_text.FOLDER}/{kernel.header}", 0, refusal)
        for kernel in kernel_text.kernels()
        for arguments in kernel.instances
        if (refusal := refused_instance(kernel.name, arguments))
    ]


def refused_instance(kernel: str, arguments: tuple[str, ...]) -> str:
    """Return MLX's error if it cannot compile an instance, or ""."""
    try:
        ext.compile_kernel(kernel, arguments)
    except RuntimeError as error:
        return f"{kernel_text.instance_name(kernel, arguments)}: {error}"
    return ""


CHECKS: dict[str, Callable[[Workplace], list[Finding]]] = {
    "language": language,
    "address spaces": address_spaces,
    "limits": limits,
    "host types": host_types,
    "symbols": symbols,
    "Metal compiler": metal_compiler,
}


def run_checks(work: Workplace) -> dict[str, list[Finding] | Skip]:
    """Run all checks that can run on this machine; print and return their findings."""
    results: dict[str, list[Finding] | Skip] = {}
    for name, check in CHECKS.items():
        try:
            findings = check(work)
        except Skip as skip:
            results[name] = skip
            print(f"{name}: skipped: {skip}")
            continue
        results[name] = findings
        print(f"{name}: {'failed' if findings else 'passed'}. {check.__doc__}")
        for finding in findings:
            print(f"  {finding}")
    return results


def main() -> int:
    """Run the checks; return 1 if one failed, and otherwise 0."""
    parser = argparse.ArgumentParser(prog="python -m tools.kernels", description=__doc__)
    parser.add_argument("--download", action="store_true", help="fetch the macOS wheels of mlx")
    with tempfile.TemporaryDirectory(prefix="h2o-kernels-") as folder:
        work = Workplace(Path(folder).resolve(), download=parser.parse_args().download)
        results = run_checks(work)
    return int(any(isinstance(result, list) and result for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
