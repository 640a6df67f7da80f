import dataclasses

import pytest

from h2o_pack.devices.catalogue import catalogue
from h2o_pack.model import Layer
from h2o_pack.models.catalogue import as_model
from h2o_pack.models.catalogue import catalogue as model_catalogue
from h2o_pack.plan.advice import advice
from h2o_pack.plan.device_fit import remedies, verdict
from h2o_pack.plan.speed import calibration, estimate, floor, from_bytes
from h2o_pack.plan.workload import known_fitting, largest
from h2o_py.config import H2OConfig
from tests.bridge.memory.described import model, request

GB = 10**9


@pytest.mark.parametrize(
    ("needed", "limit", "fit"),
    [
        (GB, 2 * GB, "fits"),
        (9 * GB, 10 * GB, "fits"),
        (9 * GB + 1, 10 * GB, "tight"),
        (10 * GB, 10 * GB, "tight"),
        (10 * GB + 1, 10 * GB, "does not fit"),
        (GB, None, "unknown"),
    ],
)
def test_a_verdict_is_one_of_four(needed, limit, fit):
    result = verdict(needed, limit)
    assert result.verdict == fit
    assert result.headroom == (None if limit is None else limit - needed)


def test_the_largest_value_is_found_to_the_step():
    for best in (0, 1, 7, 640, 1000):
        for step in (1, 64):
            assert largest(1000, best.__ge__, step) == best // step * step


def test_the_largest_settings_fit_and_the_next_do_not():
    limit, workload = 4_200_000_000, request()
    rows = workload.largest_max_kv(limit, "iphone")
    endless = workload.with_context(2 * workload.model.config.context)
    totals = [endless.with_max_kv(count).plan("iphone").total for count in (rows, rows + 64)]
    assert totals[0] <= limit < totals[1]
    tokens = workload.largest_context(limit, "iphone")
    free = workload.with_max_kv(0)
    totals = [free.with_context(count).plan("iphone").total for count in (tokens, tokens + 256)]
    assert totals[0] <= limit < totals[1]


def test_the_best_known_model_fits_and_better_ones_do_not():
    workload = request()
    model = known_fitting(workload, 2_400_000_000, "iphone")
    assert model is not None
    assert workload.of_model(as_model(model)).plan("iphone").total <= 2_400_000_000
    for entry in model_catalogue():
        if entry.rank > model.rank:
            assert workload.of_model(as_model(entry)).plan("iphone").total > 2_400_000_000


def test_remedies_begin_with_what_costs_least_and_each_fits():
    workload = request(max_kv=4096, step=1024)
    limit = workload.plan("iphone").total - 10**8
    lines = list(remedies(workload, limit, "iphone"))
    assert [line.split()[0] for line in lines] == [
        "--prefill-step",
        "--kv",
        "--max-kv",
        "--model",
    ]
    step = int(lines[0].split()[1])
    assert dataclasses.replace(workload, step=step).plan("iphone").total <= limit
    kv = lines[1].split()[1]
    assert dataclasses.replace(workload, kv=kv).plan("iphone").total <= limit


def test_the_speed_rule_meets_its_calibration_points_within_6_percent():
    compared = calibration(catalogue())
    assert len(compared) == 11
    assert all(abs(point.error) < 0.06 for point in compared)
    assert {point.model for point in compared} >= {"Qwen3-4B-4bit", "Qwen3-1.7B-4bit"}


def test_published_speeds_of_small_models_are_within_their_range():
    small = [
        point for point in calibration(catalogue()) if point.predicted[0] < point.predicted[1]
    ]
    assert {point.model for point in small} == {
        "Qwen3-0.6B-4bit",
        "gemma-3-1b-it-qat-4bit",
        "LFM2.5-1.2B-Instruct-4bit",
    }
    assert all(point.error == 0 for point in small)
    assert {point.identifier for point in small} == {"iPhone18,1", "iPad17,1"}


def test_a_speed_falls_with_the_bytes_that_a_token_reads():
    (phone,) = catalogue().find("iPhone18,1")
    few, many = (estimate(request(max_kv=rows), phone) for rows in (512, 8192))
    assert few is not None
    assert many is not None
    assert few.tokens_per_second > many.tokens_per_second
    low, high = few.tokens_per_second
    assert low == high == pytest.approx(0.8 * 76.8e9 / few.bytes_per_token, abs=0.05)
    assert few.sustained == pytest.approx(0.38 * high, abs=0.1)


def test_a_tablet_has_a_range_below_the_rule_and_no_speed_after_ten_minutes():
    workload = request(max_kv=512)
    tablet = next(device for device in catalogue().all_devices() if device.backend == "ipad")
    speed = estimate(workload, tablet)
    rule = 0.8 * tablet.bandwidth / speed.bytes_per_token
    assert speed.tokens_per_second == (
        pytest.approx(0.75 * rule, abs=0.1),
        pytest.approx(rule, abs=0.1),
    )
    assert speed.sustained is None
    assert floor(speed) < speed.tokens_per_second[0]


def test_small_models_have_a_range_below_the_rule():
    speed = from_bytes(335_450_584, 0, 76_800_000_000)
    assert speed is not None
    rule = 0.8 * 76.8e9 / 335_450_584
    low, high = speed.tokens_per_second
    assert (low, high) == (pytest.approx(0.5 * rule, abs=0.05), pytest.approx(rule, abs=0.05))
    assert str(speed) == f"~{low:.0f}-{high:.0f}"


def test_no_speed_is_given_for_tiny_models_and_unknown_bandwidths():
    assert from_bytes(99_000_000, 0, 76_800_000_000) is None
    assert from_bytes(335_450_584, 0, None) is None


def advised(workload) -> str:
    return " / ".join(advice(workload))


def test_advice_names_what_hurts_and_is_silent_otherwise():
    assert "after about 4,096 tokens" in advised(request(max_kv=512))
    assert "under an eighth of 8,000 tokens" in advised(request(max_kv=512, context=8000))
    assert "give 1000, or leave out --no-recall" in advised(request(max_kv=512, context=8000))
    assert advised(request(max_kv=512, context=4096)) == ""
    assert "fewer than 64 of the newest" in advised(request(max_kv=100, context=800))
    assert "4 bits change answers" in advised(request(max_kv=512, context=2000, kv="4"))
    assert advised(request(max_kv=0)) == ""


def test_advice_knows_windows():
    layers = (Layer("sliding", 1, 256, 256, window=512),) * 5 + (Layer("full", 1, 256, 256),)
    gemma = model("g", layers=layers, model_type="gemma3_text", heads=4)
    text = advised(request(gemma, context=2000))
    assert "5 of 6 layers attend to a window" in text


def test_budgets_a_layer_are_looked_at_one_by_one():
    workload = request(context=2000)
    caches = (H2OConfig(512, heavy_budget=480, recent_budget=20), *workload.caches[1:])
    assert "fewer than 64" in advised(dataclasses.replace(workload, caches=caches))
