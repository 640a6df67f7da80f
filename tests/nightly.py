"""Marks the tests that run each night and before a release, and not in `make test`.

Such a test takes long, and another covers the same in a smaller form: the mark names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def nightly_except(everyday: Collection[Any], parameters: Iterable[Any]) -> list[Any]:
    """Return a test's parameters, all marked but those that it runs with in `make test`."""
    mark = pytest.mark.nightly("the other parameters")
    sets = {values: values if isinstance(values, tuple) else (values,) for values in parameters}
    assert sets.keys() >= set(everyday)
    return [
        pytest.param(*values, marks=() if key in everyday else mark)
        for key, values in sets.items()
    ]
