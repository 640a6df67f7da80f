"""Warns once that attention does not pass through the caches."""

from __future__ import annotations

import warnings

from h2o_py.errors import H2OScoresMissingWarning

_warned = False


def warn_once() -> None:
    """Warn of the first cache that gets no scores; later ones are silent."""
    global _warned  # noqa: PLW0603  once a process, whatever the cache
    if not _warned:
        _warned = True
        warnings.warn(H2OScoresMissingWarning("not_routed"), stacklevel=4)
