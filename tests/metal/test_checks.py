"""All checks together: what passes, what fails, and what is said to be skipped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from h2o_pack import assets
from h2o_pack.files import download_folder as cache
from h2o_pack.kernels import checks, text, translation
from tests.metal.checking import HEAD, ROOT, kernel, macos


def states(report: checks.ChecksResult) -> dict[str, str]:
    return {each.name: each.state for each in report.checks}


@pytest.fixture
def cached(monkeypatch):
    """Make the downloads of this checkout the user's."""
    macos()
    monkeypatch.setenv(cache.VARIABLE, str(ROOT / "build/macos"))


@pytest.fixture
def uncached(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "nothing"))


def run_with(tmp_path: Path, source: str, **options: object) -> checks.ChecksResult:
    (tmp_path / "own").mkdir(exist_ok=True)
    (tmp_path / "own/t.metal").write_text(source)
    return checks.run_checks(kernels=tmp_path / "own", **options)  # type: ignore[arg-type]


def test_this_checkout_passes_all_that_needs_no_mac(cached, monkeypatch):
    """All kernels, and all of cexport/h2o as a Mac would compile and link it."""
    assert ROOT / "cexport/h2o/metal/library.cpp" in checks.host_types.host_sources()
    monkeypatch.setattr(checks.sys, "platform", "linux")
    report = checks.run_checks()
    assert report.passed, report
    assert states(report) == dict.fromkeys(checks.CHECKS, "passed") | {
        "Metal compiler": "skipped"
    }


def test_a_bad_kernel_fails_the_check_that_it_is_for(uncached, tmp_path):
    report = run_with(tmp_path, kernel("double x = 1;\nout[0] = x;"))
    assert not report.passed
    found = states(report)
    assert found["language"] == "failed"
    assert found["limits"] == "passed"


def test_nothing_that_is_skipped_is_silent(uncached, tmp_path, monkeypatch):
    monkeypatch.setattr(translation.shutil, "which", lambda _name: None)
    report = run_with(tmp_path, HEAD)
    for result in report.checks:
        assert bool(result.detail) == bool(result.remedy) == (result.state == "skipped")
    assert set(states(report).values()) == {"skipped"}


def test_without_the_wheels_it_says_how_to_get_them(uncached, tmp_path):
    by_name = {each.name: each for each in run_with(tmp_path, HEAD).checks}
    for name in ("host types", "symbols"):
        assert by_name[name].state == "skipped"
        assert "--download" in by_name[name].remedy


def test_wheels_may_be_given_as_a_folder(uncached, tmp_path):
    macos()
    shutil.copytree(ROOT / "build/macos/wheels", tmp_path / "given")
    found = checks.find_wheels(tmp_path / "given", may_download=False, say=lambda _text: None)
    assert found is not None
    for mlx in checks.wheels.mlx_folders(found):
        assert (mlx / "include/metal_cpp/Metal/Metal.hpp").is_file()
        assert (mlx / "lib/libmlx.dylib").is_file()


def test_errors_in_the_cxx_fail_and_leave_symbols_unchecked(cached, tmp_path, monkeypatch):
    source = tmp_path / "driver.cpp"
    source.write_text("int f() { return nothing; }\n")
    monkeypatch.setattr(checks.host_types, "host_sources", lambda: [source])
    by_name = {each.name: each for each in run_with(tmp_path, HEAD).checks}
    assert by_name["host types"].state == "failed"
    assert ":1: use of undeclared identifier 'nothing'" in by_name["host types"].findings[0]
    assert by_name["symbols"].state == "skipped"
    assert by_name["symbols"].remedy == "See the check of host types."


def test_on_a_mac_mlx_is_asked_to_compile_every_instance(uncached, tmp_path, monkeypatch):
    asked = []

    class Module:
        @staticmethod
        def compile_kernel(kernel: str, arguments: tuple[str, ...]) -> None:
            asked.append(text.instance_name(kernel, arguments))
            if asked[-1] == "h2o_attend_float_64":
                raise RuntimeError("error: no")

    monkeypatch.setattr(checks.sys, "platform", "darwin")
    monkeypatch.setattr("h2o_py._compiled.ext", Module)
    result = run_with(tmp_path, HEAD).checks[-1]
    assert len(asked) == len(set(asked)) == sum(len(k.instances) for k in text.kernels())
    assert result.state == "failed"
    assert result.findings == ("metal/kernels/h2o_attention.h: h2o_attend_float_64: error: no",)


def test_the_folder_of_the_shims_is_part_of_the_installation():
    assert (assets.root() / "metal/check/opencl/metal_stdlib").is_file()
    assert (assets.root() / "metal/check/macos/libcxx_configuration.h").is_file()
