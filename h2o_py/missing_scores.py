"""Says once that attention does not pass through the caches."""

from __future__ import annotations

import warnings


class H2OScoresMissingWarning(UserWarning):
    """Attention did not pass through the cache, so no scores arrive."""


_warned = False


def warn_once() -> None:
    """Warn of the first cache that gets no scores; later ones are silent."""
    global _warned  # noqa: PLW0603  once a process, whatever the cache
    if not _warned:
        _warned = True
        warnings.warn(
            "This model's attention does not pass through the H2O cache, so no scores "
            "arrive: novelty and recency alone decide what stays. Call "
            "h2o_py.install_routing() before generating.",
            H2OScoresMissingWarning,
            stacklevel=4,
        )
