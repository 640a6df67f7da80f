"""Settings of a cache in a TOML file."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.plan.policy import RECALL, SETTINGS, read_policy, schema, show
from h2o_py.config import POLICIES
from h2o_py.policy_fields import NAMED_POLICIES

NAMES = [named_policy.name for named_policy in NAMED_POLICIES]
WHOLE = """
policy = "paper"
sink_size = 8
pinned = [[0, 16], [32, 40]]
prefill_step = 128
budgets = "own.json"

[recall]
every = 4
archive = "files"
"""


@pytest.fixture
def write_policy(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "policy.toml"
        path.write_text(text)
        return path

    return write


def config_of(run, *arguments):
    """The cache that `ios` would make of the demo model."""
    result = run("ios", "--model", "demo", "--max-kv", 256, *arguments, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    [model] = json.loads(result.stdout)["models"]
    return model["config"]


def test_a_file_gives_options_by_their_names(write_policy):
    path = write_policy(WHOLE)
    assert read_policy(path) == {
        "policy": "paper",
        "settings": {"sink_size": 8, "pinned": ((0, 16), (32, 40))},
        "prefill_step": 128,
        "budgets": path.parent / "own.json",
        "recall": True,
        "recall_every": 4,
        "archive": "files",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_that_is_shown_is_a_file_that_says_the_same(run, write_policy, name):
    path = write_policy(run("policy", "show", name).stdout)
    assert config_of(run, "--policy", path) == config_of(run, "--policy", name)
    settings = read_policy(path)["settings"]
    assert POLICIES[name](256, **settings) == POLICIES[name](256)


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_that_is_shown_names_every_setting_and_fits_80_columns(name):
    text = show(name).text
    for key in (*SETTINGS, *RECALL):
        assert f"{key} =" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_file_s_settings_hold_and_the_command_line_goes_before_them(run, write_policy):
    path = write_policy('policy = "tuned"\nsink_size = 8\nnovelty = 1.0\n[recall]\nevery = 4\n')
    config = config_of(run, "--policy", path, "--sink-size", 6)
    assert (config["sink_size"], config["novelty"], config["decay"]) == (6, 1.0, 0.97)
    assert config["recall"]["every"] == 4
    assert config_of(run, "--policy", path, "--no-recall")["recall"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("decay = 0.5\nsink = 4", r"unknown key \"sink\" \(.*:2\)"),
        ('policy = "tune"', "is not one of standard, tuned, paper"),
        ("decay = 2.0", "between 0 and 1"),
        ('score = "mean"', "mean"),
        ("prefill_step = true", "a number of tokens"),
        ("recall = 4", "must be a table"),
        ("[recall]\nrow = 4", r"unknown key \"row\" \(.*:2\)"),
        ('[recall]\narchive = "disk"', "memory, files"),
        ("sink_size =", "is not TOML"),
    ],
)
def test_a_mistake_is_refused_with_the_file(write_policy, text, message):
    path = write_policy(text)
    with pytest.raises(UserError, match=message) as error:
        read_policy(path)
    assert str(path) in str(error.value)
    assert error.value.code == ExitCode.USAGE


def test_the_schema_takes_what_is_read_and_refuses_what_is_not(write_policy):
    validator = jsonschema.Draft202012Validator(schema())
    assert validator.is_valid(msgspec.toml.decode(WHOLE))
    for name in NAMES:
        assert validator.is_valid(msgspec.toml.decode(show(name).text))
    for text in ("sink = 4", "decay = 2.0", "[recall]\nrow = 4"):
        assert not validator.is_valid(msgspec.toml.decode(text))


def test_what_is_neither_a_policy_nor_a_file_is_refused(run, tmp_path):
    result = run("ios", "--model", "demo", "--max-kv", 64, "--policy", "tune")
    assert result.exit_code == ExitCode.USAGE
    assert "nor a .toml file" in result.stderr
    missing = run("ios", "--model", "demo", "--max-kv", 64, "--policy", tmp_path / "no.toml")
    assert missing.exit_code == ExitCode.USAGE
    assert "cannot read the file" in missing.stderr


def test_help_shows_what_most_users_change_and_leaves_the_rest_to_the_file(run):
    for command in ("ios", "plan", "choose"):
        text = run(command, "--help").output
        for option in ("--max-kv", "--kv", "--policy", "--recall", "--context"):
            assert f"{option} " in text
        for field in SETTINGS.values():
            assert field.flag not in text


def test_ios_and_plan_share_all_options_of_a_cache(run, tmp_path):
    budgets = tmp_path / "budgets.json"
    own = {"heavy_budget": 40, "recent_budget": 64, "max_size": 128}
    budgets.write_text(json.dumps({"format": 1, "layers": [own, None, None, None]}))
    options = ("--model", "demo", "--max-kv", 256, "--pin", "0:16", "--sink-size", 8, "--kv", 8)
    options += ("--budgets", budgets)
    document = json.loads(run("plan", *options, "--device", "iPhone 15", "--json").stdout)
    result = run("ios", *options, "--device", "iPhone 15", "--dry-run", "--json")
    [model] = json.loads(result.stdout)["models"]
    assert model["memory"] == document["models"][0]["plans"][0]
