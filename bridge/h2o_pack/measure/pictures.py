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


def require_matplotlib() -> None:
    """Raise UserError if matplotlib is not installed, before a run that draws pictures."""
    if importlib.util.find_spec("matplotlib") is None:
        raise usage_error(
            "pictures need matplotlib, which is not installed",
            "Run: pip install 'h2o-pack[plot]'",
        )


def save_maps(
    path: Path,
    grid: Sequence[Sequence[Panel]],
    *,
    title: str,
    x: str,
    y: str,
    bar: str,
    inches: tuple[float, float],
) -> Path:
    """Draw lines of panels as a PNG file, colored on a log scale; returns its path.

    title: of the picture. x, y, bar: names of the axes and of the color bar. inches: width and
    height of a panel.
    """
    figure_type = importlib.import_module("matplotlib.figure").Figure
    colors = importlib.import_module("matplotlib.colors")
    columns = max(map(len, grid))
    size = (inches[0] * columns + 0.8, inches[1] * len(grid) + 0.6)
    figure = figure_type(figsize=size, layout="constrained")
    axes = figure.subplots(len(grid), columns, squeeze=False)
    image: Any = None
    for line, panels in zip(axes, grid, strict=True):
        for unused in line[len(panels) :]:
            unused.set_visible(False)
        for axis, panel in zip(line, panels, strict=False):
            image = axis.imshow(
                panel.cells,
                norm=colors.LogNorm(vmin=1e-4, vmax=1, clip=True),
                cmap="magma",
                aspect="auto",
                interpolation="nearest",
                extent=(0, panel.width, panel.height, 0),
            )
            axis.set_title(panel.title, fontsize=9)
            axis.set_xlabel(x)
            axis.set_ylabel(y)
    figure.colorbar(image, ax=axes, label=f"{bar} (log)")
    figure.suptitle(title)
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    return path
