"""Kernels compiled by clang as C++ for OpenCL: diagnostics, syntax tree, LLVM IR."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.kernels.findings import Finding
from h2o_pack.kernels.prepared import Prepared

OPTIONS = (
    *("-x", "cl", "-cl-std=clc++2021", "-target", "spir64"),
    *("-cl-no-stdinc", "-nostdinc", "-cl-single-precision-constant"),
    *("-ferror-limit=0", "-fno-color-diagnostics", "-w"),
)
DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.+)$"
)


@dataclass(frozen=True)
class Translation:
    """One .metal file after clang read it. `ir` is empty if there are errors."""

    library: str
    errors: tuple[Finding, ...]
    tree: Any
    ir: str


def find_clang() -> str | None:
    """Return clang on PATH."""
    return shutil.which("clang")


def translate(prepared: Prepared, library: str, clang: str) -> Translation:
    """Read one of the prepared libraries."""
    shims = assets.root() / "metal/check/opencl"
    source = prepared.folder / library
    command = [clang, *OPTIONS, f"-I{shims}", f"-I{prepared.folder}", str(source)]
    dumped = run([*command, "-fsyntax-only", "-Xclang", "-ast-dump=json"])
    errors = diagnostics(dumped.stderr, prepared)
    if dumped.returncode != 0 and not errors:
        raise broken(clang, dumped.stderr)
    ir = ""
    if not errors:
        made = run(
            [*command, *("-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-o", "-")]
        )
        if made.returncode != 0:
            raise broken(clang, made.stderr)
        ir = made.stdout
    return Translation(library, errors, json.loads(dumped.stdout), ir)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the compiler."""
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


def diagnostics(text: str, prepared: Prepared) -> tuple[Finding, ...]:
    """Return the errors in the compiler's words, without repetitions."""
    found: dict[Finding, None] = {}
    for line in text.splitlines():
        match = DIAGNOSTIC.match(line)
        if match:
            file = prepared.shown(match["file"])
            found[Finding(file, int(match["line"]), metal(match["text"]))] = None
    return tuple(found)


def metal(text: str) -> str:
    """Return a message of the compiler in Metal's words."""
    for opencl, name in (
        ("__global", "device"),
        ("__local", "threadgroup"),
        ("__private", "thread"),
        ("__constant", "constant"),
        ("__generic ", ""),
    ):
        text = text.replace(opencl, name)
    return text


def broken(clang: str, text: str) -> UserError:
    """Make the error for a compiler that failed without an error in the source."""
    last = text.strip().splitlines()[-1:] or ["it said nothing"]
    return UserError(
        f"clang failed: {last[0]}",
        where=clang,
        remedy="Use clang 17 or newer.",
        code=ExitCode.TOOL,
    )
