from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest
from rich.console import Console

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.parity.report import CaseResult, Difference, Level, Report
from h2o_pack.progress import silent
from h2o_pack.prove import levels, own, pipelines
from h2o_pack.prove import run as proving
from h2o_pack.prove.ids import PARTS, part_of
from h2o_pack.prove.notes import Notes
from h2o_pack.prove.read import read_report
from h2o_pack.prove.report import AS_EXPECTED, DIFFERS, NOT_RUN, Setting
from h2o_pack.prove.tables import print_report
from h2o_py._pins import VERSIONS
from tests.bridge import schemas
from tests.bridge.prove.made_up import report

SETTING = Setting("demo", 64, "dense", 200, 64, "cpu")
EQUAL = CaseResult(
    name="kv k8v4", dtype="float32", layers=1, steps=2, tolerance=1e-5, comparisons=4
)
DIFFERENT = EQUAL.compared(Difference(0, 1, "output", "the outputs differ by 2"), 2.0)
COMPARED = "one against the other"


@pytest.fixture
def notes():
    return Notes(SETTING)


def verdicts(notes):
    return {check.id: check.verdict for check in notes.checks}


def test_a_case_that_agrees_is_as_expected(notes):
    levels.note_level(notes, Level(1, "op", COMPARED, (EQUAL,)))
    assert verdicts(notes) == {
        "level 1/kv k8v4/float32/differences": AS_EXPECTED,
        "level 1/kv k8v4/float32/outputs": AS_EXPECTED,
    }


def test_a_case_that_differs_says_where(notes):
    levels.note_level(notes, Level(1, "op", COMPARED, (DIFFERENT,)))
    assert set(verdicts(notes).values()) == {DIFFERS}
    assert "first difference at layer 0, step 1" in notes.checks[0].how


def test_a_level_that_did_not_run_says_why(notes):
    levels.note_level(notes, Level(2, "trace", COMPARED, (), "there is no Swift"))
    [check] = notes.checks
    assert (check.id, check.verdict, check.why) == (
        "level 2/cases",
        NOT_RUN,
        "there is no Swift",
    )


def test_swift_that_does_not_build_leaves_level_1(notes, monkeypatch, tmp_path):
    def parity(package, levels, progress):
        if "trace" in levels:
            raise UserError("swift build failed", remedy="Mend it.", code=ExitCode.TOOL)
        return parity_report(Level(1, "op", COMPARED, (EQUAL,)))

    monkeypatch.setattr(levels, "run_parity", parity)
    levels.prove_package(notes, tmp_path, lambda _text: None, "there is no Vendor")
    found = verdicts(notes)
    assert found["level 1/kv k8v4/float32/outputs"] == AS_EXPECTED
    assert (found["level 2/cases"], found["level 3/cases"]) == (NOT_RUN, NOT_RUN)
    assert notes.checks[-1].why == "swift build failed. Mend it."


def test_a_report_does_not_name_the_user(notes, tmp_path):
    notes.skip("memory/all", "bytes", "how", f"swift failed in {Path.home()}/work")
    assert notes.checks[0].why == "swift failed in ~/work"
    assert own.public_name(str(tmp_path)) == tmp_path.name
    assert own.public_name("demo") == "demo"


def test_a_package_without_upstream_says_why_level_3_did_not_run(notes, monkeypatch, tmp_path):
    agree = parity_report(Level(1, "op", COMPARED, (EQUAL,)))
    monkeypatch.setattr(levels, "run_parity", lambda *_args, **_options: agree)
    levels.prove_package(notes, tmp_path, lambda _text: None, "there is no Vendor")
    assert notes.checks[-1].why == "there is no Vendor"


