"""Whether the macOS libmlx.dylib exports what our objects need of it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from h2o_pack.kernels.findings import Finding
from h2o_pack.kernels.translation import broken, run

LIBRARY = "lib/libmlx.dylib"
OURS_TO_FIND = re.compile(r"^__Z(?:T[VTIS])?N[VKRO]*(?:3mlx|3MTL|2NS|2CA)")


def find_nm() -> str | None:
    """Return llvm-nm, which reads a Mac's files, on PATH."""
    return shutil.which("llvm-nm")


def check_symbols(mlx: Path, objects: Path, nm: str) -> list[Finding]:
    """Return the undefined symbols that libmlx.dylib and Metal do not export."""
    needed: set[str] = set()
    defined: set[str] = set()
    for path in sorted(objects.glob("*.o")):
        for kind, name in symbols(path, nm):
            (needed if kind == "U" else defined).add(name)
    library = symbols(mlx / LIBRARY, nm)
    exported = {name for kind, name in library if kind.isupper() and kind != "U"}
    hidden = {name for kind, name in library if kind.islower()}
    return [
        Finding(
            f"{mlx.name}/libmlx.dylib",
            0,
            f"{readable(name, nm)} is "
            + ("only for libmlx itself" if name in hidden else "not there"),
        )
        for name in sorted(needed - defined - exported)
        if OURS_TO_FIND.match(name)
    ]


def symbols(path: Path, nm: str) -> list[tuple[str, str]]:
    """Return (kind, name) of a file's symbols; kinds of local ones are lower case."""
    done = run([nm, "--format=posix", str(path)])
    if done.returncode != 0:
        raise broken(nm, done.stderr)
    lines = (line.split() for line in done.stdout.splitlines())
    return [(parts[1], parts[0]) for parts in lines if len(parts) > 1]


def readable(name: str, nm: str) -> str:
    """Return a symbol as C++ writes it, if the tool for it is there."""
    beside = str(Path(nm).parent)
    demangle = shutil.which("llvm-cxxfilt", path=beside) or shutil.which("c++filt")
    plain = name.removeprefix("_")  # macOS puts one before every symbol
    return run([demangle, plain]).stdout.strip() if demangle else name
