"""Pictures by matplotlib, an optional dependency."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from h2o_pack.files.text import usage_error


def require_matplotlib() -> None:
    """Find out before a run whether its pictures can be drawn.

    Raises:
        UserError: matplotlib is not installed.

    """
    if importlib.util.find_spec("matplotlib") is None:
        raise usage_error(
            "pictures need matplotlib, which is not installed",
            "Run: pip install 'h2o-pack[plot]'",
        )


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of so many inches."""
    figure = importlib.import_module("matplotlib.figure").Figure
    return figure(figsize=(width, height), layout="constrained")
