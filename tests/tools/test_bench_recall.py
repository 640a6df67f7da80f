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
    assert recall.token_row("a token", flat(100), flat(250), 2.5) == (
        "a token", "0.100", "0.250", "2.500", "-",
    )  # fmt: skip


def test_a_tiny_layer_reads_everything_in_each_chunk():
    with mx.stream(mx.Device(mx.cpu)):
        section = recall.chunk_costs(TINY, "float32", recall.RestOfLayer(TINY))
        layer = recall.new_layer(TINY, mx.float32, recall.H2ORecall())
        recall.read(layer, 1024)
        layer.attend(layer.chunk(64))
        layer.run()
    assert layer.cache.recalled > 0
    assert [row[:2] for row in section.table.rows] == [("64", "1,024"), ("512", "1,024")]
    assert [claim.goal for claim in section.claims] == 2 * [
        recall.CHUNK_GOAL, recall.CHOICE_GOAL,
    ]  # fmt: skip


def test_tokens_of_a_tiny_layer_ask_or_do_not():
    with mx.stream(mx.Device(mx.cpu)):
        section, rest = recall.token_costs(TINY, "float32", recall.RestOfLayer(TINY))
    asking, between = section.table.rows
    assert asking[0].startswith("a token that asks, 1,024 archived")
    assert between[-1] != "-"
    assert min(rest.values) > 0
    assert [claim.goal for claim in section.claims] == [recall.ASKING_GOAL, recall.STEP_GOAL]


@pytest.mark.parametrize("store", ["memory", "files"])
def test_steps_leave_no_memory_behind_but_the_archive(monkeypatch, store):
    monkeypatch.setattr(recall, "QUICK", 576)
    with mx.stream(mx.Device(mx.cpu)):
        row, claims = recall.measure_writing(TINY, "float32", flat(100), store)
    assert row[:2] == (f"archive in {store}", "576")
    assert float(row[-1]) >= (576 + 2 * TINY.capacity) * 2 * 2 * (32 + 8) / 1e6 - 0.05
    if store == "memory":  # segments that wait for the disk are in memory too
        assert claims[-1].verdict == "met"
