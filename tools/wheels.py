"""Downloads wheels with pip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def fetch(requirement: str, sha256: str, folder: Path, *options: str) -> Path:
    """Download a wheel into a folder; returns its path.

    requirement: as NAME==VERSION. options: more options of `pip download`.
    Raises subprocess.CalledProcessError: pip cannot fetch the wheel, or its hash differs.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    usual = ["--no-deps", "--require-hashes", "--dest", str(folder)]
    subprocess.run(  # noqa: S603
        [*pip, *usual, *options, "--requirement", str(requirements)], check=True
    )
    return next(folder.glob("*.whl"))
