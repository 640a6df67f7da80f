"""Fixtures that tests of several folders use."""

from __future__ import annotations

import pytest

from tests.hub.fixture import hub

__all__ = ["hub"]


@pytest.fixture(autouse=True, scope="session")
def without_vendoring():
    """Keep `ios` from fetching upstream's sources where a test does not ask for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("H2O_PACK_VENDOR", "0")
        yield
