"""MLX's own Metal kernels for a package built by `swift build`, which compiles no Metal.

MLX takes mlx.metallib beside the binary that it is linked into, or default.metallib in the
working directory.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.parity import host as hosts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from h2o_pack.parity.host import Host

KERNELS = f"{hosts.CMLX}mlx-generated/metal"
NAME = "mlx.metallib"
FLAGS = ("-fno-fast-math",)
"""As MLX compiles the library of its wheel (mlx/backend/metal/kernels/CMakeLists.txt)."""


def is_needed(host: Host) -> bool:
    """Tell whether a host's tests start MLX's Metal backend without a library of kernels.

    The stand-in links the MLX of Python, which brings its own.
    """
    return hosts.SYSTEM == "apple" and (host.root / KERNELS).is_dir()


def place(host: Host, products: Path) -> None:
    """Put MLX's kernels beside the binaries of a package's tests, compiled if they changed.

    products: the folder that `swift build --show-bin-path` names. UserError where the kernels
    do not compile.
    """
    library = host.root / hosts.WORK / NAME
    if not is_current(library, host.root / KERNELS):
        compile_library(host.root, library)
    for folder in sorted(products.glob("*.xctest/Contents/MacOS")):
        shutil.copyfile(library, folder / NAME)


def is_current(library: Path, kernels: Path) -> bool:
    """Tell whether a library is newer than all that it is compiled from."""
    if not library.is_file():
        return False
    sources = (path for path in kernels.rglob("*") if path.is_file())
    return all(path.stat().st_mtime <= library.stat().st_mtime for path in sources)


def compile_library(package: Path, library: Path) -> None:
    """Compile all of MLX's kernels in a package's Vendor/ into one library for macOS."""
    sources = sorted((package / KERNELS).rglob("*.metal"))
    library.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=library.parent) as work:
        compiled = [Path(work, f"{number}.air") for number in range(len(sources))]
        for source, air in zip(sources, compiled, strict=True):
            xcrun("metal", *FLAGS, "-c", source, "-o", air)
        made = Path(work, NAME)
        xcrun("metallib", "-o", made, *compiled)
        made.replace(library)


def xcrun(tool: str, *arguments: str | Path) -> None:
    """Run one of Apple's tools for macOS; UserError with its words where it fails."""
    command: Sequence[str | Path] = ("xcrun", "-sdk", "macosx", tool, *arguments)
    try:
        done = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise no_compiler("xcrun is missing") from None
    if done.returncode != 0:
        raise no_compiler(done.stderr.strip() or f"{tool} exits with {done.returncode}")


def no_compiler(said: str) -> UserError:
    """Make the error for kernels that do not compile; said: why, in the tool's words."""
    return UserError(
        f"MLX's Metal kernels do not compile: {said}",
        remedy="Install Apple's Metal compiler: xcodebuild -downloadComponent MetalToolchain",
        code=ExitCode.TOOL,
    )
