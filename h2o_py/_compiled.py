"""Loads the compiled module, or raises an error that says why it cannot be loaded."""

from __future__ import annotations

from h2o_py._pins import wrong_mlx


class CompiledModuleError(ImportError):
    """The compiled module is missing or does not fit the installed mlx."""


_complaint = wrong_mlx()
if _complaint is not None:
    raise CompiledModuleError(_complaint)

import mlx.core  # noqa: E402, F401  loads libmlx, which the module links

try:
    from h2o_py import _ext as ext
except ImportError as error:
    raise CompiledModuleError(
        "h2o_py._ext is missing, because h2o-pack was installed without compiling it. In a "
        f"checkout, run `make --always-make install`. ({error})"
    ) from error

__all__ = ["CompiledModuleError", "ext"]
