"""What `plan` and `devices` show people and machines."""

import json
import warnings

import pytest

from h2o_pack.devices.catalogue import catalogue, named_devices
from h2o_pack.errors import ExitCode
from h2o_pack.package.render import megabytes
from h2o_pack.plan import device_fit
from h2o_pack.plan.device_fit import PlanResult
from h2o_pack.plan.plan_tables import groups, sums, together, write_page
from h2o_pack.plan.workload import workload_of
from h2o_pack.spec import CacheSpec, DevicesSpec
from tests.bridge import schemas
from tests.bridge.measurements import MEASURED, machine, run_after
from tests.bridge.memory.described import model
from tests.bridge.plans import on_devices
from tests.bridge.schemas import check
from tests.nightly import nightly_except

DEMO_PLAN = ("plan", "--model", "demo", "--max-kv", "256")


def planned(run, *arguments):
    result = run(*DEMO_PLAN, *arguments, "--json")
    assert result.exit_code == 0, result.output
    [model] = check(json.loads(result.stdout), "plan")["models"]
    return model


@pytest.mark.parametrize("kv", ["mixed", "recent=16,heavy=8", "heavy=8,recent=16"])
def test_a_storage_is_written_with_one_name(run, kv):
    assert planned(run, "--kv", kv)["kv"] == "heavy=8,recent=16"


def test_a_plan_as_json_has_every_term_and_device(run):
    document = planned(run, "--context", 1000, "--kv", "mixed")
    assert (document["max_kv"], document["context"]) == (256, 1000)
    assert [plan["backend"] for plan in document["plans"]] == ["iphone", "ipad"]
    assert 20 < len(document["devices"]) < 40
    assert {row["entitled"]["verdict"] for row in document["devices"]} == {"fits", "unknown"}


def test_devices_are_chosen_by_name_or_all(run):
    document = planned(run, "--device", "iPhone 16 Pro", "--device", "iPad16,3")
    assert [row["identifier"] for row in document["devices"]] == [
        "iPhone17,1", "iPad16,3", "iPad16,3",
    ]  # fmt: skip
    assert len(planned(run, "--all")["devices"]) > 85


def test_without_max_kv_the_models_own_cache_is_planned(run):
    options = ("plan", "--model", "demo", "--device", "iPhone 15", "--json")
    [document] = check(json.loads(run(*options).stdout), "plan")["models"]
    assert document["max_kv"] is None
    assert document["evicting_layers"] == 0
    [few_bits] = json.loads(run(*options, "--kv", 8).stdout)["models"]
    assert (few_bits["max_kv"], few_bits["evicting_layers"], few_bits["kv"]) == (None, 0, "8")
    for plan, plain in zip(few_bits["plans"], document["plans"], strict=True):
        assert plan["total"] < plain["total"]


