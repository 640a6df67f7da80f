"""Draws heat maps with matplotlib, an optional dependency."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_pack.errors import usage_error

_DPI = 110


@dataclass(frozen=True)
class Panel:
    """One heat map of a picture.

    cells: [lines, columns], numbers from 0 to 1. width: the value at the right end of the x
    axis, which begins at 0. height: the value at the lower end of the y axis, 0 at the top.
    """

    title: str
    cells: Any
    width: float
    height: float


@dataclass(frozen=True)
class Labels:
    """The words of a picture: the title, and the names of its axes and of its color bar."""

    title: str
    x: str
    y: str
    bar: str


def require_matplotlib() -> None:
    """Raise UserError if matplotlib is not installed, before a run that draws pictures."""
    if importlib.util.find_spec("matplotlib") is None:
        raise usage_error(
            "pictures need matplotlib, which is not installed",
            "Run: pip install 'h2o-pack[plot]'",
        )


def save_maps(
    path: Path, grid: Sequence[Sequence[Panel]], labels: Labels, *, inches: tuple[float, float]
) -> Path:
    """Draw lines of panels as a PNG file, colored on a log scale; returns its path.

    inches: width and height of a panel.
    """
    figure_type = importlib.import_module("matplotlib.figure").Figure
    colors = importlib.import_module("matplotlib.colors")
    columns = max(map(len, grid))
    size = (inches[0] * columns + 0.8, inches[1] * len(grid) + 0.6)
    figure = figure_type(figsize=size, layout="constrained")
    axes = figure.subplots(len(grid), columns, squeeze=False)
    image: Any = None
    for y in range(len(grid)):
        for x in range(columns):
            axes[y][x].set_visible(x < len(grid[y]))
            if x >= len(grid[y]):
                continue
            panel = grid[y][x]
            image = axes[y][x].imshow(
                panel.cells,
                norm=colors.LogNorm(vmin=1e-4, vmax=1, clip=True),
                cmap="magma",
                aspect="auto",
                interpolation="nearest",
                extent=(0, panel.width, panel.height, 0),
            )
            axes[y][x].set_title(panel.title, fontsize=9)
            axes[y][x].set_xlabel(labels.x)
            axes[y][x].set_ylabel(labels.y)
    figure.colorbar(image, ax=axes, label=f"{labels.bar} (log)")
    figure.suptitle(labels.title)
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    return path
