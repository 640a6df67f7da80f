"""The embedded model, and routing that no test leaves behind."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from h2o_py import routing

DEMO = Path(__file__).parents[2] / "bridge/h2o_pack/models/demo"


@pytest.fixture(scope="session")
def demo():
    """Model and tokenizer of the embedded model, in float32."""
    from mlx_lm import load

    model, tokenizer = load(str(DEMO))
    model.set_dtype(mx.float32)
    return model, tokenizer


@pytest.fixture
def routed():
    routing.install_routing()
    yield
    routing.remove_routing()
