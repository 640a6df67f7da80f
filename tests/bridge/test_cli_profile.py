"""The `profile` and `budgets` commands: what they print, write and refuse."""

from __future__ import annotations

import json

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.measure.models import loadable
from h2o_py.budgets import load_budgets
from tests.bridge import schemas
from tests.messages import says

LITTLE = ("--tokens", 96, "--samples", 1, "--no-timing")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("import os, sys\nprint(os.getcwd())\n" * 40)
    return path


def test_a_profile_is_written_and_makes_budgets(run, tmp_path, text):
    folder = tmp_path / "profile"
    flags = ("--text", text, "--tokens", 96, "--samples", 1, "--quick", "--output", folder)
    result = run("profile", "--model", "demo", *flags, "--json")
    assert result.exit_code == 0, result.output
    document = schemas.check(json.loads(result.stdout), "profile")
    assert json.loads((folder / "profile.json").read_text()) == document
    assert (document["model"], document["family"]) == ("demo", "qwen3")
    assert [layer["kind"] for layer in document["layers"]] == ["full"] * 4
    assert document["step"]["rows"] == 24
    made = tmp_path / "new/budgets.json"
    source = ("--profile", folder / "profile.json", "--measure", "concentration")
    flags = (*source, "--max-kv", 200, "--output", made)
    result = run("budgets", *flags, "--json")
    assert result.exit_code == 0, result.output
    budgets = schemas.check(json.loads(result.stdout), "budgets")
    assert [each.to_dict() for each in load_budgets(made).layers] == [
        {name: layer[name] for name in ("heavy_budget", "recent_budget")}
        for layer in budgets["layers"]
    ]


def test_people_get_tables(run, text):
    result = run("profile", "--model", "demo", "--text", text, *LITTLE)
    assert result.exit_code == 0, result.output
    assert "How few tokens hold the accumulated attention" in result.output
    assert "no step was timed: not asked for" in result.output


def test_names_become_what_mlx_lm_loads(tmp_path):
    assert loadable("DEMO") == "demo"
    assert loadable("qwen3-4b-4bit") == "mlx-community/Qwen3-4B-4bit"
    assert loadable("some/model") == "some/model"
    assert loadable(str(tmp_path)) == str(tmp_path)


def test_the_help_of_budgets_says_what_was_published(run):
    shown = " ".join(run("budgets", "--help").output.split())
    assert "found no gain: perplexity 7.803 against 7.807" in shown


def test_a_folder_that_cannot_be_written_is_an_error(run, tmp_path, text):
    (tmp_path / "file").write_text("")
    output = tmp_path / "file/folder"
    flags = ("--model", "demo", "--text", text, *LITTLE, "--output", output)
    result = run("profile", *flags)
    assert result.exit_code == ExitCode.OUTPUT, result.output
    says(result.output)
