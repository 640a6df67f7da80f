import json
from dataclasses import replace

import pytest

from h2o_pack.measure.machine import describe
from h2o_pack.parity.parity_report import CaseResult, Difference, Level, ParityReport
from h2o_pack.results import to_json

EQUAL = CaseResult(
    name="float32",
    dtype="float32",
    layers=4,
    steps=64,
    comparisons=768,
    largest_output_difference=3e-6,
    largest_score_difference=1e-6,
    tolerance=1e-5,
)
MOVED = replace(
    EQUAL,
    name="float16",
    largest_output_difference=0.5,
    largest_score_difference=0.1,
    positions_equal=False,
    tolerance=2e-3,
    first_difference=Difference(2, 7, "positions", "head 1 keeps [3], the trace [5] instead"),
)
WHOLE_MODEL = replace(
    MOVED,
    name="kv 8",
    largest_score_difference=None,
    first_difference=Difference(None, 5, "token", "Swift chose 3, Python 4"),
    ties=(Difference(None, 2, "tie", "near tie: 1 and 2"),),
)
REPORT = ParityReport(
    "build/Demo",
    "demo",
    512,  # of a context too short for an eviction
    336,
    "the CPU stand-in for mlx-swift 0.31.6",
    (
        Level(1, "op", "C++ core against the reference", (EQUAL,)),
        Level(2, "trace", "Swift caches against mlx-lm", (EQUAL, MOVED)),
        Level(3, "tokens", "models", (WHOLE_MODEL,)),
    ),
    machine=describe(),
    versions={"mlx-swift": "0.31.6"},
)


@pytest.mark.parametrize(
    ("changes", "equal"),
    [
        ({}, True),
        ({"largest_output_difference": 2e-5}, False),
        ({"positions_equal": False}, False),
        ({"first_difference": Difference(0, 0, "scores", "differ")}, False),
    ],
)
def test_a_case_is_equal_within_its_tolerance_and_with_equal_positions(changes, equal):
    assert CaseResult(**{**vars(EQUAL), **changes}).equal == equal


def test_a_level_that_did_not_run_is_no_difference():
    skipped = Level(2, "trace", "Swift against mlx-lm", (), "there is no Swift")
    assert skipped.verdict == "not run"
    assert not replace(REPORT, levels=(skipped,)).differs


def test_one_difference_makes_the_report_differ():
    assert REPORT.differs


def test_machines_get_every_value():
    document = json.loads(to_json(REPORT))
    assert document["format"] == 1
    assert [level["verdict"] for level in document["levels"]] == ["equal", "differs", "differs"]
    assert document["levels"][1]["cases"][1]["first_difference"] == {
        "layer": 2,
        "step": 7,
        "kind": "positions",
        "detail": "head 1 keeps [3], the trace [5] instead",
        "item": "",
    }
