"""The versions of mlx and mlx-lm that this package is built and tested with."""

from __future__ import annotations

from importlib import metadata

MLX_VERSION = "0.32.4"
VERSIONS = {
    "mlx": MLX_VERSION,
    "mlx-lm": "0.32.2",
}


def wrong_mlx() -> str | None:
    """Return a message if the installed mlx is not the required version; else None."""
    try:
        installed = metadata.version("mlx")
    except metadata.PackageNotFoundError:
        installed = "none"
    if installed == MLX_VERSION:
        return None
    return (
        f"h2o_py was compiled for mlx {MLX_VERSION}, but {installed} is installed. "
        f"Run: pip install mlx=={MLX_VERSION}, or build h2o-pack again for another mlx."
    )
