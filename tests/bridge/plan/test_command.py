"""What `plan` and `devices` show people and machines."""

import json
import warnings

import pytest

from h2o_pack.devices.catalogue import catalogue
from h2o_pack.errors import ExitCode
from h2o_pack.package.render import megabytes
from h2o_pack.plan.device_fit import PlanResult
from h2o_pack.plan.plan_tables import groups, sums, together, write_page
from h2o_pack.spec import CacheSpec
from tests.bridge import schemas
from tests.bridge.memory.described import model
from tests.bridge.plans import on_devices
from tests.bridge.schemas import check

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
    result = run("plan", "--model", "demo", "--json")
    [document] = check(json.loads(result.stdout), "plan")["models"]
    assert document["max_kv"] is None
    assert document["evicting_layers"] == 0
    [few_bits] = json.loads(run("plan", "--model", "demo", "--kv", 8, "--json").stdout)[
        "models"
    ]
    assert (few_bits["max_kv"], few_bits["evicting_layers"], few_bits["kv"]) == (None, 0, "8")
    for plan, plain in zip(few_bits["plans"], document["plans"], strict=True):
        assert plan["total"] < plain["total"]


def test_what_only_a_bound_has_needs_max_kv(run):
    options = (
        ("--kv", "mixed"),
        ("--sink-size", 8),
        ("--policy", "paper"),
        ("--archive", "files"),
    )
    for option in options:
        for command in (("plan",), ("ios", "--dry-run"), ("chat",)):
            result = run(*command, "--model", "demo", *option)
            assert result.exit_code == ExitCode.USAGE
            assert f"{option[0]}" in result.stderr
            assert "only for caches that evict" in result.stderr


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
    return on_devices(model('Qwen3 <4B> & "more"'), CacheSpec(max_kv=512))


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
    models = ("Llama-3.2-1B-Instruct-4bit", "Qwen3-8B-4bit")
    lines = screen(*(word for name in models for word in ("--model", name)), "--all")
    verdict = " ".join(" ".join(lines[:2]).split())
    assert verdict.endswith(" of 95 devices; smallest: iPad Air (4th generation)")
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    for name in ("Qwen3-4B-4bit", *models):
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
    cache = CacheSpec(max_kv=512, context=context)
    return on_devices(model(), cache, *devices).models[0].full_cache


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
def reported(tmp_path):
    def write(*terms, **fields):
        path = tmp_path / "report.json"
        entries = [{"name": name, "bytes": count} for name, count in terms]
        document = {"format": 1, "device": "iPhone16,1", "terms": entries, **fields}
        path.write_text(json.dumps(document))
        return path

    return write


def test_planned_and_seen_stand_side_by_side_in_the_plan_s_order(run, reported):
    path = reported(("total", 3_000_000_000), ("weights", 2_262_920_192), system="iOS 26.1")
    document = json.loads(run(*PLAN, "--measured", path, "--json").stdout)
    [document] = schemas.check(document, "plan")["models"]
    weights, total = document["measured"]["terms"]
    assert (weights["name"], weights["seen"], weights["share"]) == (
        "weights",
        2_262_920_192,
        1.0,
    )
    assert total["planned"] == document["plans"][0]["total"]
    assert total["share"] == pytest.approx(3e9 / total["planned"], abs=1e-4)
    assert document["devices"][0]["identifier"] == "iPhone16,1"


def test_a_report_of_a_tablet_is_held_against_its_own_plan(run, reported):
    path = reported(("total", 1), device="iPad14,8")
    output = run(*PLAN, "--measured", path, "--device", "iPhone 15", "--json").stdout
    [document] = json.loads(output)["models"]
    plans = {model_plan["backend"]: model_plan["total"] for model_plan in document["plans"]}
    assert document["measured"]["backend"] == "ipad"
    assert document["measured"]["terms"][0]["planned"] == plans["ipad"]


@pytest.mark.parametrize(
    ("terms", "fields", "message"),
    [
        ([("weigths", 1)], {}, 'Did you mean "weights"'),
        ([("app", 1), ("app", 2)], {}, "occurs twice"),
        ([], {}, "is not a report"),
        ([("app", -1)], {}, "is not a report"),
        ([("app", 1)], {"device": "iPhone99,9"}, 'no device is called "iPhone99,9"'),
    ],
)
def test_a_report_with_a_mistake_is_refused(run, reported, terms, fields, message):
    result = run(*PLAN, "--measured", reported(*terms, **fields))
    assert result.exit_code == ExitCode.USAGE
    assert message in result.stderr


# Several models


GB = 10**9
SMALL, LARGE = model("small", weights=GB), model("large", weights=3 * GB)
OLD, NEW = "iPhone13,2", "iPhone17,1"
BOTH = ("--model", "Qwen3-0.6B-4bit", "--model", "Qwen3-4B-4bit", "--max-kv", 512)


def of_both(*devices, models=(SMALL, LARGE)):
    return on_devices(models, CacheSpec(max_kv=512), *devices, every=True)


def test_an_app_loads_the_largest_model_that_fits_a_device():
    models = {device.identifier: device.model for device in of_both(OLD, NEW).loaded}
    assert models == {OLD: "small", NEW: "large"}


def test_the_order_in_which_they_are_given_does_not_matter():
    assert of_both(OLD, NEW, models=(LARGE, SMALL)) == of_both(OLD, NEW)


def test_it_is_the_model_that_the_package_takes_when_it_runs():
    """There the plan without the app is held against the memory that the app leaves free."""
    result = of_both()
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
    huge = model("huge", weights=90 * GB), model("larger", weights=91 * GB)
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


def test_a_report_of_a_device_is_for_one_model(run, reported):
    result = run("plan", *BOTH, "--measured", reported(("app", 1)))
    assert result.exit_code == ExitCode.USAGE
    assert "--measured is only for a package with one model, but 2 are given" in result.stderr
