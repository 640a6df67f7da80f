"""All checks together, as `python -m tools.kernels` runs them."""

from __future__ import annotations

import pytest

from interface import kernel_text
from tests.metal.checking import HEAD, kernel, macos
from tools.kernels import __main__ as checks
from tools.kernels import compiler


def states(results):
    """Return passed, failed or skipped by each check's name."""
    return {
        name: "skipped"
        if isinstance(result, checks.Skip)
        else ("failed" if result else "passed")
        for name, result in results.items()
    }


@pytest.fixture
def run_with(tmp_path, monkeypatch):
    """Run the checks over a .metal file of our own, without the macOS wheels."""
    monkeypatch.setattr(checks.macos, "FOLDER", tmp_path / "nothing")

    def run(source):
        (tmp_path / "own").mkdir()
        (tmp_path / "own/t.metal").write_text(source)
        return checks.run_checks(checks.Workplace(tmp_path / "made", tmp_path / "own"))

    return run


def test_this_checkout_passes_all_that_needs_no_mac(tmp_path, monkeypatch):
    """All kernels, and all of cexport/h2o as a Mac would compile and link it."""
    macos()
    monkeypatch.setattr(checks.sys, "platform", "linux")
    results = checks.run_checks(checks.Workplace(tmp_path))
    assert states(results) == dict.fromkeys(checks.CHECKS, "passed") | {
        "Metal compiler": "skipped"
    }, results


def test_a_bad_kernel_fails_the_check_that_it_is_for(run_with):
    found = states(run_with(kernel("double x = 1;\nout[0] = x;")))
    assert (found["language"], found["limits"]) == ("failed", "passed")


def test_nothing_that_is_skipped_is_silent(run_with, monkeypatch, capsys):
    monkeypatch.setattr(compiler.shutil, "which", lambda _name: None)
    monkeypatch.setattr(checks.sys, "platform", "linux")
    assert set(states(run_with(HEAD)).values()) == {"skipped"}
    assert capsys.readouterr().out.count(": skipped: ") == len(checks.CHECKS)


def test_errors_in_the_cxx_fail_and_leave_symbols_unchecked(tmp_path, monkeypatch):
    macos()
    source = tmp_path / "driver.cpp"
    source.write_text("int f() { return nothing; }\n")
    monkeypatch.setattr(checks.macos, "host_sources", lambda: [source])
    monkeypatch.setattr(checks.macos, "metal_sources", list)
    results = checks.run_checks(checks.Workplace(tmp_path))
    assert "nothing" in results["host types"][0].message
    assert isinstance(results["symbols"], checks.Skip)


def test_on_a_mac_mlx_is_asked_to_compile_every_instance(run_with, monkeypatch):
    asked = []

    class Module:
        @staticmethod
        def compile_kernel(kernel: str, arguments: tuple[str, ...]) -> None:
            asked.append(kernel_text.instance_name(kernel, arguments))
            if asked[-1] == "h2o_attend_float_64":
                raise RuntimeError("error: no")

    monkeypatch.setattr(checks.sys, "platform", "darwin")
    monkeypatch.setattr(checks, "ext", Module)
    (finding,) = run_with(HEAD)["Metal compiler"]
    assert len(asked) == len(set(asked)) == sum(len(k.instances) for k in kernel_text.kernels())
    assert "h2o_attend_float_64: error: no" in str(finding)
