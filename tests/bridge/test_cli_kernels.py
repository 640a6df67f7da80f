"""The `kernels` commands as somebody types them."""

from __future__ import annotations

import json
import re

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.files import download_folder as cache
from h2o_pack.kernels import checks
from h2o_pack.kernels import report as reports
from h2o_pack.kernels.checks import CheckResult, ChecksResult
from tests.bridge import schemas


@pytest.mark.parametrize("command", ["check", "report"])
def test_every_command_shows_an_example(run, command):
    result = run("kernels", command, "--help")
    assert result.exit_code == 0
    assert f"\n  Example: h2o-pack kernels {command} " in result.output


def test_check_prints_each_check_and_what_was_skipped(run, monkeypatch, tmp_path):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    result = run("kernels", "check")
    assert result.exit_code == 0, result.output
    for name in checks.CHECKS:
        assert re.search(rf"^{name} +(passed|skipped) ", result.output, re.MULTILINE)
    assert "symbols skipped: the macOS wheels of mlx are not here. Give --d" in result.output


def test_check_ends_with_1_and_the_findings_when_one_fails(run, monkeypatch):
    report = ChecksResult(
        (CheckResult("limits", "About [it]", "failed", 0.1, ("a.h:3: too [much]",)),)
    )
    monkeypatch.setattr(checks, "run_checks", lambda **_options: report)
    result = run("kernels", "check")
    assert result.exit_code == ExitCode.DIFFERENT
    assert "limits: a.h:3: too [much]" in result.output
    result = run("kernels", "check", "--json")
    assert result.exit_code == ExitCode.DIFFERENT
    document = schemas.check(json.loads(result.stdout), "kernels-check")
    assert document["passed"] is False
    assert document["checks"][0]["findings"] == ["a.h:3: too [much]"]


def test_check_with_wheels_that_are_not_there_fails(run, tmp_path):
    result = run("kernels", "check", "--wheels", tmp_path, "--json")
    assert result.exit_code == ExitCode.DIFFERENT
    found = {each["name"]: each for each in json.loads(result.stdout)["checks"]}
    assert "whl is missing" in found["host types"]["findings"][0]


def test_report_tells_the_same_to_people_and_machines(run):
    told = json.loads(run("kernels", "report", "--json").output)
    document = schemas.check(told, "kernels-report")
    text = run("kernels", "report").output
    assert {"h2o_attend", "h2o_update_ledger"} <= {k["name"] for k in document["kernels"]}
    for kernel in document["kernels"]:
        assert f"{kernel['name']} ({kernel['file']})" in text
        for constant in kernel["constants"]:
            assert constant in text


def test_report_without_clang_says_what_is_unknown(run, monkeypatch):
    for module in ("report", "tables"):
        monkeypatch.setattr(f"h2o_pack.kernels.{module}.find_clang", lambda: None)
    schemas.check(json.loads(run("kernels", "report", "--json").output), "kernels-report")
    result = run("kernels", "report")
    assert "instances ?, threadgroup memory ? bytes" in result.output
    assert "function constants: ?" in result.output
    assert "unknown without clang" in result.output


def test_report_shows_the_bytes_of_formats_if_counted(run, monkeypatch):
    formats = (reports.FormatBytes("8-bit", 10, 2, 0.6, counted=True),)
    monkeypatch.setattr(reports, "read_bytes", lambda: formats)
    result = run("kernels", "report")
    assert re.search(r"^8-bit +10 +2 +0\.6", result.output, re.MULTILINE)
    assert json.loads(run("kernels", "report", "--json").output)["bytes"] == [vars(formats[0])]
