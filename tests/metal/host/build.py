"""Builds the module _metal_host; quick where nothing changed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
ROOT = SOURCES.parents[2]


class HostBuildError(Exception):
    """The compiler's or CMake's output."""


def build(folder: Path = ROOT / "build/metal-host") -> Path:
    """Configures and builds in `folder`; the module's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        discard_other_checkouts(folder)
        if not (folder / "build.ninja").exists():
            _run(
                "cmake", "-G", "Ninja", "-S", str(SOURCES), "-B", str(folder),
                f"-DCMAKE_CXX_COMPILER={_compiler()}",
                f"-DPython_EXECUTABLE={sys.executable}",
            )  # fmt: skip
        _run("ninja", "-C", str(folder))
    return folder


def discard_other_checkouts(folder: Path) -> None:
    """Empties a folder that was configured for other sources, as in a copied checkout."""
    cache = folder / "CMakeCache.txt"
    if not cache.exists():
        return
    home = f"CMAKE_HOME_DIRECTORY:INTERNAL={SOURCES}"
    if home in cache.read_text(encoding="utf-8").splitlines():
        return
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()


def _compiler() -> str:
    named = os.environ.get("H2O_CLANG", "clang++")
    found = shutil.which(named)
    if found is None:
        raise HostBuildError(
            f"tests/metal/host needs clang++, and there is no {named}: install it (Debian: "
            "apt-get install clang) or set H2O_CLANG to its path."
        )
    return found


def _run(program: str, *arguments: str) -> None:
    # CMake and Ninja of this Python's environment, and Ninja where CMake looks for it.
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
    command = shutil.which(program, path=path) or program
    result = subprocess.run(
        [command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )
    if result.returncode != 0:
        raise HostBuildError(f"{program} failed:\n{result.stdout}\n{result.stderr}")


if __name__ == "__main__":
    try:
        build()
    except HostBuildError as error:
        sys.exit(str(error))
