"""Several models of one package: which of them an app loads on each device."""

from __future__ import annotations

import json

import pytest

from h2o_pack.devices.catalogue import catalogue
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.package.render import megabytes
from h2o_pack.spec import CacheSpec
from tests.bridge.memory.described import model
from tests.bridge.plans import on_devices
from tests.bridge.schemas import check

GB = 10**9
SMALL, LARGE = model("small", weights=GB), model("large", weights=3 * GB)
OLD, NEW, UNKNOWN = "iPhone13,2", "iPhone17,1", "iPhone10,1"
BOTH = ("--model", "Qwen3-0.6B-4bit", "--model", "Qwen3-4B-4bit", "--max-kv", 512)


def of_both(*devices, models=(SMALL, LARGE)):
    return on_devices(models, CacheSpec(max_kv=512), *devices, every=True)


def test_an_app_loads_the_largest_model_that_fits_a_device():
    loaded = {each.identifier: each.model for each in of_both(OLD, NEW).loaded}
    assert loaded == {OLD: "small", NEW: "large"}


def test_the_order_in_which_they_are_given_does_not_matter():
    assert of_both(OLD, NEW, models=(LARGE, SMALL)) == of_both(OLD, NEW)


def test_it_is_the_model_that_the_package_takes_when_it_runs():
    """There the plan without the app is held against the memory that the app leaves free."""
    result = of_both()
    for number, device in enumerate(result.loaded):
        plans = {}
        for report in result.models:
            fit = report.devices[number]
            [plan] = [each for each in report.plans if each.backend == fit.backend]
            plans[report.model] = plan
        limit = fit.entitled.limit
        taken = None
        if limit is not None:
            free = limit / 1e6 - plan.of("app") / 1e6
            taken = next((name for name in plans if megabytes(plans[name]) <= free), None)
        assert device.model == taken
    assert {each.model for each in result.loaded} == {"large", "small", None}


def test_where_nothing_fits_or_nobody_knows_no_model_is_named():
    unknown = [each.identifier for each in catalogue().all_devices() if each.limit is None]
    huge = model("huge", weights=90 * GB), model("larger", weights=91 * GB)
    result = of_both(OLD, unknown[0], models=huge)
    assert [(each.model, each.verdict) for each in result.loaded] == [
        (None, "does not fit"),
        *[(None, "unknown")] * (len(result.loaded) - 1),
    ]


def test_the_app_holds_all_of_them():
    result = of_both(NEW)
    assert result.size.models == sum(each.size.models for each in result.models)


def test_the_command_shows_it_to_people_and_machines(run):
    devices = ("--device", "iPhone 12", "--device", "iPhone 16 Pro")
    document = check(json.loads(run("plan", *BOTH, *devices, "--json").stdout), "plan")
    small, large = "mlx-community/Qwen3-0.6B-4bit", "mlx-community/Qwen3-4B-4bit"
    assert [each["model"] for each in document["models"]] == [large, small]
    assert [each["model"] for each in document["loaded"]] == [small, large]
    shown = [each.split() for each in run("plan", *BOTH, *devices).stdout.splitlines()]
    loads = [each[-3] for each in shown if each[0] in ("4", "8")]
    assert loads == ["Qwen3-0.6B-4bit", "Qwen3-4B-4bit"]


@pytest.mark.parametrize("option", [("--revision", "v1"), ("--measured", "seen.json")])
def test_options_of_one_model_are_refused(run, tmp_path, option):
    (tmp_path / "seen.json").write_text("{}")
    flag, value = option
    made = run("plan", *BOTH, flag, tmp_path / value if value.endswith("json") else value)
    assert made.exit_code == ExitCode.USAGE
    assert f"{flag} is for a package with one model, and 2 are given" in made.stderr


def test_budgets_are_refused(run, tmp_path):
    path = tmp_path / "budgets.json"
    path.write_text('{"format": 1, "layers": [null]}')
    made = run("plan", *BOTH, "--budgets", path)
    assert made.exit_code == ExitCode.USAGE
    assert "--budgets is for a package with one model" in made.stderr


def test_a_model_given_twice_is_refused():
    with pytest.raises(UserError, match="small is given twice"):
        of_both(NEW, models=(SMALL, SMALL))
