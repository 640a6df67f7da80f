"""The parts of a step are differences of what was measured, and add up to the step."""

import mlx.core as mx
import numpy as np
import pytest

from h2o_pack.measure.profiling import step_time
from h2o_pack.measure.timing import Timing
from h2o_py import fast
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OError
from h2o_py.models import make_h2o_cache
from tests.bridge.measure.profiles import pieces
from tests.h2o_py.small_models import small_model

HEADS = dict.fromkeys(range(4), 4)


@pytest.fixture
def layer(routed):
    model, (piece,) = small_model("qwen3"), pieces()
    caches = step_time._filled(model, make_h2o_cache(model, H2OConfig(32)), piece)
    return caches[0], step_time._Layer(caches[0], 4)


@pytest.mark.usefixtures("routed")
def test_parts_are_differences_and_add_up(monkeypatch):
    medians = {"E": 1.0, "W": 3.0, "WA": 8.0, "WAL": 10.0, "M": 100.0}
    measured = {}

    def interleaved(bursts, repetitions):
        assert repetitions == 3
        measured.update({name: burst(2) for name, burst in bursts.items()})
        return {name: Timing.of((medians[name],) * 3) for name in bursts}

    monkeypatch.setattr(step_time, "interleave", interleaved)
    step = step_time.measure(small_model("qwen3"), pieces()[0], HEADS, 32, 3)
    assert all(seconds > 0 for seconds in measured.values())
    parts = {name: timing.median for name, timing in step.parts.items()}
    assert parts == {"write": 2, "attention": 5, "ledger": 2, "rest": 91}
    assert sum(parts.values()) == step.step.median == 100
    assert step.parts["attention"].share == 0.05
    assert (step.rows, step.evicting, step.own) == (32, 4, 0)


def test_attention_alone_is_that_of_the_caches_call(layer):
    _, calls = layer
    rows = calls._written(1, calls._ledger)
    attended = fast.cache_attend(
        calls._queries, rows, calls._ledger, tokens=1, offset=calls._offset,
        config=calls._config, scale=calls._key_dim**-0.5,
    )  # fmt: skip
    out, logits = calls.write_attend()
    np.testing.assert_allclose(np.array(out), np.array(attended.out), rtol=1e-5, atol=1e-6)
    assert logits.shape == (4, 32)


def test_every_timed_step_evicts_and_leaves_the_cache_alone(layer):
    cache, calls = layer
    before = [np.array(array) for array in cache.arrays]
    evicted = set()
    for _ in range(6):
        positions = {int(p) for p in np.array(calls._stepping.positions)[0, 0]}
        mx.eval(calls.write(), *calls.write_attend(), *calls.step())
        after = {int(p) for p in np.array(calls._stepping.positions)[0, 0]}
        assert len(positions) == len(after) == 32
        evicted |= positions - after
    assert len(evicted) == 6
    for array, old in zip(cache.arrays, before, strict=True):
        assert (np.array(array) == old).all()


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize(
    ("family", "heads", "rows", "message"),
    [
        ("qwen3", HEADS, 150, "150 rows are not fewer than the sample's 150 tokens"),
        ("qwen3", {0: 4}, 32, "gives the caches no scores"),
        ("gemma3n", HEADS, 32, "cannot use an H2O cache"),
    ],
)
def test_what_cannot_be_timed_is_refused(family, heads, rows, message):
    with pytest.raises((step_time.NotTimedError, H2OError), match=message):
        step_time.measure(small_model(family), pieces()[0], heads, rows, 1)