def test_what_the_cache_warns_of_is_a_note_and_no_warning_of_python(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run("plan", "--model", "demo", "--max-kv", 64, "--device", "iPhone 15")
    assert result.exit_code == 0, result.stderr
    assert "fewer than 64 of the newest tokens" in result.stdout


def test_a_page_that_cannot_be_written_is_an_error_of_the_output(run, tmp_path):
    (tmp_path / "file").write_text("")
    result = run(*DEMO_PLAN, "--html", tmp_path / "file" / "page.html")
    assert result.exit_code == ExitCode.OUTPUT
    assert "the page cannot be written" in result.stderr


def test_devices_are_listed_once_and_marked_where_nobody_measured_them(run):
    rows = [line.split("  ") for line in run("devices").stdout.splitlines()[2:-3]]
    names = [row[0] for row in rows]
    assert len(names) == len(set(names)) < 60
    figures = {row[0]: [cell.strip() for cell in row if cell.strip()][3:5] for row in rows}
    assert figures["iPhone 13 Pro"] == ["2.87*", "4.20"]
    assert figures["iPad (10th generation)"] == ["~2.10", "~2.10"]
    assert "iPhone14,2" not in run("devices").stdout
    for arguments in (["--all"], ["iphone 13 pro"]):
        assert "iPhone14,2" in run("devices", *arguments).stdout


def test_devices_as_json_and_for_people(run):
    document = check(json.loads(run("devices", "--json").stdout), "devices")
    assert len(document["devices"]) > 85
    output = run("devices", "iphone 15 pro").stdout
    assert "iPhone16,1" in output
    assert "Harbeth issue 33" in " ".join(output.replace("│", " ").split())
    assert run("devices", "Nokia").exit_code == ExitCode.USAGE


PLAN = ("plan", "--model", "Qwen3-4B-4bit", "--max-kv", 512)
LINES, COLUMNS = 40, 80


@pytest.fixture(scope="module")
def plan() -> PlanResult:
    devices = ("iPhone 12", "iPhone 15", "iPhone 15 Plus", "iPhone 16 Pro", "iPad14,8")
    return on_devices(
        model('Qwen3 <4B> & "more"', context=4096), CacheSpec(max_kv=512), *devices
    )


@pytest.fixture
def screen(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    return lambda *options: run(*PLAN, *options).stdout.splitlines()


def test_it_fits_one_screen_and_begins_with_the_verdict(screen):
    lines = screen()
    assert lines[0] == "Qwen3-4B-4bit fits on 20 of 27 devices; smallest: iPad (A16)"
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS


def test_several_models_on_all_devices_fit_a_screen_that_says_which_is_loaded(screen):
    small = "Qwen3-0.6B-4bit"
    lines = screen("--model", small, "--all")
    verdict = " ".join(" ".join(lines[:2]).split())
    assert verdict.endswith(" of 95 devices; smallest: iPad Air (4th generation)")
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    for name in ("Qwen3-4B-4bit", small):
        assert [line for line in lines if line.endswith(tuple("0123456789")) and name in line]


def test_of_one_device_the_verdict_names_it(screen):
    assert screen("--device", "iPhone 15 Pro")[0] == "Qwen3-4B-4bit fits on iPhone 15 Pro"
    assert screen("--device", "iPhone 12")[0] == "Qwen3-4B-4bit does not fit on iPhone 12"


def test_the_rest_is_shown_with_verbose(screen):
    assert not [line for line in screen() if "page rounding" in line]
    lines = screen("--verbose")
    assert [line for line in lines if "page rounding" in line]
    assert [line for line in lines if "Stack Overflow" in line]
    assert max(map(len, lines)) <= COLUMNS


def test_the_sums_are_all_of_the_plan(plan):
    for model_plan in plan.models[0].plans:
        *parts, total = sums(model_plan).values()
        assert sum(parts) == total == model_plan.total


def test_devices_of_a_group_have_one_memory_limit_and_need(plan):
    device_groups, devices = groups(plan), plan.models[0].devices
    assert sorted(place for group in device_groups for place in group.places) == [
        *range(len(devices))
    ]
    kinds = [
        {(devices[i].ram, devices[i].needed, devices[i].entitled.limit) for i in group.places}
        for group in device_groups
    ]
    assert all(len(kind) == 1 for kind in kinds)
    assert len({kind.pop() for kind in kinds}) == len(device_groups) < len(devices)


def test_names_leave_out_what_they_share_and_what_does_not_fit_the_line():
    assert together(["iPhone 15", "iPhone 16", "iPad (A16)"]) == "iPhone 15, 16, iPad (A16)"
    assert together(["iPad Pro 11-inch (M1), 1-2 TB"] * 2) == "iPad Pro 11-inch (M1), 1-2 TB"
    assert together([f"iPhone {number}" for number in range(99)]).endswith(" more")


def full_cache(context: int, *devices: str):
    workload = workload_of(model(), CacheSpec(max_kv=512, context=context))
    return device_fit.full_cache(workload, named_devices(DevicesSpec(devices)))


def test_a_cache_that_keeps_every_token_is_named_where_it_fits(screen):
    phone, room = "iPhone 16 Pro", "iPhone 12 Pro"
    assert full_cache(8192, phone).kv == "16"
    by_tokens = {5120: "8", 16384: "k8v4", 20480: "4"}
    assert {tokens: full_cache(tokens, room).kv for tokens in by_tokens} == by_tokens
    assert full_cache(40960, room) is None
    assert full_cache(512, phone) is None
    assert full_cache(4096, "iPhone 12", room, phone).devices == ("iPhone13,3", "iPhone17,1")
    cases = ((phone, 8192, "16"), (room, 5120, "8"), (room, 20480, "4"))
    for name, tokens, kv in cases:
        line = screen("--context", tokens, "--device", name)[1]
        all_tokens = f"all {tokens:,} tokens fit, so nothing is forgotten"
        assert line == f"{all_tokens}: no --max-kv, --kv {kv}"


def test_of_the_models_own_cache_too_it_is_named_where_that_does_not_fit(run):
    room = ("--device", "iPhone 12 Pro", "--model", "Qwen3-4B-4bit")
    assert "nothing is forgotten" not in run("plan", *room, "--context", 4096).stdout
    output = run("plan", *room, "--context", 5120).stdout.splitlines()[1]
    assert output == "all 5,120 tokens fit, so nothing is forgotten: --kv 8"


def test_a_page_has_all_of_it_and_needs_nothing_else(plan, tmp_path):
    write_page(plan, tmp_path / "pages" / "plan.html")
    text = (tmp_path / "pages" / "plan.html").read_text("utf-8")
    assert "Qwen3 &lt;4B&gt; &amp; &quot;more&quot;" in text
    assert "page rounding" in text
    assert not [tag for tag in ("<script", "<link", "<img", "http", "url(") if tag in text]


@pytest.fixture
def measured(tmp_path):
    """Write measurements, as the app does, with changes; return the file."""

    def write(text: str | None = None, **changes):
        path = tmp_path / "measurements.json"
        path.write_text(text or json.dumps(MEASURED | changes))
        return path

    return write


def comparison(run, path, *options):
    document = json.loads(run(*PLAN, "--measured", path, *options, "--json").stdout)
    return schemas.check(document, "plan")["models"][0]


def test_planned_and_measured_values_stand_side_by_side(run, measured):
    schemas.check(MEASURED, "bench")
    model = comparison(run, measured())
    assert model["devices"][0]["identifier"] == "iPhone16,1"
    result = model["measured"]
    values = {value["name"]: value for value in result["values"]}
    assert values["weights"]["ratio"] == 1.0
    plan = run(*PLAN, "--context", 4160, "--device", "iPhone16,1", "--json").stdout
    at_end = json.loads(plan)["models"][0]["plans"][0]
    assert result["context"] == 4160
    assert values["total"]["planned"] == at_end["total"]
    assert values["MLX"]["planned"] == at_end["mlx"]
    assert values["total"]["ratio"] == pytest.approx(3e9 / at_end["total"], abs=1e-4)
    first, later = values["generates at once"], values["generates after 4,096 tokens"]
    assert (first["measured"], later["measured"]) == (20.0, 10.0)
    assert first["planned"] > later["planned"] > 0
    assert values["reads 4,096 tokens"] == {
        "name": "reads 4,096 tokens",
        "unit": "tokens per second",
        "planned": None,
        "measured": 300.0,
        "ratio": None,
    }
    assert result["margin"] == 0


def test_people_see_planned_measured_and_their_ratio(run, measured):
    lines = run(*PLAN, "--measured", measured()).stdout.splitlines()
    [total] = [line.replace("\u2502", "").split() for line in lines if " total " in line]
    assert total[0] == "total"
    assert total[3:5] == ["3,000.0", "MB"]
    assert total[5].endswith("%")
    assert "measured on iPhone16,1 Version 26.1" in "\n".join(lines)
    assert "After three minutes, it was fair." in " ".join("\n".join(lines).split())


def test_measurements_of_a_tablet_are_compared_with_its_own_plan(run, measured):
    path = measured(machine=machine("iPad14,8"))
    model = comparison(run, path, "--device", "iPhone 15", "--context", 4160)
    plans = {plan["backend"]: plan["total"] for plan in model["plans"]}
    assert model["measured"]["backend"] == "ipad"
    [total] = [v for v in model["measured"]["values"] if v["name"] == "total"]
    assert total["planned"] == plans["ipad"]


def test_bytes_of_several_kinds_of_caches_at_once_are_not_the_planned_cache_s(run, measured):
    caches = [run_after(640, 10.0), run_after(640, 10.0, name="8")]
    values = comparison(run, measured(caches=caches))["measured"]["values"]
    assert "total" not in [value["name"] for value in values]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": "tokens: 5"}, "is not JSON"),
        ({"text": '{"tokens": NaN}'}, "is not JSON"),
        ({"format": 2}, "is not a file of measurements"),
        ({"text": '{"format": 1, "device": "iPhone16,1"}'}, "is not a file of measurements"),
        ({"footprint_bytes": "3 GB"}, "Expected `int | null`, got `str`"),
        ({"footprint_bytes": -1}, "Expected `int` >= 0"),
        ({"caches": [run_after(1, 20.0, tokens_per_second=0)]}, "Expected `float` > 0"),
        ({"machine": machine("iPhone99,9")}, 'no device is called "iPhone99,9"'),
        ({"machine": machine("")}, "the measurements name no device"),
        ({"model": "Qwen3-8B-4bit"}, "are of the model Qwen3-8B-4bit, not of Qwen3-4B-4bit"),
        ({"max_kv": 256}, "are of max_kv 256, not of max_kv 512"),
        ({"max_kv": None}, "are of caches of every token, not of max_kv 512"),
        ({"prefill_step": 256}, "Give --prefill-step 256"),
        ({"caches": [run_after(1, 20.0, name="8")]}, "are of 8, not of 16+recall"),
        ({"caches": []}, "are of nothing, not of 16+recall"),
        ({"caches": [run_after(10**9, 20.0)]}, "The model can attend to 40960 tokens"),
    ],
)
def test_measurements_of_something_else_are_refused(run, measured, changes, message):
    result = run(*PLAN, "--measured", measured(**changes))
    assert result.exit_code == ExitCode.USAGE, result.output
    assert message in " ".join(result.stderr.split())


