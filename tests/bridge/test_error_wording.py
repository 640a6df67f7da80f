"""No exit code and no key of --json depends on the words of a message."""

import json
import shlex

import pytest
from click.testing import CliRunner

import h2o_py.errors
from h2o_pack.cli import main
from h2o_pack.measure import models
from h2o_pack.measure.profiling import profiler
from h2o_py import H2OConfig, config
from h2o_py import __main__ as commands
from h2o_py.policy_fields import Wording
from tests.bridge.measure import profiles
from tests.bridge.refused_calls import BUDGETS, CALLS, IOS

WITH_BUDGETS = "--model demo --max-kv 256 --budgets budgets.json"
EVAL = "eval --model demo --preset text --lengths 80 --samples 1 --contenders"
MEASURING = (
    f"{EVAL} default --max-kv 3",
    f"{EVAL} default+budgets --max-kv 40 --layer-budgets budgets.json",
    "profile --profile profile.json --max-kv 3 --budgets made.json",
    "bench --model refused",
    "profile --model refused",
)
GENERATING = (
    "--max-kv 3",
    "--max-kv 64 --recall-reach 2",
    "--max-kv 256 --budgets budgets.json",
)


def outcome(call):
    """The exit code and the shape of what is printed as JSON."""
    result = CliRunner().invoke(main, [*shlex.split(call), "--json"])
    assert "Traceback" not in result.output
    return result.exit_code, shape(json.loads(result.stdout))


def shape(value):
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items()}
    if isinstance(value, list):
        return [shape(part) for part in value]
    return value if isinstance(value, bool | int) else type(value).__name__


def outcomes(folder):
    calls = [call for call in CALLS if call.startswith(IOS)]
    calls += [f"{IOS} 64 --dry-run", f"plan {WITH_BUDGETS}"]
    by_call = {call: outcome(call) for call in calls}
    for text in BUDGETS:
        (folder / "budgets.json").write_text(text)
        by_call[text] = outcome(f"ios {WITH_BUDGETS}")
    (folder / "budgets.json").write_text("{")
    for arguments in GENERATING:
        with pytest.raises(SystemExit) as exit_error:
            commands.main(["generate", "--model", "refused", *arguments.split()])
        by_call[arguments] = (exit_error.value.code, None)
    return by_call | {call: outcome(call) for call in MEASURING}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder with a model that h2o_py refuses when it is loaded to be measured."""
    (tmp_path / "refused").mkdir()
    load = models.load
    for place in (models, profiler):
        monkeypatch.setattr(
            place, "load", lambda name: H2OConfig(3) if name == "refused" else load(name)
        )
    (tmp_path / "profile.json").write_text(profiles.made_up(), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_other_words_change_no_exit_code_and_no_structure(folder, monkeypatch):
    before = outcomes(folder)
    (folder / "budgets.json").unlink()
    garbled = {
        code: Wording("xyzzy. model = --recent-budget", "plugh", wording.field)
        for code, wording in h2o_py.errors.WORDING.items()
    }
    monkeypatch.setattr(h2o_py.errors, "WORDING", garbled)
    monkeypatch.setattr(config, "ALLOWED", dict.fromkeys(config.ALLOWED, "xyzzy"))
    for kind in (h2o_py.errors.H2OError, h2o_py.errors.H2OConfigWarning):
        monkeypatch.setattr(kind, "__str__", lambda self: "model = xyzzy. plugh")
    assert outcomes(folder) == before
    assert {code for code, _ in before.values()} == {0, 2}
    assert (
        "xyzzy" in CliRunner().invoke(main, ["ios", "--model", "demo", "--max-kv", "3"]).output
    )
