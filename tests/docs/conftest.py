"""The documentation's sources and the site built from them, strictly and once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.site import Site, read_site

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    path.relative_to(ROOT / "docs").as_posix(): path.read_text("utf-8")
    for path in sorted((ROOT / "docs").rglob("*.md"))
}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Build the site; any warning of mkdocs is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(
        [*command, "--site-dir", os.fspath(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return read_site(folder)
