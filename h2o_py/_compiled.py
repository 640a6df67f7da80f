"""Loads the compiled module, or says why it cannot be loaded."""

from __future__ import annotations

from importlib import metadata

from h2o_py._pins import MLX_VERSION


class CompiledModuleError(ImportError):
    """The compiled module is missing or does not fit the installed mlx."""


def _check_mlx() -> None:
    try:
        found = metadata.version("mlx")
    except metadata.PackageNotFoundError:
        found = "none"
    if found != MLX_VERSION:
        raise CompiledModuleError(
            f"h2o_py was compiled for mlx {MLX_VERSION}, but {found} is installed. "
            f"Run: pip install mlx=={MLX_VERSION}, or build h2o-pack again for another mlx."
        )


_check_mlx()

import mlx.core  # noqa: E402, F401  brings libmlx, which the module links

try:
    from h2o_py import _ext as ext
except ImportError as error:
    raise CompiledModuleError(
        "h2o_py._ext is not there: the package was not built. It needs a C++ compiler; "
        f"run `pip install .` in a checkout, or `make`. ({error})"
    ) from error

__all__ = ["CompiledModuleError", "ext"]
