"""What a device reported, beside the plan."""

from __future__ import annotations

import json

import pytest

from h2o_pack.errors import ExitCode
from tests.bridge import schemas

PLAN = ("plan", "--model", "Qwen3-4B-4bit", "--max-kv", 512)


@pytest.fixture
def reported(tmp_path):
    def write(*terms, **fields):
        path = tmp_path / "report.json"
        named = [{"name": name, "bytes": count} for name, count in terms]
        document = {"format": 1, "device": "iPhone16,1", "terms": named, **fields}
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


def test_people_see_by_how_much_the_plan_was_wrong(run, reported):
    made = run(*PLAN, "--measured", reported(("app", 2 * 125_829_120), ("MLX", 10**9)))
    assert "seen on iPhone16,1" in made.stdout
    assert "200.0%" in made.stdout


def test_a_report_of_a_tablet_is_held_against_its_own_plan(run, reported):
    path = reported(("total", 1), device="iPad14,8")
    told = run(*PLAN, "--measured", path, "--device", "iPhone 15", "--json").stdout
    [document] = json.loads(told)["models"]
    plans = {each["backend"]: each["total"] for each in document["plans"]}
    assert document["measured"]["backend"] == "ipad"
    assert document["measured"]["terms"][0]["planned"] == plans["ipad"]


@pytest.mark.parametrize(
    ("terms", "fields", "said"),
    [
        ([("weigths", 1)], {}, 'Did you mean "weights"'),
        ([("app", 1), ("app", 2)], {}, "given twice"),
        ([], {}, "is not a report"),
        ([("app", -1)], {}, "is not a report"),
        ([("app", 1)], {"device": "iPhone99,9"}, 'no device is called "iPhone99,9"'),
    ],
)
def test_a_report_with_a_mistake_is_refused(run, reported, terms, fields, said):
    made = run(*PLAN, "--measured", reported(*terms, **fields))
    assert made.exit_code == ExitCode.USAGE
    assert said in made.stderr
