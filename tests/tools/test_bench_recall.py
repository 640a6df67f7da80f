"""What the benchmark says of recall: measured on a tiny layer, and computed from figures."""

from __future__ import annotations

import mlx.core as mx
import pytest

from h2o_pack.measure.timing import Timing
from tools.bench import recall as archive_writing
from tools.bench.caches import Options
from tools.bench.goals import recall_claims
from tools.bench.recall import (
    ArchivedCost,
    Cost,
    RecallCost,
    Writing,
    measure_recall,
    measure_writing,
)
from tools.bench.tables import recall_tables

TINY = Options(heads=4, kv_heads=2, head_dim=64, capacity=128, quick=True)


def flat(value):
    return Timing.of((float(value),) * 3)


def made_up_cost():
    """A chunk of 3 s, of which recall adds 150 and 900 ms, and a step of 80 ms."""
    rest = flat(2_900_000)
    chunks = tuple(
        ArchivedCost(flat(100_000), flat(with_recall), rest, archived, came)
        for archived, with_recall, came in ((4096, 250_000, 600), (16384, 1_600_000, 900))
    )
    asking = (ArchivedCost(flat(200), flat(8_200), flat(79_800), 16384, 40),)
    return RecallCost("float16", chunks, asking, Cost(flat(200), flat(1000), flat(79_800)))


def made_up_writing(**changes):
    figures = {
        "store": "memory", "steps": 20_032, "usual_packing": 900.0, "packing": 4_000.0,
        "cpu_packing": 2_000.0, "cpu_others": 180.0,
        "others": 200.0, "slow_others": 300.0, "rest": 19_800.0, "archive": 24_000_000,
        "growth": 1000,
    }  # fmt: skip
    return Writing(**{**figures, **changes})


def test_ratios_are_those_of_a_whole_layer():
    cost = made_up_cost()
    assert [chunk.ratio for chunk in cost.chunks] == pytest.approx([1.05, 1.5])
    assert cost.asking[0].ratio == pytest.approx(1.1)
    assert cost.step.ratio == pytest.approx(1.01)
    assert made_up_writing().ratio == pytest.approx(1.19)


def test_every_goal_has_its_verdict():
    writing = (made_up_writing(), made_up_writing(store="files", packing=9e3, growth=10**6))
    verdicts = [each.verdict for each in recall_claims(made_up_cost(), writing)]
    assert verdicts == [
        "met", "not met", "comparison", "met", "comparison", "met", "comparison", "met",
        "not met", "comparison", "not met",
    ]  # fmt: skip


def test_tables_show_what_was_measured():
    costs, written = recall_tables(made_up_cost(), (made_up_writing(),))
    assert costs.rows[0] == (
        "64 tokens, 4,096 archived", "100.000", "250.000", "2,900.000", "1.050", "600",
    )  # fmt: skip
    assert costs.rows[-1][-2:] == ("1.010", "-")
    assert written.rows[0][-4:] == ("2,000", "1.190", "0.00", "24.0")


def test_a_tiny_layer_is_measured_with_a_recall_in_each_chunk():
    with mx.stream(mx.Device(mx.cpu)):
        found = measure_recall(TINY, "float32")
    (chunk,), (asking,) = found.chunks, found.asking
    assert asking.came > 0
    assert (chunk.archived, chunk.came > 0) == (1024, True)
    assert min(*chunk.recalling.values, *chunk.without.values, *chunk.rest.values) > 0


@pytest.mark.parametrize("store", ["memory", "files"])
def test_steps_leave_no_memory_behind_but_the_archive(monkeypatch, store):
    monkeypatch.setattr(archive_writing, "QUICK", 576)
    with mx.stream(mx.Device(mx.cpu)):
        found = measure_writing(TINY, "float32", flat(100), store)
    assert found.steps == 576
    assert found.archive >= (576 + 2 * TINY.capacity) * 2 * 2 * (32 + 8)
    if store == "memory":  # segments that wait for the disk are in memory too
        assert found.growth < 0.02 * found.archive
