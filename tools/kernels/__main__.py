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
from dataclasses import dataclass
from pathlib import Path

from h2o_py._compiled import ext
from interface import kernel_text
from tools.kernels import macos
from tools.kernels.compiler import Skip, check_library, find, translate
from tools.kernels.source import Finding, check_buffers, prepare


@dataclass(frozen=True)
class Workplace:
    """Where checks work, and on what.

    folder: for files that checks make. kernels: a folder of kernels to check instead of the
    project's. download: whether macOS wheels may be fetched.
    """

    folder: Path
    kernels: Path | None = None
    download: bool = False


def metal_rules(work: Workplace) -> list[Finding]:
    """Kernels use nothing that Metal lacks or refuses, and stay within its limits."""
    prepared = prepare(work.folder / "kernels", work.kernels)
    findings: list[Finding] = []
    for library in prepared.libraries:
        findings += check_library(translate(prepared, library), prepared)
    for name, path in prepared.own.items():
        findings += check_buffers((prepared.folder / name).read_text("utf-8"), path)
    return sorted(set(findings))


def host_code(work: Workplace) -> list[Finding]:
    """The C++ fits the headers of each mlx for macOS, whose libmlx has the symbols it needs."""
    find("clang++")  # before wheels are fetched
    newest, *others = macos.mlx_folders(download=work.download)
    objects = work.folder / "objects"
    findings = macos.compile_host(newest, objects / newest.name, macos.host_sources())
    for mlx in others:
        findings += macos.compile_host(mlx, objects / mlx.name, macos.metal_sources())
    if not findings:
        for mlx in (newest, *others):
            findings += macos.check_symbols(mlx, objects / mlx.name)
    return sorted(set(findings))


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
    "Metal's rules": metal_rules,
    "host code": host_code,
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
