"""The versions that the compiled module is built for."""

from __future__ import annotations

from importlib import metadata

MLX_VERSION = "0.31.1"


def wrong_mlx() -> str | None:
    """What is wrong with the installed mlx and what to do, or None where it fits."""
    try:
        found = metadata.version("mlx")
    except metadata.PackageNotFoundError:
        found = "none"
    if found == MLX_VERSION:
        return None
    return (
        f"h2o_py was compiled for mlx {MLX_VERSION}, but {found} is installed. "
        f"Run: pip install mlx=={MLX_VERSION}, or build h2o-pack again for another mlx."
    )
