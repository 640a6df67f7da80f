"""The report of a machine: how `prove` makes it, and how `prove --import` shows it."""

import json
import platform
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from h2o_pack.doctor.machine import Surroundings, ToolResult
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure import held
from h2o_pack.parity.report import CaseResult, Difference, Level, Report
from h2o_pack.progress import silent
from h2o_pack.prove import report as reporting
from h2o_pack.prove import run as proving
from h2o_pack.prove.report import (
    FOLDER,
    PAGE,
    REPORTS,
    ProofReport,
    ProvenLevel,
    ProvenMachine,
    ProvenMemory,
    ProvenSpeed,
    import_reports,
    page,
    read_reports,
)
from h2o_pack.results import to_json
from h2o_py._pins import VERSIONS
from tests.bridge import schemas

PHONE = ProvenMachine(
    identifier="iPhone17,1",
    chip="",
    gpu="Apple A18 Pro GPU",
    cores=6,
    memory_bytes=8_000_000_000,
    system="iOS",
    system_version="26.1",
)


def report(**changes: Any) -> ProofReport:
    """Make the report, with other values for some fields."""
    return replace(
        ProofReport(
            tool="app",
            date="2026-11-22T10:00:00Z",
            machine=PHONE,
            versions={"h2o-pack": "0.1.0", "mlx-swift": "0.31.6"},
            model="demo",
            max_kv=64,
            kv="dense",
            levels=(ProvenLevel(2, "equal", cases=1),),
            memory=(ProvenMemory("MLX", 25_000_000, 26_000_000),),
            speed=(ProvenSpeed("decode, first minute", 31.25),),
            thermal_state=1,
        ),
        **changes,
    )


EQUAL = CaseResult(name="kv 8", dtype="float32", layers=1, steps=2, tolerance=1e-5)
DIFFERENT = EQUAL.compared(Difference(0, 1, "output", "the outputs differ by 2"), 2.0)
ROOT = Path(__file__).resolve().parents[3]


def parity_report(*levels):
    return Report(package="p", model="demo", max_kv=64, tokens=1, host="", levels=levels)


def one_level(*cases):
    return parity_report(Level(1, "op", "one against the other", cases))


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "checkout", lambda: tmp_path / "checkout")
    return tmp_path / "checkout"


def written(path, content):
    path.write_text(content if isinstance(content, str) else to_json(content), "utf-8")
    return path


def test_a_level_that_differs_says_where(monkeypatch, tmp_path):
    monkeypatch.setattr(proving, "run_parity", lambda *_args, **_options: one_level(DIFFERENT))
    first, *others = proving.levels_of(tmp_path, "there is no Vendor", silent)
    assert (first.verdict, first.cases, first.largest_output_difference) == ("differs", 1, 2.0)
    assert first.detail.startswith("kv 8: first difference at layer 0, step 1 (output)")
    assert [(level.number, level.detail) for level in others] == [
        (2, "there is no Vendor"),
        (3, "there is no Vendor"),
    ]


def test_swift_that_does_not_build_leaves_level_1_and_the_user_is_not_named(
    monkeypatch, tmp_path
):
    def parity(package, levels, progress):
        if "trace" in levels:
            what = f"swift build failed in {Path.home()}/work"
            raise UserError(what, remedy="Mend it.", code=ExitCode.TOOL)
        return one_level(EQUAL)

    monkeypatch.setattr(proving, "run_parity", parity)
    levels = proving.levels_of(tmp_path, "", silent)
    assert [level.verdict for level in levels] == ["equal", "not run", "not run"]
    assert levels[1].detail == "swift build failed in ~/work. Mend it."


def test_why_there_is_no_upstream_is_said(monkeypatch, tmp_path):
    def offline(*_arguments, **_options):
        raise UserError("github.com is silent", remedy="Go online.", code=ExitCode.NETWORK)

    monkeypatch.setattr(proving, "vendor", offline)
    assert proving.fill_vendor(None, tmp_path, silent) == proving.NO_UPSTREAM
    monkeypatch.setattr(proving, "find_swift", lambda: None)
    assert proving.fill_vendor(tmp_path, tmp_path, silent) == proving.NO_SWIFT
    monkeypatch.setattr(proving, "find_swift", lambda: Path("swift"))
    assert proving.fill_vendor(tmp_path, tmp_path, silent) == "github.com is silent. Go online."