def test_why_there_is_no_upstream_is_said(monkeypatch, tmp_path):
    def offline(*_arguments, **_options):
        raise UserError(
            "github.com does not answer", remedy="Go online.", code=ExitCode.NETWORK
        )

    monkeypatch.setattr(proving, "vendor", offline)
    assert proving.fill_vendor(None, tmp_path, silent) == proving.NO_UPSTREAM
    monkeypatch.setattr(proving, "find_toolchain", lambda: None)
    assert proving.fill_vendor(tmp_path, tmp_path, silent) == proving.NO_SWIFT
    monkeypatch.setattr(proving, "find_toolchain", lambda: Path("swift"))
    why = proving.fill_vendor(tmp_path, tmp_path, silent)
    assert why == "github.com does not answer. Go online."


def parity_report(*made):
    return Report(package="p", model="demo", max_kv=64, tokens=1, host="", levels=made)


def test_level_0_is_not_run_without_a_gpu(notes, monkeypatch):
    monkeypatch.setattr(levels.mx, "default_device", lambda: mx.Device(mx.cpu))
    levels.prove_kernels(notes, lambda _text: None)
    assert verdicts(notes) == {"level 0/cases": NOT_RUN}


def test_a_pipeline_allows_at_least_the_threads_dispatched(notes, monkeypatch):
    monkeypatch.setattr(pipelines.mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(pipelines, "compiles_with_fast_math", lambda: False)
    told = {"h2o_attend_float": (1024, 1024), "h2o_attend_half": (512, 1024)}
    monkeypatch.setattr(pipelines.ext, "scoring_pipelines", lambda: told)
    pipelines.prove_pipelines(notes)
    assert verdicts(notes) == {
        "pipelines/h2o_attend_float": AS_EXPECTED,
        "pipelines/h2o_attend_half": DIFFERS,
        "pipelines/fast math": "measured",
    }


@pytest.mark.slow
def test_the_command_writes_a_report_that_holds(run, demo_package, tmp_path, monkeypatch):
    """All but the levels, which tests of parity run."""
    agree = parity_report(Level(1, "op", COMPARED, (EQUAL,)))
    monkeypatch.setattr(levels, "run_parity", lambda *_args, **_options: agree)
    path = tmp_path / "proof.json"
    done = run("prove", path, "--json", "--package", demo_package)
    assert done.exit_code in {ExitCode.OK, ExitCode.DIFFERENT}, done.output  # speed may differ
    document = schemas.check(json.loads(done.stdout), "prove")
    assert document == json.loads(path.read_text("utf-8"))
    made = read_report(path)
    assert {part_of(check.id) for check in made.checks} == set(PARTS["h2o-pack"])
    differing = {check.id for check in made.checks if check.verdict == DIFFERS}
    if made.setting.backend == "cpu":
        assert all(each.startswith("speed/ratio/") for each in differing)
    assert made.by_id()["memory/keys and values"].verdict == AS_EXPECTED
    assert made.versions["mlx"] == VERSIONS["mlx"]
    assert str(tmp_path) not in done.stdout
    assert run("prove", "--check", path).exit_code == ExitCode.OK


def test_the_exit_code_says_that_something_differs(run, monkeypatch):
    bad = report(checks=tuple(differing(report().checks)))
    monkeypatch.setattr("h2o_pack.prove.run.run", lambda *_arguments: bad)
    done = run("prove")
    assert done.exit_code == ExitCode.DIFFERENT
    assert "thermal/state: differs: made up" in done.output


def differing(checks):
    notes = Notes(SETTING)
    wanted = pipelines.Expected("equal", 0, "host")
    notes.note("thermal/state", 2, "of 3", "made up", expected=wanted)
    yield from (notes.checks[0] if each.id == "thermal/state" else each for each in checks)


def test_one_file_is_written_or_checked(run, tmp_path):
    for arguments in (("--check",), (tmp_path / "a", tmp_path / "b")):
        done = run("prove", *arguments)
        assert done.exit_code == ExitCode.USAGE
        assert "Give one FILE" in done.output


def test_the_table_fits_into_80_columns(capsys):
    print_report(report(), Console(width=80))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("level 2" in line and "4 checks" in line for line in lines)
    assert lines[-1] == "6 as expected, 0 differ, 5 measured, 1 not run"
