from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from h2o_pack.parity.report import CaseResult, Difference, Level, Report, print_report
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
REPORT = Report(
    "build/Demo",
    "demo",
    64,
    336,
    "the CPU stand-in for mlx-swift 0.31.6",
    (
        Level(1, "op", "C++ core against the reference", (EQUAL,)),
        Level(2, "trace", "Swift caches against mlx-lm", (EQUAL, MOVED)),
    ),
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
    assert not Report("p", "m", 64, 336, "", (skipped,)).differs


def test_one_difference_makes_the_report_differ():
    assert REPORT.differs


def test_people_see_a_table_and_the_first_difference():
    console = Console(width=100, record=True, soft_wrap=True)
    print_report(REPORT, console)
    text = console.export_text()
    assert "demo, max_kv 64, 336 tokens of a real run: largest differences" in text
    row = next(line for line in text.splitlines() if "float16" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == ["2 trace", "float16", "768", "5.0e-01", "1.0e-01", "0.002", "differs"]
    assert (
        "  float16: first difference at layer 2, step 7 (positions): "
        "head 1 keeps [3], the trace [5] instead\n"
    ) in text


def test_a_difference_of_a_whole_model_has_no_layer_and_no_scores():
    first = Difference(None, 5, "token", "Swift chose 3, Python 4")
    tie = Difference(None, 2, "tie", "near tie: 1 and 2")
    case = replace(
        MOVED, name="kv 8", largest_score_difference=None, first_difference=first, ties=(tie,)
    )
    console = Console(width=100, record=True, soft_wrap=True)
    print_report(replace(REPORT, levels=(Level(3, "tokens", "models", (case,)),)), console)
    text = console.export_text()
    row = next(line for line in text.splitlines() if "3 tokens" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")][4] == "-"
    said = "  kv 8: first difference at step 5 (token): Swift chose 3, Python 4\n"
    assert f"{said}  kv 8: step 2: near tie: 1 and 2\n" in text


def test_a_run_too_short_for_the_cache_is_remarked_upon():
    console = Console(width=100, record=True)
    print_report(replace(REPORT, max_kv=512), console)
    said = "note: the model's context allows fewer than 4 x max_kv tokens"
    assert said in console.export_text()


def test_the_table_fits_eighty_columns():
    console = Console(width=80, record=True)
    print_report(REPORT, console)
    assert "differs" in console.export_text()


def test_machines_get_every_value():
    document = json.loads(to_json(REPORT))
    assert document["format"] == 1
    assert [level["verdict"] for level in document["levels"]] == ["equal", "differs"]
    assert document["levels"][1]["cases"][1]["first_difference"] == {
        "layer": 2,
        "step": 7,
        "kind": "positions",
        "detail": "head 1 keeps [3], the trace [5] instead",
    }
