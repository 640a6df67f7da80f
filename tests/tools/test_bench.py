"""Interleaved measurement, and verdicts on the goals."""

import pytest

from h2o_pack.measure.timing import Timing, interleave
from tools.bench.goals import Claim


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


def test_figures_of_a_timing():
    timing = Timing.of((30.0, 10.0, 20.0, 50.0, 40.0))
    assert timing.median == 30.0
    assert (timing.first_quartile, timing.third_quartile) == (20.0, 40.0)
    assert Timing.of((7.0,)) == Timing(7.0, 7.0, 7.0, 1)


def test_a_ratio_is_the_median_of_the_repetitions_ratios():
    slow, fast = Timing.of((20.0, 90.0, 40.0)), Timing.of((10.0, 30.0, 10.0))
    assert slow.over(fast) == 3.0
    assert slow.median / fast.median == 4.0


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
