"""The host, built once; each test finds it in its first state."""

from __future__ import annotations

import pytest

from tests.metal.backend import load_host, make_backend


@pytest.fixture(scope="session")
def host():
    """The module _metal_host of this checkout."""
    return load_host()


@pytest.fixture(scope="session")
def backend(host):
    """h2o_py.fast on the host."""
    return make_backend(host)


@pytest.fixture(autouse=True)
def _fresh_host(request):
    """No test inherits another's settings, nor leaves errors that it did not look at."""
    if "host" not in request.fixturenames:
        yield
        return
    host = request.getfixturevalue("host")
    host.set_architecture("applegpu_g16p")
    host.set_order("forward")
    host.take_errors()
    host.commit()
    host.reset_counters()
    yield
    assert host.take_errors() == []
