"""Include folders of the versions of mlx that there are edits for."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from h2o_pack.kernels.sources import HEADER, edits_for, upstream_headers

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("mlx-0.32.txt")
PLATFORM = "manylinux_2_35_x86_64"  # any will do: the kernels' headers are the same


@cache
def include_folder(version: str) -> Path:
    """Return a folder with mlx's headers; those not installed come from PyPI, once."""
    return upstream_headers() if version == "0.31" else downloaded(version)


def header(version: str) -> str:
    return (include_folder(version) / HEADER).read_text("utf-8")


def downloaded(version: str) -> Path:
    folder = ROOT / "build" / f"mlx-headers-{edits_for(version)[0].version}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--disable-pip-version-check", "--only-binary=:all:"]
            command += ["--platform", PLATFORM, "--require-hashes"]
            subprocess.run([*command, "-d", scratch, "-r", REQUIREMENTS], check=True)
            wheel = next(Path(scratch).glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.startswith("mlx/include/mlx/")]
                archive.extractall(scratch, names)
            (Path(scratch) / "mlx/include").rename(folder)
    return folder