@pytest.mark.nightly("the tests above, and test_parity.py")
def test_the_command_writes_a_report(run, demo_package, tmp_path, monkeypatch):
    """All but the levels, which tests of parity run."""
    monkeypatch.setattr(proving, "run_parity", lambda *_args, **_options: one_level(DIFFERENT))
    monkeypatch.setattr(proving, "CONVERSATION", 300)
    monkeypatch.setattr(proving, "GENERATED", 16)
    path = tmp_path / "proof.json"
    result = run("prove", path, "--json", "--package", demo_package)
    assert result.exit_code == ExitCode.DIFFERENT, result.output
    document = schemas.check(json.loads(result.stdout), "prove")
    assert document == json.loads(path.read_text("utf-8"))
    assert document["versions"]["mlx"] == VERSIONS["mlx"]
    memory = {term["name"]: term for term in document["memory"]}
    for exact in ("weights", "keys and values", "ledger"):
        assert memory[exact]["bytes"] == memory[exact]["planned"] > 0
    assert memory["MLX"]["bytes"] < memory["MLX with KVCache"]["bytes"]
    assert {speed["name"] for speed in document["speed"]} >= {
        "decode, H2O dense",
        "prefill, mlx-lm KVCache",
    }
    assert min(speed["tokens_per_second"] for speed in document["speed"]) > 0
    assert str(tmp_path) not in result.stdout


def test_a_mac_is_described_by_its_model_and_versions(monkeypatch):
    answers = {
        ("sysctl", "-n", "hw.model"): "Mac15,3\n",
        ("swift", "--version"): "Apple Swift version 6.3.1",
        ("xcodebuild", "-version"): "Xcode 26.1",
    }
    monkeypatch.setattr(
        Surroundings, "run", lambda _self, *command: ToolResult(0, answers[command])
    )
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "node", lambda: "secret")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("26.1", ("", "", ""), "arm64"))
    monkeypatch.setattr(proving, "processor", lambda: "Apple M3")
    machine = proving.machine()
    assert (machine.identifier, machine.system_version) == ("Mac15,3", "26.1")
    assert machine.memory_bytes > 10**9
    assert "secret" not in str(machine)
    assert proving.versions().items() >= {**VERSIONS, "swift": "6.3.1", "xcode": "26.1"}.items()


def test_a_mac_is_asked_for_the_largest_footprint(monkeypatch):
    def proc_pid_rusage(_process, _version, usage):
        usage._obj[held._LARGEST : held._LARGEST + 8] = (123_456).to_bytes(8, "little")
        return 0

    library = SimpleNamespace(proc_pid_rusage=proc_pid_rusage)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(held.ctypes, "CDLL", lambda *_args, **_options: library)
    assert held.largest_footprint() == 123_456


def test_reports_come_on_one_page_newest_first_and_once(run, root, tmp_path):
    old = written(tmp_path / "old.json", report())
    new = written(
        tmp_path / "new.json",
        report(date="2026-11-23T10:00:00Z", machine=replace(PHONE, identifier="Mac15,3")),
    )
    result = run("prove", "--import", old, new, "--json")
    assert result.exit_code == ExitCode.OK, result.output
    imported = schemas.check(json.loads(result.stdout), "prove")
    assert imported["changed"] == [f"{FOLDER}/{REPORTS}", f"{FOLDER}/{PAGE}"]
    text = (root / FOLDER / PAGE).read_text("utf-8")
    assert re.findall("^## (.+?),", text, re.MULTILINE) == ["Mac15", "iPhone17"]
    assert "| MLX | 25.00 MB | 26.00 MB |" in text
    assert import_reports([old], root).changed == ()
    assert [proof.machine.identifier for proof in read_reports(root)] == [
        "Mac15,3",
        "iPhone17,1",
    ]


@pytest.mark.parametrize(
    "identifier", ["../../../../escaped", "/escaped", "a\nb", "a\n", "<script>", "", "x" * 201]
)
def test_an_identifier_that_is_none_is_refused_and_nothing_is_written(
    run, root, tmp_path, identifier
):
    linux = replace(PHONE, identifier=identifier, system="Linux")
    path = written(tmp_path / "proof.json", report(machine=linux))
    result = run("prove", "--import", written(tmp_path / "good.json", report()), path)
    assert result.exit_code == ExitCode.USAGE
    assert "`$.machine.identifier`" in result.output
    assert not root.exists()


def test_a_file_that_is_no_report_is_refused(run, root, tmp_path):
    for text in ("{", "[]", '{"format": 1}', "[" * 100_000):
        result = run("prove", "--import", written(tmp_path / "proof.json", text))
        assert result.exit_code == ExitCode.USAGE
    assert not root.exists()


def test_texts_of_a_report_are_plain_text_on_the_page():
    hostile = "<script>alert(1)</script> | [a](javascript:b) `c`\n## d ![e](//f)"
    level = replace(report().levels[0], detail=hostile)
    text = page([report(levels=(level,), machine=replace(PHONE, gpu=hostile))])
    assert "<script" not in text
    assert not re.search(r"(?<!\\)[\[`]", text.partition("\n## ")[2])
    assert text.count("\n#") == 2  # the page's title and the report's
    rows = [line for line in text.splitlines() if line.startswith("| level")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [4]


def test_the_committed_page_is_that_of_its_reports():
    assert (ROOT / FOLDER / PAGE).read_text("utf-8") == page(read_reports(ROOT))


def test_one_file_is_written_and_import_needs_one(run, tmp_path):
    for arguments in (("--import",), (tmp_path / "a", tmp_path / "b")):
        result = run("prove", *arguments)
        assert result.exit_code == ExitCode.USAGE
        assert "Give one FILE" in result.output
