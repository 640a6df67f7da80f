from __future__ import annotations

import json
import warnings

import pytest

from h2o_pack.errors import ExitCode
from tests.bridge.schemas import check

PLAN = ("plan", "--model", "demo", "--max-kv", "256")


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("H2O_PACK_DEVICES", raising=False)


def planned(run, *arguments):
    result = run(*PLAN, *arguments, "--json")
    assert result.exit_code == 0, result.output
    [model] = check(json.loads(result.stdout), "plan")["models"]
    return model


def test_a_plan_as_json_has_every_term_and_device(run):
    document = planned(run, "--context", 1000, "--kv", "mixed")
    assert (document["max_kv"], document["kv"], document["context"]) == (256, "r16h8", 1000)
    assert [plan["backend"] for plan in document["plans"]] == ["iphone", "ipad"]
    for plan in document["plans"]:
        assert sum(term["bytes"] for term in plan["terms"]) == plan["total"]
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


def test_rows_by_layer_and_policies_are_planned(run, tmp_path):
    layers = [
        {"heavy_budget": 64, "recent_budget": 60, "max_size": 128},
        {"heavy_budget": 64, "recent_budget": 60, "max_size": 128},
        {"heavy_budget": 128, "recent_budget": 124},
        {"heavy_budget": 256, "recent_budget": 252, "max_size": 512},
    ]
    path = tmp_path / "budgets.json"
    path.write_text(json.dumps({"format": 1, "layers": layers}))
    alike = planned(run, "--kv", "dense", "--policy", "tuned")
    by_layer = planned(run, "--kv", "dense", "--policy", "tuned", "--budgets", path)
    assert (alike["max_kv"], by_layer["max_kv"]) == (256, 256)
    kept = [
        {term["name"]: term["bytes"] for term in document["plans"][0]["terms"]}
        for document in (alike, by_layer)
    ]
    assert kept[0]["keys and values"] == kept[1]["keys and values"]


def test_people_see_terms_devices_and_where_speeds_are_from(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = run(*PLAN, "--device", "iPhone 16 Pro")
    assert result.exit_code == 0, result.output
    parts = ("full caches", "one chunk", "iPhone 16 Pro", "fits", "all", "estimated")
    assert all(said in result.stdout for said in parts)
    assert "iPhone17,1" not in result.stdout


def test_what_the_cache_warns_of_is_a_note_and_no_warning_of_python(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run("plan", "--model", "demo", "--max-kv", 64, "--device", "iPhone 15")
    assert result.exit_code == 0, result.stderr
    assert "fewer than 64 of the newest tokens" in result.stdout


def test_a_page_that_cannot_be_written_is_an_error_of_the_output(run, tmp_path):
    (tmp_path / "file").write_text("")
    result = run(*PLAN, "--html", tmp_path / "file" / "page.html")
    assert result.exit_code == ExitCode.OUTPUT
    assert "the page cannot be written" in result.stderr


def test_devices_as_json_and_for_people(run):
    document = check(json.loads(run("devices", "--json").stdout), "devices")
    assert len(document["devices"]) > 85
    shown = run("devices", "iphone 15 pro").stdout
    assert "iPhone16,1" in shown
    assert "Harbeth issue 33" in " ".join(shown.replace("│", " ").split())
    assert run("devices", "Nokia").exit_code == ExitCode.USAGE
