"""The benchmark of the project's goals measures the real thing."""

import mlx.core as mx
import pytest

from h2o_pack.measure.bench import CACHES
from h2o_pack.measure.timing import Timing, interleave
from h2o_py.routing import routed_attention
from tests.h2o_py.cases import largest_difference
from tools.bench import caches
from tools.bench.caches import BY_NAME, Options, steady
from tools.bench.goals import Claim
from tools.bench.steps import decode_steps, eviction, fit, slope_deviation

TINY = Options(heads=4, kv_heads=2, head_dim=64, capacity=128, repetitions=9)


def test_contenders_take_turns_in_changing_orders_and_each_gets_its_burst():
    calls = []
    bursts = {
        name: lambda steps, name=name: calls.append((name, steps)) or 1.0 for name in "abc"
    }
    timings = interleave(bursts, 12, steps=5)
    orders = ["".join(name for name, _ in calls[i : i + 3]) for i in range(0, 36, 3)]
    assert [sorted(order) for order in orders] == [list("abc")] * 12
    assert len(set(orders)) > 2
    assert {steps for _, steps in calls} == {5}
    assert [timings[name].samples for name in "abc"] == [12, 12, 12]


def test_a_burst_has_as_many_steps_as_fit_into_its_time():
    lengths = {"slow": [], "middle": [], "quick": []}
    times = {"slow": 1e6, "middle": 1000.0, "quick": 0.5}
    bursts = {n: lambda steps, n=n: lengths[n].append(steps) or times[n] for n in lengths}
    interleave(bursts, 2)
    assert {n: count[-1] for n, count in lengths.items()} == {
        "slow": 1,
        "middle": 8,
        "quick": 64,
    }


def test_figures_of_a_timing():
    timing = Timing.of((30.0, 10.0, 20.0, 50.0, 40.0))
    assert timing.median == 30.0
    assert (timing.first_quartile, timing.third_quartile) == (20.0, 40.0)
    assert Timing.of((7.0,)) == Timing(7.0, 7.0, 7.0, 1)


def test_a_ratio_is_the_median_of_the_repetitions_ratios():
    slow, fast = Timing.of((20.0, 90.0, 40.0)), Timing.of((10.0, 30.0, 10.0))
    assert slow.over(fast) == 3.0
    assert slow.median / fast.median == 4.0
    assert slow.without(fast).values == (10.0, 60.0, 30.0)


def test_the_fitted_line_is_exact_on_a_line_and_its_halves_tell_a_bend():
    start, slope = fit({n: 20 + 0.5 * n for n in (128, 256, 1024)})
    assert (start, slope) == (pytest.approx(20), pytest.approx(0.5))
    sizes = (128, 256, 512, 1024, 2048, 4096)
    assert slope_deviation({n: 20 + 0.5 * n for n in sizes}) == pytest.approx(0)
    assert slope_deviation({n: 20 + 0.5 * n + 0.5 * max(0, n - 1024) for n in sizes}) > 0.2


@pytest.mark.parametrize(
    ("direction", "value", "verdict"),
    [
        ("at least", 2.0, "met"),
        ("at least", 1.9, "not met"),
        ("at most", 2.0, "met"),
        ("at most", 2.1, "not met"),
        ("below", 1.9, "met"),
        ("below", 2.0, "not met"),
        ("at most", float("nan"), "not met"),
    ],
)
def test_verdicts_at_the_goal(direction, value, verdict):
    assert Claim("", "", value, direction, 2.0).verdict == verdict


def test_every_cache_is_measured_on_a_tiny_layer():
    steps = decode_steps(TINY, "float32", 1e9)
    assert [row[0] for row in steps.table.rows] == [cache.title for cache in CACHES]
    assert all(claim.value > 0 for claim in steps.claims)
    evicting = eviction(TINY, "float32")
    assert [claim.goal for claim in evicting.claims] == [1.05]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_step_attends_over_as_many_rows_as_the_cache_keeps(name, monkeypatch):
    seen = {}

    def attention(queries, keys, values, cache, scale):
        seen.update(queries=mx.array(queries), keys=wide(keys), values=wide(values))
        seen["out"] = routed_attention(queries, keys, values, cache, scale)
        return seen["out"]

    def wide(rows):
        """Rows as plain arrays: mlx_lm's quantized cache hands out triples."""
        packed = isinstance(rows, tuple | list)
        return mx.dequantize(*rows, group_size=64, bits=8) if packed else rows

    monkeypatch.setattr(caches, "routed_attention", attention)
    steady(BY_NAME[name], TINY, mx.float32)
    assert seen["keys"].shape == (1, TINY.kv_heads, TINY.capacity, TINY.head_dim)
    group = TINY.heads // TINY.kv_heads
    keys, values = (mx.repeat(seen[part], group, axis=1) for part in ("keys", "values"))
    logits = (seen["queries"] @ keys.swapaxes(-1, -2)) * TINY.head_dim**-0.5
    assert largest_difference(seen["out"], mx.softmax(logits, axis=-1) @ values) < 1e-4
