"""A plugin of pytest that puts h2o_py into a run of mlx-lm's own tests; see own_tests.py."""

from __future__ import annotations

import os
from functools import wraps
from typing import Any

from mlx_lm.models import cache

import h2o_py
from h2o_py.errors import H2OError

MODE = "H2O_UPSTREAM_TESTS"
ROUTED, ATTACHED = "with routing", "with H2O caches"
ROWS = 4096
"""More rows than any test has tokens, so that nothing is evicted."""


def pytest_configure() -> None:
    """Install routing, and let mlx-lm make H2O caches if the mode says so."""
    mode = os.environ.get(MODE)
    if mode in (ROUTED, ATTACHED):
        h2o_py.install_routing()
    if mode != ATTACHED:
        return
    own = cache.make_prompt_cache

    @wraps(own)
    def make(model: Any, max_kv_size: int | None = None) -> list[Any]:
        try:
            return h2o_py.make_h2o_cache(model, h2o_py.H2OConfig(ROWS))
        except H2OError:  # a model without full attention keeps its own caches
            return own(model, max_kv_size)

    cache.make_prompt_cache = make
