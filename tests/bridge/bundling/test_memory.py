"""Bundling takes the same memory whatever the size of the model."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from pathlib import Path
from h2o_pack.bundling.bundle import bundle
from tests.bridge.bundling.sources import local
from tests.hub.peak import peak
folder, package, links = sys.argv[1:]
def refuse(_source, _target):
    raise OSError(18, "Invalid cross-device link")
if links == "copied":
    os.link = refuse
before = peak()
bundle(local(Path(folder)), Path(package))
print(peak() - before)
"""
SMALL, LARGE = 32 << 20, 320 << 20  # bytes
PIECES = 80 << 20  # what four files at once may hold, with the threads' own


@pytest.mark.parametrize("how", ["linked", "copied"])
def test_the_peak_of_memory_does_not_depend_on_the_size(tmp_path, how):
    peaks = []
    for size in (SMALL, LARGE):
        folder = tmp_path / f"model-{size}"
        folder.mkdir()
        for number in range(2):
            with (folder / f"model-{number}.safetensors").open("wb") as file:
                file.truncate(size // 2)
        package = tmp_path / f"package-{size}"
        package.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder), str(package), how],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stdout))
        (package / "Model/model-0.safetensors").unlink()
        (package / "Model/model-1.safetensors").unlink()
    assert peaks[1] < PIECES
    assert peaks[1] - peaks[0] < 16 << 20
