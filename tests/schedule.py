"""Which tests run first, and which of them in one process, where several run side by side."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

# These use one build of a package.
DEMO_PACKAGE = (
    "tests/bridge/test_interchange.py",
    "tests/bridge/test_parity.py",
    "tests/bridge/type_check/test_app.py",
    "tests/bridge/type_check/test_samples.py",
)
# Files of more than twenty seconds, here or at night: what starts last should be short, or one
# process is left with it alone.
LONGEST = (
    *DEMO_PACKAGE,
    "tests/cexport/test_older_mlx.py",
    "tests/metal/test_checks.py",
    "tests/metal/test_cache_kernels.py",
    "tests/metal/test_attention_kernels.py",
    "tests/bridge/measure/test_evaluation_runs.py",
    "tests/bridge/coexistence/test_apps.py",
    "tests/h2o_py/test_model_families.py",
)


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first; the others keep their order."""
    place = {path: number for number, path in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(file_of(item.nodeid), len(place)))


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class FilesSideBySide(LoadFileScheduling):
    """Runs all tests of a file in one process, as they share what it builds."""

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return DEMO_PACKAGE[0] if file in DEMO_PACKAGE else file
