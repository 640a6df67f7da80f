"""Intervals and verdicts of h2o_pack.measure.evaluation.statistics."""

from __future__ import annotations

import numpy as np
import pytest

from h2o_pack.measure.evaluation.statistics import (
    Estimate,
    compare,
    estimate,
    expanded_tail,
    student_bound,
)


@pytest.mark.parametrize(
    ("freedom", "published"),
    [(1, 12.7062), (2, 4.3027), (5, 2.5706), (10, 2.2281), (11, 2.2010), (30, 2.0423),
     (120, 1.9799)],
)  # fmt: skip
def test_the_bounds_of_student_t_are_those_of_the_tables(freedom, published):
    assert student_bound(freedom) == pytest.approx(published, abs=6e-5)


def test_with_many_samples_the_interval_is_the_normal_one():
    values = np.random.default_rng(1).normal(3.0, 2.0, 4000)
    found = estimate(values)
    half = 1.96 * values.std(ddof=1) / np.sqrt(values.size)
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(found.mean - half, abs=0.05 * half)
    assert found.high == pytest.approx(found.mean + half, abs=0.05 * half)


@pytest.mark.parametrize("draw", ["normal", "uniform", "half"])
def test_twelve_samples_cover_the_true_mean_about_95_times_in_100(draw):
    rng = np.random.default_rng(7)
    make = {
        "normal": lambda: rng.normal(0.0, 1.0, 12),
        "uniform": lambda: rng.uniform(-1.0, 1.0, 12),
        "half": lambda: rng.integers(0, 2, 12) - 0.5,
    }[draw]
    found = [estimate(make()) for _ in range(400)]
    covered = np.mean([each.low <= 0 <= each.high for each in found])
    assert 0.91 <= covered <= 0.99


def test_the_tail_goes_further_out_with_few_samples_and_to_the_nominal_with_many():
    assert expanded_tail(5) < expanded_tail(12) < expanded_tail(100) < 0.025
    assert expanded_tail(100_000) == pytest.approx(0.025, rel=1e-3)


def test_the_same_values_give_the_same_interval_again():
    values = [0.3, 0.1, 0.9, 0.4]
    assert estimate(values) == estimate(values)


def test_equal_values_have_an_interval_of_no_width():
    assert estimate([1.0] * 6) == Estimate(1.0, 1.0, 1.0, 6)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")]])
def test_what_has_no_mean_is_refused(values):
    with pytest.raises(ValueError, match="no mean"):
        estimate(values)


def test_a_small_difference_within_each_sample_is_found_in_large_spread_between_them():
    rng = np.random.default_rng(3)
    base = rng.normal(2.0, 0.5, 12)
    found = compare(base - 0.02 + rng.normal(0, 0.005, 12), base, lower_is_better=True)
    assert found.verdict == "better"
    assert found.low < -0.02 < found.high < 0
    assert compare(base + 0.02, base, lower_is_better=True).verdict == "worse"
    assert compare(base + 0.02, base, lower_is_better=False).verdict == "better"


def test_five_samples_cannot_be_told_apart_and_six_can():
    assert compare([2.0] * 5, [1.0] * 5, lower_is_better=True).verdict == "not distinguishable"
    assert compare([2.0] * 6, [1.0] * 6, lower_is_better=True).verdict == "worse"


def test_the_same_values_are_not_distinguishable():
    assert (
        compare([1.0, 2.0], [1.0, 2.0], lower_is_better=True).verdict == "not distinguishable"
    )


def test_chance_alone_is_called_a_difference_about_5_times_in_100():
    rng = np.random.default_rng(11)
    verdicts = [
        compare(rng.normal(0, 1, 12), rng.normal(0, 1, 12), lower_is_better=True).verdict
        for _ in range(400)
    ]
    assert 0.01 <= np.mean([v != "not distinguishable" for v in verdicts]) <= 0.09


def test_different_samples_are_not_paired():
    with pytest.raises(ValueError, match="cannot be paired"):
        compare([1.0], [1.0, 2.0], lower_is_better=True)
