"""Builds the kernels' Metal library with Apple's compiler.

`python -m h2o_pack.kernels.metallib --output FILE --include DIR` does so while the
compiled module is being installed, with nothing but the standard library and mlx.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.kernels import sources
from h2o_pack.results import Result, doc

if TYPE_CHECKING:
    from collections.abc import Sequence

KERNELS = "metal/kernels"
LIBRARY = "h2o.metallib"
FLAGS = (
    *("-std=metal3.1", "-O2", "-fno-fast-math", "-Wall", "-Wextra"),
    *("-Wno-c++17-extensions", "-Wno-c++20-extensions"),
)
TOOLCHAIN = "xcodebuild -downloadComponent MetalToolchain"
SHOWN_LINES = 12


@dataclass(frozen=True)
class Sdk:
    """An SDK of Xcode, what its libraries are for, and the oldest system they run on."""

    name: str
    target: str
    min_os: str


SDKS = {
    each.name: each
    for each in (
        Sdk("macosx", "air64-apple-macos{}", "14.0"),
        Sdk("iphoneos", "air64-apple-ios{}", "17.0"),
        Sdk("iphonesimulator", "air64-apple-ios{}-simulator", "17.0"),
    )
}


def find_sdk(name: str) -> Sdk:
    """Return an SDK by its name; UserError if there is none."""
    if name not in SDKS:
        raise UserError(
            f"there is no SDK {name!r}",
            remedy=f"{nearest(name, SDKS)}Use {', '.join(SDKS)}.",
            code=ExitCode.USAGE,
        )
    return SDKS[name]


def compile_command(
    sdk: Sdk, source: Path, include: Path, air: Path, min_os: str | None = None
) -> list[str]:
    """Return the command that compiles one .metal file."""
    target = sdk.target.format(min_os or sdk.min_os)
    return [
        *("xcrun", "-sdk", sdk.name, "metal", "-target", target, *FLAGS),
        *(f"-I{include}", "-c", str(source), "-o", str(air)),
    ]


def link_command(sdk: Sdk, airs: Sequence[Path], library: Path) -> list[str]:
    """Return the command that makes a library of compiled files."""
    return ["xcrun", "-sdk", sdk.name, "metallib", *map(str, airs), "-o", str(library)]


def build(
    output: Path,
    *,
    sdk: str = "macosx",
    min_os: str | None = None,
    include: Path | None = None,
    platform: str | None = None,
) -> Path:
    """Build the library for an SDK into the file `output`, whole or not at all.

    include: the folder with mlx's headers, by default that of the installed mlx.
    Raises UserError (TOOL) where there is no Metal compiler or it refuses a kernel.
    """
    chosen = find_sdk(sdk)
    if (platform or sys.platform) != "darwin":
        raise UserError(
            "Metal libraries are built on macOS only",
            where=f"this is {platform or sys.platform}",
            remedy="`h2o-pack kernels check` tells here what a Mac would refuse.",
            code=ExitCode.TOOL,
        )
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".h2o-") as name:
            made = build_in(Path(name), chosen, min_os, include)
            made.replace(output)
    except OSError as error:
        raise UserError(
            f"{output} cannot be written: {error.strerror}",
            remedy="Give another --output.",
            code=ExitCode.OUTPUT,
        ) from error
    return output


@dataclass(frozen=True, kw_only=True)
class LibrariesResult(Result):
    """The libraries that were built."""

    libraries: Annotated[dict[str, Path], doc("Path of the metallib of each SDK.")]


def build_all(
    folder: Path, sdks: Sequence[str] = (), min_os: str | None = None
) -> dict[str, Path]:
    """Build {folder}/{SDK}/h2o.metallib for SDKs, by default for all; return them by SDK."""
    if min_os is not None and len(sdks) != 1:
        raise UserError(
            "--min-os is the oldest system of one SDK",
            remedy=f"Give one --sdk with it: {', '.join(SDKS)}.",
            code=ExitCode.USAGE,
        )
    names = [find_sdk(name).name for name in sdks or SDKS]
    return {name: build(folder / name / LIBRARY, sdk=name, min_os=min_os) for name in names}


def build_in(folder: Path, sdk: Sdk, min_os: str | None, include: Path | None) -> Path:
    """Assemble the sources in a folder, compile and link them there."""
    headers = folder / "include"
    sources.assemble(headers, include)
    airs = []
    for source in sorted((assets.root() / KERNELS).glob("*.metal")):
        air = folder / f"{source.stem}.air"
        run(compile_command(sdk, source, headers, air, min_os), f"compiling {source.name}")
        airs.append(air)
    library = folder / LIBRARY
    run(link_command(sdk, airs, library), f"linking {LIBRARY} for {sdk.name}")
    return library


def run(command: Sequence[str], doing: str) -> None:
    """Run one of Xcode's tools; say what to do when it fails."""
    if shutil.which(command[0]) is None:
        raise UserError(
            f"{command[0]} is missing",
            where=doing,
            remedy="Install Xcode: its command line tools alone have no Metal compiler.",
            code=ExitCode.TOOL,
        )
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, errors="replace", env=os.environ, check=False
    )
    if done.returncode == 0:
        return
    said = (done.stderr or done.stdout).strip()
    lines = [line for line in said.splitlines() if "error:" in line] or said.splitlines()
    shown = "\n  ".join(lines[-SHOWN_LINES:])
    raise UserError(f"{doing} failed:\n  {shown}\n", remedy=remedy(said), code=ExitCode.TOOL)


def remedy(said: str) -> str:
    """Return what to do about the words of a failed tool."""
    if "missing Metal Toolchain" in said:
        return f"Run: {TOOLCHAIN}"
    if "unable to find utility" in said:
        return "Install Xcode and run: sudo xcode-select -s /Applications/Xcode.app"
    if "cannot be located" in said:
        return "Install this SDK in Xcode's settings, under Components."
    return "Correct that and run it again."


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the library as the command line says; return its exit code."""
    parser = argparse.ArgumentParser(prog="h2o_pack.kernels.metallib", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the library to write")
    parser.add_argument("--include", type=Path, help="folder with mlx's headers")
    parser.add_argument("--sdk", default="macosx", help=", ".join(SDKS))
    parser.add_argument("--min-os", help="oldest system that it runs on")
    options = parser.parse_args(arguments)
    try:
        build(options.output, sdk=options.sdk, min_os=options.min_os, include=options.include)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return int(error.code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
