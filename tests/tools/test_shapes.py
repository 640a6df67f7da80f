"""The shapes of the catalogue's models that are kept are those of the installed mlx-lm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from h2o_pack.models.config import SHAPES

# Not in this process: what builds models puts stand-ins in the place of kernels.
PRINT = "from tools.shapes import shapes; print(shapes(), end='')"


def test_the_file_of_shapes_is_what_the_tool_writes():
    command = [sys.executable, "-c", PRINT]
    made = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, check=True
    )
    assert made.stdout.decode() == SHAPES.read_text("utf-8"), "run python -m tools.shapes"
