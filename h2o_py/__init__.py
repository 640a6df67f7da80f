"""A KV cache of fixed size for mlx_lm, which keeps the tokens that attention uses most (H2O).

    import h2o_py
    h2o_py.install_routing()
    caches = h2o_py.make_h2o_cache(model, h2o_py.H2OConfig(max_size=512))

Importing this package does not import mlx or mlx_lm. The first use of a function or class does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from h2o_py.budgets import Budgets, LayerBudget, load_budgets
    from h2o_py.cache import H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
    from h2o_py.config import H2OConfig, H2ORecall
    from h2o_py.errors import (
        H2OBudgetsError,
        H2OConfigError,
        H2OConfigWarning,
        H2OError,
        H2OFileError,
        H2OModelError,
        H2ORecallWarning,
        H2OScoresMissingWarning,
        H2OStateError,
    )
    from h2o_py.generation import generate, stream_generate
    from h2o_py.models import attach_h2o_cache, detach_h2o_cache, make_h2o_cache
    from h2o_py.routing import install_routing, remove_routing, routing_installed
    from h2o_py.store import delete_archive, delete_stale_archives, load_cache, save_cache

_HOMES = {
    "Budgets": "budgets",
    "H2OConfig": "config",
    "H2OBudgetsError": "errors",
    "H2OConfigError": "errors",
    "H2OConfigWarning": "errors",
    "H2OError": "errors",
    "H2OFileError": "errors",
    "H2OModelError": "errors",
    "H2ORecall": "config",
    "H2ORecallWarning": "errors",
    "H2OStateError": "errors",
    "H2OKVCache": "cache",
    "H2OScoresMissingWarning": "errors",
    "LayerBudget": "budgets",
    "MixedH2OKVCache": "cache",
    "QuantizedH2OKVCache": "cache",
    "attach_h2o_cache": "models",
    "delete_archive": "store",
    "delete_stale_archives": "store",
    "detach_h2o_cache": "models",
    "generate": "generation",
    "install_routing": "routing",
    "load_budgets": "budgets",
    "load_cache": "store",
    "make_h2o_cache": "models",
    "remove_routing": "routing",
    "routing_installed": "routing",
    "save_cache": "store",
    "stream_generate": "generation",
}

__all__ = [
    "Budgets",
    "H2OBudgetsError",
    "H2OConfig",
    "H2OConfigError",
    "H2OConfigWarning",
    "H2OError",
    "H2OFileError",
    "H2OKVCache",
    "H2OModelError",
    "H2ORecall",
    "H2ORecallWarning",
    "H2OScoresMissingWarning",
    "H2OStateError",
    "LayerBudget",
    "MixedH2OKVCache",
    "QuantizedH2OKVCache",
    "attach_h2o_cache",
    "delete_archive",
    "delete_stale_archives",
    "detach_h2o_cache",
    "generate",
    "install_routing",
    "load_budgets",
    "load_cache",
    "make_h2o_cache",
    "remove_routing",
    "routing_installed",
    "save_cache",
    "stream_generate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'h2o_py' has no attribute {name!r}")
    return getattr(import_module(f"h2o_py.{_HOMES[name]}"), name)
