"""No exit code and no key of --json depends on the words of a message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import h2o_py.errors
from h2o_pack.cli import main
from h2o_pack.measure import models
from h2o_pack.measure.profiling import run
from h2o_py import H2OConfig, config
from h2o_py import __main__ as commands
from h2o_py.policy_fields import Wording

CACHE = ["--model", "demo", "--max-kv"]
BUDGETS = ["--model", "demo", "--max-kv", "256", "--budgets", "budgets.json"]
REFUSED = {
    "too few rows": [*CACHE, "3"],
    "budgets too large": [*CACHE, "64", "--heavy-budget", "40", "--recent-budget", "40"],
    "nothing to evict": [*CACHE, "64", "--pin", "0:60"],
    "a negative setting": [*CACHE, "64", "--novelty", "-1"],
    "a decay above 1": [*CACHE, "64", "--decay", "2"],
    "no window": [*CACHE, "64", "--observation-window", "0"],
    "no budgets": BUDGETS,
}
FILES = {
    "not JSON": "{",
    "another document": "[]",
    "another format": '{"format": 9, "layers": []}',
    "no list": '{"format": 1, "layers": {}}',
    "no budget": '{"format": 1, "layers": [3, null, null, null]}',
    "a negative budget": '{"format": 1, "layers": [{"heavy_budget": -1, "recent_budget": 9}]}',
    "another model's": '{"format": 1, "layers": [null]}',
    "too large for a layer": '{"format": 1, "layers": [{"heavy_budget": 300, "recent_budget": '
    "300}, null, null, null]}",
}
ACCEPTED = {"few recent tokens": [*CACHE, "64", "--dry-run"]}
PROFILE = Path(__file__).parents[2] / "docs/results/profile/profile.json"
EVAL = ("eval", "--preset", "tiny", "--lengths", "80", "--samples", "1", "--contenders")
MEASURING = [
    (*EVAL, "default", "--max-kv", "3"),
    (*EVAL, "tuned_by_layer", "--max-kv", "40", "--layer-budgets", "budgets.json"),
    ("budgets", "--profile", str(PROFILE), "--max-kv", "3"),
    ("bench", "--model", "refused"),
    ("profile", "--model", "refused"),
]
GENERATING = [
    ("--h2o-max-size", "3"),
    ("--h2o-max-size", "64", "--h2o-decay", "2"),
    ("--h2o-max-size", "256", "--h2o-budgets", "budgets.json"),
]


def outcome(*arguments):
    """The exit code and the shape of what is printed as JSON."""
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert "Traceback" not in result.output
    return result.exit_code, shape(json.loads(result.stdout))


def shape(value):
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return value if isinstance(value, bool | int) else type(value).__name__


def outcomes(folder):
    found = {name: outcome("ios", *arguments) for name, arguments in REFUSED.items()}
    found["plan"] = outcome("plan", *CACHE, "3")
    for name, text in FILES.items():
        (folder / "budgets.json").write_text(text)
        found[f"ios: {name}"] = outcome("ios", *BUDGETS)
        found[f"plan: {name}"] = outcome("plan", *BUDGETS)
    (folder / "budgets.json").write_text("{")
    found |= {" ".join(each): outcome(*each) for each in MEASURING}
    for arguments in GENERATING:
        with pytest.raises(SystemExit) as ended:
            commands.main(["generate", "--model", "refused", *arguments])
        found[" ".join(arguments)] = (ended.value.code, None)
    return found | {name: outcome("ios", *arguments) for name, arguments in ACCEPTED.items()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder with a model that h2o_py refuses when it is loaded to be measured."""
    (tmp_path / "refused").mkdir()
    load = models.load
    for place in (models, run):
        monkeypatch.setattr(
            place, "load", lambda name: H2OConfig(3) if name == "refused" else load(name)
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_other_words_change_no_exit_code_and_no_structure(folder, monkeypatch):
    before = outcomes(folder)
    (folder / "budgets.json").unlink()
    garbled = {
        code: Wording("xyzzy. model = --recent-budget", "plugh", w.field)
        for code, w in h2o_py.errors.WORDING.items()
    }
    monkeypatch.setattr(h2o_py.errors, "WORDING", garbled)
    monkeypatch.setattr(config, "ALLOWED", dict.fromkeys(config.ALLOWED, "xyzzy"))
    monkeypatch.setattr(h2o_py.errors.H2OError, "__str__", lambda self: "model = xyzzy. plugh")
    monkeypatch.setattr(
        h2o_py.errors.H2OConfigWarning, "__str__", lambda self: "model = xyzzy. plugh"
    )
    assert outcomes(folder) == before
    assert {code for code, _ in before.values()} == {0, 2}
    said = CliRunner().invoke(main, ["ios", *REFUSED["too few rows"]]).output
    assert "xyzzy" in said