# Several models


GB = 10**9
SMALL = model("small", weights=GB, context=4096)
LARGE = model("large", weights=3 * GB, context=4096)
OLD, NEW, UNKNOWN, TABLET = "iPhone13,2", "iPhone17,1", "iPhone19,4", "iPad14,8"
BOTH = ("--model", "Qwen3-0.6B-4bit", "--model", "Qwen3-4B-4bit", "--max-kv", 512)


def of_both(*devices, models=(SMALL, LARGE)):
    return on_devices(models, CacheSpec(max_kv=512), *devices, every=True)


def test_an_app_loads_the_largest_model_that_fits_a_device():
    models = {device.identifier: device.model for device in of_both(OLD, NEW).loaded}
    assert models == {OLD: "small", NEW: "large"}


def test_the_order_in_which_they_are_given_does_not_matter():
    assert of_both(OLD, NEW, models=(LARGE, SMALL)) == of_both(OLD, NEW)


@pytest.mark.parametrize("devices", nightly_except(["some"], ["some", "all"]))
def test_it_is_the_model_that_the_package_takes_when_it_runs(devices):
    """There the plan without the app is held against the memory that the app leaves free."""
    result = of_both(*((OLD, NEW, UNKNOWN, TABLET) if devices == "some" else ()))
    for number, device in enumerate(result.loaded):
        plans = {}
        for report in result.models:
            fit = report.devices[number]
            [plan] = [
                model_plan for model_plan in report.plans if model_plan.backend == fit.backend
            ]
            plans[report.model] = plan
        limit = fit.entitled.limit
        name_taken = None
        if limit is not None:
            free = limit / 1e6 - plan.of("app") / 1e6
            name_taken = next((name for name in plans if megabytes(plans[name]) <= free), None)
        assert device.model == name_taken
    assert {device.model for device in result.loaded} == {"large", "small", None}


