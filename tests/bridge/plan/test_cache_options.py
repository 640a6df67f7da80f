"""Options of a cache that several commands share."""

import json

from h2o_pack.errors import ExitCode
from h2o_py.policy_fields import FIELDS


def test_a_file_that_is_not_a_policy_is_refused(run, tmp_path):
    for name in ("tune", tmp_path / "policy.toml"):
        result = run("ios", "--model", "demo", "--max-kv", 64, "--policy", name)
        assert result.exit_code == ExitCode.USAGE
        assert "is not one of 'standard', 'paper'" in result.stderr


def test_help_shows_what_most_users_change(run):
    for command in ("ios", "plan"):
        text = run(command, "--help").output
        for option in ("--max-kv", "--kv", "--policy", "--recall", "--context"):
            assert f"{option} " in text
        for field in FIELDS[1:]:
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
