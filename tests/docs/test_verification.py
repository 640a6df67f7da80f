"""docs/verification.md says what the workflows run and what devices reported."""

from __future__ import annotations

import re

import pytest

from docs.docgen import verification
from docs.docgen.verification import (
    NONE,
    VERIFICATION,
    facts,
    made,
    reports,
    steps_table,
    workflow_steps,
)
from h2o_pack.prove.keep import FOLDER
from tests.bridge.prove.made_up import report, written
from tests.docs.conftest import ROOT


def test_the_page_is_the_generated_one():
    text = VERIFICATION.read_text("utf-8")
    assert text == made(), "run python -m docs.docgen.verification --write"


def test_every_step_of_every_workflow_has_a_row_and_one_only():
    told = [step for each in facts().step for step in each.steps]
    assert sorted(told) == sorted(workflow_steps())


def test_every_step_of_make_apple_has_a_row():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    [targets] = re.findall(r"^apple: (.+)$", makefile, re.MULTILINE)
    for target in targets.split():
        assert f"`make {target}`" in steps_table()


def test_a_step_without_a_row_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(verification, "WORKFLOWS", tmp_path)
    text = "jobs: {one: {steps: [{run: make news}, {uses: a/b@0}, {uses: actions/checkout@0}]}}"
    (tmp_path / "new.yml").write_text(text, "utf-8")
    assert workflow_steps() == {"make news": ["new.yml"], "a/b": ["new.yml"]}


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / FOLDER).mkdir(parents=True)
    monkeypatch.setattr(verification, "ROOT", tmp_path)
    return tmp_path


def test_it_says_that_no_device_has_reported(root):
    assert reports() == NONE
    assert "no report of a device has come yet" in NONE


def test_what_a_device_reported_is_on_the_page(root):
    written(report(), root / FOLDER)
    assert NONE not in reports()
    assert "| iPhone17,1 | iOS 26.1 | 2026-11-22 | 6 | 0 | 1 |" in reports()
    assert "(results/devices/README.md)" in reports()
