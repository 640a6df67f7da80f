"""The benchmark measures the real thing, and computes with its figures what it says."""

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure.bench import plot
from h2o_pack.measure.bench.caches import BY_NAME, CACHES
from h2o_pack.measure.bench.claims import all_claims, claim, multiply_adds
from h2o_pack.measure.bench.eviction import Eviction, measure_eviction
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.pipelining import Pipelining, UpstreamWrite, measure_pipelining
from h2o_pack.measure.bench.report import Report
from h2o_pack.measure.bench.scaling import Scaling, fit
from h2o_pack.measure.bench.steps import Steps, measure_steps
from h2o_pack.measure.bench.whole_model import TokenTiming, WholeModel, measure_model
from h2o_pack.measure.machine import BusyMachine, describe
from h2o_pack.measure.models import load
from h2o_pack.measure.timing import Timing, interleave
from h2o_py.routing import routing_installed
from tests.bridge import schemas
from tests.bridge.measure.test_bench_recall import made_up_cost, made_up_writing

TINY = Options(heads=4, kv_heads=2, head_dim=64, capacity=128, tokens=4, quick=True)


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
    interleave(bursts, 2, burst_us=8000.0)
    assert {n: taken[-1] for n, taken in lengths.items()} == {
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
    line = fit([128, 256, 1024], [20 + 0.5 * n for n in (128, 256, 1024)])
    assert line.start == pytest.approx(20)
    assert line.slope == pytest.approx(0.5)
    sizes = (128, 256, 512, 1024, 2048, 4096)
    straight = {n: Timing.of((20 + 0.5 * n,)) for n in sizes}
    assert scaled(straight).slope_deviation == pytest.approx(0)
    bent = {n: Timing.of((20 + 0.5 * n + 0.5 * max(0, n - 1024),)) for n in sizes}
    assert scaled(bent).slope_deviation > 0.2


def test_tokens_seen_are_compared_slowest_over_fastest():
    seen = {1: Timing.of((10.0,)), 4: Timing.of((12.0,)), 16: Timing.of((9.0,))}
    assert Scaling("float16", {}, seen, 0, 0).tokens_seen_deviation == pytest.approx(12 / 9)


def scaled(by_capacity):
    return Scaling.of("float16", by_capacity, {1: Timing.of((10.0,)), 4: Timing.of((11.0,))})


def flat(value):
    return Timing.of((float(value),) * 3)


def made_up():
    """A report of round figures."""
    figures = (800, 1000, 4000, 2000, 100, 125, 130, 140, 145, 150)
    timings = {name: flat(us) for name, us in zip(BY_NAME, figures, strict=True)}
    options = Options(dtypes=("float16", "bfloat16"))
    peak = multiply_adds(options) / 100e-6 * 2
    steps = tuple(Steps(dtype, timings, flat(50)) for dtype in options.dtypes)
    evictions = (Eviction("float16", flat(104), flat(100), flat(2000), flat(1990)),)
    pipelining = (Pipelining("dense", "float16", flat(100), flat(120), 1000, 50, 0),)
    write = UpstreamWrite("float16", flat(40), flat(2400))
    scaling = scaled({n: flat(20 + n) for n in (128, 256, 512, 1024, 2048, 4096)})
    rates = {
        name: TokenTiming.of(timing.values, tokens_per_second=1e6 / timing.median)
        for name, timing in timings.items()
        if name != "mixed"
    }
    return Report(
        machine=BusyMachine("a processor", 2, "Linux x", "avx2", "3", "1", "2", "0", 0.5),
        options=options,
        peak=peak,
        evaluation=flat(50),
        contenders={each.name: each.title for each in CACHES},
        not_run={},
        steps=steps,
        evictions=evictions,
        pipelining=pipelining,
        upstream_write=write,
        scaling=scaling,
        recall=made_up_cost(),
        archive_writing=(made_up_writing(),),
        model=WholeModel("demo", "bfloat16", 4, 512, 640, 64, rates, {"mixed": "why"}),
        claims=all_claims(options, peak, steps, evictions, pipelining, write, scaling),
    )


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
    assert claim("", "", value, direction, 2.0).verdict == verdict


def test_the_json_is_what_the_schema_says():
    document = schemas.check(made_up(), "bench")
    assert document["steps"][0]["timings"]["dense"] == {
        "median": 100, "first_quartile": 100, "third_quartile": 100, "samples": 3,
    }  # fmt: skip
    assert document["model"]["timings"]["dense"]["tokens_per_second"] == 10_000
    assert document["scaling"]["by_capacity"]["512"]["median"] == 532
    assert (document["scaling"]["start"], document["scaling"]["slope"]) == pytest.approx(
        (20, 1)
    )


def test_the_picture_is_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    plot.save(made_up(), tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_is_refused_before_the_run(monkeypatch, run):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    result = run("bench", "--plot", "bench.png")
    assert result.exit_code == ExitCode.USAGE
    assert "pip install 'h2o-pack[plot]'" in result.stderr


def test_every_part_measures_on_a_tiny_layer():
    steps = measure_steps(CACHES, TINY, "float32")
    assert list(steps.timings) == list(BY_NAME)
    assert all(min(each.values) > 0 for each in steps.timings.values())
    assert measure_eviction(TINY, "float32").paper_evicting.samples == TINY.repetitions


def test_the_allocators_counters_see_that_steps_copy_no_cache():
    options = Options(heads=4, kv_heads=2, head_dim=64, capacity=512, quick=True)
    measured = measure_pipelining(options, "float32", "dense")
    rows = 512 * 2 * 128 * 4
    assert measured.cache_bytes > rows
    assert 0 < measured.allocated_bytes < rows
    assert measured.kept_bytes == 0


def test_a_model_generates_with_every_contender_and_routing_is_left_as_it_was(demo):
    measured = measure_model(CACHES, TINY, *demo)
    assert list(measured.timings) == list(BY_NAME)
    assert measured.not_run == {}
    assert (measured.name, measured.layers, measured.dtype) == ("demo", 4, "float32")
    assert measured.prompt_tokens == 160
    assert not routing_installed()


def test_a_model_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match=r'nothing" could not be loaded') as caught:
        load(str(tmp_path / "nothing"))
    assert caught.value.code == ExitCode.MODEL


def test_the_machine_is_described_without_its_name():
    machine = describe()
    assert machine.cores >= 1
    assert machine.instruction_set
    import socket

    assert socket.gethostname() not in repr(machine)
