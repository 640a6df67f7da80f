"""What the benchmark says of recall: measured on a tiny layer, and computed from figures."""

from __future__ import annotations

import mlx.core as mx
import pytest

from h2o_pack.measure.timing import Timing
from tools.bench import recall
from tools.bench.caches import Options

TINY = Options(heads=4, kv_heads=2, head_dim=64, capacity=128, quick=True)


def flat(value):
    return Timing.of((float(value),) * 3)


def test_a_ratio_is_that_of_a_whole_layer():
    times = {"without": flat(100), "recalling": flat(250), "rest": flat(2900)}
    assert recall.whole_layer(times) == pytest.approx(1.05)
    assert recall.cost_row("64 tokens", times, 1200) == (
        "64 tokens", "0.100", "0.250", "2.900", "1.050", "1,200",
    )  # fmt: skip


def test_a_tiny_layer_is_measured_with_a_recall_in_each_chunk():
    with mx.stream(mx.Device(mx.cpu)):
        section, rest = recall.recall_cost(TINY, "float32")
    chunk, asking, step = section.table.rows
    assert (chunk[0], asking[0]) == (
        "64 tokens, 1,024 archived",
        "1 token that asks, 1,024 archived",
    )
    assert int(chunk[-1]) > 0
    assert int(asking[-1]) > 0
    assert step[-1] == "-"
    assert min(rest.values) > 0
    assert [claim.goal for claim in section.claims] == [None, None, recall.STEP_GOAL]


@pytest.mark.parametrize("store", ["memory", "files"])
def test_steps_leave_no_memory_behind_but_the_archive(monkeypatch, store):
    monkeypatch.setattr(recall, "QUICK", 576)
    with mx.stream(mx.Device(mx.cpu)):
        row, claims = recall.measure_writing(TINY, "float32", flat(100), store)
    assert row[:2] == (f"archive in {store}", "576")
    assert float(row[-1]) >= (576 + 2 * TINY.capacity) * 2 * 2 * (32 + 8) / 1e6 - 0.05
    if store == "memory":  # segments that wait for the disk are in memory too
        assert claims[-1].verdict == "met"
