"""Fixtures that tests of several folders use."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, settings

from h2o_py import routing
from tests.hub.fixture import hub
from tests.left_out import pytest_runtest_setup, pytest_terminal_summary
from tests.schedule import FilesSideBySide, longest_first

__all__ = ["hub", "pytest_runtest_setup", "pytest_terminal_summary"]

# Property tests try the same examples in every run; `make fuzz` tries random ones. Neither
# keeps found examples in a database, nor fails because the machine is slow.
settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("random", settings.get_profile("fixed"), derandomize=False)
settings.load_profile("fixed")

# On a CPU MLX compiles C++ for fused operations while models run, into a folder of /tmp that
# all users and processes share without a lock. Here each operation runs by itself.
os.environ["MLX_DISABLE_COMPILE"] = "1"

# Swift keeps what it compiles of its own in the user's caches, and stops if it cannot.
CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
if not os.access(next(p for p in (CACHES, *CACHES.parents) if p.exists()), os.W_OK):
    os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parents[1] / "build/caches")

DEMO = Path(__file__).parents[1] / "bridge/h2o_pack/models/demo"


@pytest.fixture(scope="session")
def demo():
    """Model and tokenizer of the bundled demo model, in float32."""
    from mlx_lm import load

    model, tokenizer = load(str(DEMO))
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())  # here: another thread has no stream to do it on
    return model, tokenizer


@pytest.fixture
def routed():
    routing.install_routing()
    yield
    routing.remove_routing()


@pytest.fixture(autouse=True, scope="session")
def without_vendoring():
    """Keep `ios` from fetching and building sources where a test does not ask for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("H2O_PACK_VENDOR", "0")
        patch.setenv("H2O_PACK_CHECK_TEXT", "0")
        yield


@pytest.fixture(autouse=True, scope="module")
def without_what_is_there():
    """Let garbage collection, which many tests ask for, pass over what was made before a file.

    With all that the tests import it takes half a second each time.
    """
    gc.freeze()


def pytest_collection_modifyitems(items):
    longest_first(items)


def pytest_xdist_make_scheduler(config, log):
    """Schedule by file; only asked where tests run side by side."""
    return FilesSideBySide(config, log)
