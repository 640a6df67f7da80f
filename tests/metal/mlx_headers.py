"""Include folders of the versions of mlx that there are edits for."""

from __future__ import annotations

import tempfile
import threading
import zipfile
from functools import cache
from pathlib import Path

from h2o_pack.kernels import wheels
from h2o_pack.kernels.sources import HEADER, edits_for, upstream_headers

ROOT = Path(__file__).resolve().parents[2]
# The headers of the newest mlx that the kernels' edits are for; they are the same in the
# wheels of all platforms.
NEWEST = wheels.Wheel(
    name="mlx-cpu",
    version="0.32.4",
    file="mlx_cpu-0.32.4-py3-none-manylinux_2_35_x86_64.whl",
    platform="manylinux_2_35_x86_64",
    sha256="0e0a24fa2ce8b6b94d2e6a90604e8813aa8e29fcb918bb2aa01cfb6d133d8cee",
    source="https://pypi.org/project/mlx-cpu/0.32.4/",
    measured=True,
)

ONE_AT_A_TIME = threading.Lock()  # tests compile in threads


@cache
def include_folder(version: str) -> Path:
    """Return a folder with mlx's headers; those not installed come from PyPI, once."""
    return upstream_headers() if version == "0.31" else downloaded(version)


def header(version: str) -> str:
    return (include_folder(version) / HEADER).read_text("utf-8")


def downloaded(version: str) -> Path:
    folder = ROOT / "build" / f"mlx-headers-{edits_for(version)[0].version}"
    with ONE_AT_A_TIME:
        fill(folder)
    return folder


def fill(folder: Path) -> None:
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            wheels.fetch(NEWEST, Path(scratch))
            wheel = Path(scratch) / NEWEST.file
            wheels.verify(NEWEST, wheel)
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.startswith("mlx/include/mlx/")]
                archive.extractall(scratch, names)
            (Path(scratch) / "mlx/include").rename(folder)
