"""The core's functions on arrays, of which `h2o::LayerCache` is made, for tests of each.

With those of `h2o_py.fast`: a module of the same functions is a backend of tests.
"""

from __future__ import annotations

import mlx.core as mx

from h2o_py._compiled import ext
from h2o_py.config import H2OConfig
from h2o_py.fast import *  # noqa: F403  a backend has these too
from h2o_py.fast import _native


def chosen_positions(
    asked_for: mx.array, *, first: int, seen: int, rows: int, config: H2OConfig
) -> mx.array:
    """The positions that are asked for most, int32 [B, rows], the best first; -1 for none."""
    return ext.chosen_positions(
        asked_for,
        first=first,
        seen=seen,
        rows=rows,
        config=_native(config),
        recall=config.recall,
    )
