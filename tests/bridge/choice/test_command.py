"""What `choose`, `plan` and `ios` do with what was left open."""

from __future__ import annotations

import json

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.results import to_json
from tests.bridge import schemas
from tests.bridge.choice.made import measured, table

PHONE = ("--device", "iPhone 15", "--context", "16384")


def test_choose_shows_the_candidates_and_why_each_was_refused(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    made = run("choose", *PHONE)
    assert made.exit_code == 0, made.output
    assert "chosen" in made.stdout
    assert "larger than 4.00 GB" in made.stdout
    assert "app: GB to download; of the chosen one about 2." in made.stdout
    lines = [each for each in made.stdout.splitlines() if not each.startswith("the same:")]
    assert max(map(len, lines)) <= 80
    schemas.check(json.loads(run("choose", *PHONE, "--json").stdout), "choose")


@pytest.mark.parametrize(("tokens", "kv"), [(4096, "dense"), (5120, "8"), (6144, "k8v4")])
def test_that_a_full_cache_fits_and_forgets_nothing_is_said_first(run, tokens, kv):
    asked = ("--device", "iPhone 12 Pro", "--context", str(tokens))
    lines = run("choose", *asked, "--model", "Qwen3-4B-4bit").stdout.splitlines()
    keeps = f"keeps all {tokens:,} tokens (kv {kv}): it forgets nothing"
    assert keeps in " ".join(" ".join(lines[1:3]).split())


def test_plan_plans_what_it_chose(run):
    document = json.loads(run("plan", *PHONE, "--json").stdout)
    schemas.check(document, "plan")
    candidates = document["choice"]["models"]
    (chosen,) = [each for each in candidates if each["refused"] is None]
    [model] = document["models"]
    assert model["max_kv"] == chosen["cache"]["max_kv"]
    assert model["kv"] == chosen["cache"]["kv"]
    assert model["plans"][0]["total"] == chosen["cache"]["needed"]
    assert model["devices"][0]["entitled"]["verdict"] == "fits"


def test_what_plan_chose_fits_a_screen_that_begins_with_the_verdict(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("plan", *PHONE).stdout.splitlines()
    assert lines[0].endswith(" fits on iPhone 15")
    assert len(lines) <= 40
    *shown, flags = lines
    assert flags.startswith("the same: --model ")
    assert max(map(len, shown)) <= 80
    verbose = run("plan", *PHONE, "--verbose").stdout
    assert "larger than 4.00 GB" in verbose
    assert "larger than 4.00 GB" not in "".join(lines)


def test_ios_makes_what_was_chosen_for_a_model(run, tmp_path):
    output = tmp_path / "Demo"
    options = ("--device", "iPhone 15", "--output", output, "--no-vendor", "--json")
    document = json.loads(run("ios", "--model", "demo", *options).stdout)
    [model] = document["models"]
    assert model["kv"] == "dense"
    assert model["config"]["max_size"] == model["choice"]["context"] == 2048
    assert (output / "Package.swift").is_file()


def test_a_table_of_one_s_own_decides(run, tmp_path):
    path = tmp_path / "losses.json"
    path.write_text(to_json(table(measured("4", 1.0, 0.001), measured("4", 0.125, 0.002))))
    document = json.loads(run("choose", *PHONE, "--losses", path, "--json").stdout)
    (chosen,) = [each for each in document["models"] if each["refused"] is None]
    assert (chosen["cache"]["kv"], document["losses_of"]) == ("4", "measured")


def test_where_nothing_fits_choose_still_shows_why_and_ends_with_8(run):
    made = run("choose", *PHONE, "--min-speed", "1000")
    assert made.exit_code == ExitCode.MEMORY
    assert "under 1000" in made.stdout
    refused = run("ios", *PHONE, "--min-speed", "1000")
    assert refused.exit_code == ExitCode.MEMORY
    assert "no model fits for 16,384 tokens on iPhone 15" in refused.stderr


def test_what_is_open_needs_a_device(run):
    for arguments in (["ios"], ["ios", "--model", "demo"], ["plan"], ["choose"]):
        made = run(*arguments)
        assert made.exit_code == ExitCode.USAGE
        assert "--device" in made.stderr


@pytest.mark.parametrize("option", [("--min-speed", "5"), ("--losses", "table.json")])
def test_options_of_a_choice_need_something_to_choose(run, tmp_path, option):
    (tmp_path / "table.json").write_text(to_json(table()))
    given = [tmp_path / each if each.endswith("json") else each for each in option]
    made = run("ios", "--model", "demo", "--max-kv", "64", *given, "--dry-run")
    assert made.exit_code == ExitCode.USAGE
    assert "nothing is left to choose" in made.stderr


def test_no_rows_are_not_the_default(run):
    made = run("plan", "--model", "demo", "--max-kv", "0")
    assert made.exit_code == ExitCode.USAGE
    assert "--max-kv must be between 1 and" in made.stderr