def test_where_nothing_fits_or_nobody_knows_no_model_is_named():
    unknown = [
        device.identifier for device in catalogue().all_devices() if device.limit is None
    ]
    huge = [model(f"huge {size}", weights=size * GB, context=4096) for size in (90, 91)]
    result = of_both(OLD, unknown[0], models=huge)
    assert [(device.model, device.verdict) for device in result.loaded] == [
        (None, "does not fit"),
        *[(None, "unknown")] * (len(result.loaded) - 1),
    ]


def test_the_app_holds_all_of_them():
    result = of_both(NEW)
    assert result.size.models == sum(model.size.models for model in result.models)


def test_the_command_prints_it_as_json(run):
    devices = ("--device", "iPhone 12", "--device", "iPhone 16 Pro")
    document = check(json.loads(run("plan", *BOTH, *devices, "--json").stdout), "plan")
    small, large = "mlx-community/Qwen3-0.6B-4bit", "mlx-community/Qwen3-4B-4bit"
    assert [model["model"] for model in document["models"]] == [large, small]
    assert [device["model"] for device in document["loaded"]] == [small, large]


def test_measurements_are_of_one_model(run, measured):
    result = run("plan", *BOTH, "--measured", measured())
    assert result.exit_code == ExitCode.USAGE
    assert "--measured is only for a package with one model, but 2 are given" in result.stderr
