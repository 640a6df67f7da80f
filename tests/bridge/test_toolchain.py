from __future__ import annotations

import sys
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.parity import swift as toolchain
from h2o_pack.parity.swift import Host
from tests.bridge.refusals import refused
from tests.messages import says


def program(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_without_swift_there_is_no_toolchain(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.find_swift() is None


def test_without_a_cxx_compiler_the_message_says_how_to_get_one(tmp_path, monkeypatch):
    program(tmp_path / "bin", "swift", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    says(refused(toolchain.find_swift, code=ExitCode.TOOL))


def test_a_compiler_without_the_standard_library_is_named(tmp_path, monkeypatch):
    program(tmp_path / "bin", "swift", "exit 0")
    program(tmp_path / "bin", "clang++", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UserError) as caught:
        toolchain.find_swift()
    says(str(caught.value))


def test_swift_with_a_working_compiler_beside_it_is_found(tmp_path, monkeypatch):
    swift = program(tmp_path / "bin", "swift", "exit 0")
    program(tmp_path / "bin", "clang++", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert toolchain.find_swift() == str(swift)


def test_builds_link_the_mlx_of_this_python():
    env = toolchain.environment({"H2O_PARITY_TRACE": "/t"})
    assert (Path(env["MLX_ROOT"]) / "include" / "mlx" / "mlx.h").is_file()
    assert env["MLX_DISABLE_COMPILE"] == "1"
    assert env["H2O_PARITY_TRACE"] == "/t"


def test_a_programs_output_goes_to_the_log_and_line_by_line_to_the_caller(tmp_path):
    lines: list[str] = []
    log = tmp_path / "deep" / "log"
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    command = [sys.executable, "-u", "-c", code]
    assert toolchain.run(command, log, {}, lines.append) == 3
    assert lines == ["one", "two"]
    assert log.read_text() == "one\ntwo\n"


def test_an_interruption_ends_the_program(tmp_path):
    def stop(_line: str) -> None:
        raise KeyboardInterrupt

    command = [sys.executable, "-u", "-c", "import time; print('on'); time.sleep(600)"]
    with pytest.raises(KeyboardInterrupt):
        toolchain.run(command, tmp_path / "log", {}, stop)


@pytest.fixture
def swift(tmp_path):
    """Return a host, and a program in the place of swift that builds it."""

    def make(body: str) -> tuple[Host, str]:
        found = program(tmp_path, "swift", body)
        return Host("h", tmp_path, tmp_path), str(found)

    return make


def test_tests_run_after_the_build(swift, tmp_path):
    host, tool = swift('echo "$1 $H2O_PARITY_TRACE"; [ "$1" = build ] || exit 3')
    lines: list[str] = []
    build = toolchain.build(host, tool, tmp_path, lines.append)
    for trace in ("one", "two"):
        assert build.run_tests("Tests", {"H2O_PARITY_TRACE": trace}, lines.append) == 3
    assert [line.strip() for line in lines] == ["build", "test one", "test two"]


def test_a_build_that_fails_ends_with_swifts_words(swift, tmp_path):
    host, tool = swift("echo 'a.swift: error: no such thing'; exit 1")
    with pytest.raises(UserError) as caught:
        toolchain.build(host, tool, tmp_path, print)
    says(caught.value)


def test_dependencies_that_cannot_be_fetched_are_named_with_the_remedy(swift, tmp_path):
    host, tool = swift(
        "echo 'error: Failed to clone repository https://github.com/apple/swift-numerics:'\n"
        "echo \"fatal: unable to access 'https://github.com/apple/swift-numerics/': no host\"\n"
        "echo \"fatal: unable to access 'https://github.com/ibireme/yyjson.git/': no host\"\n"
        "exit 1"
    )
    with pytest.raises(UserError) as caught:
        toolchain.build(host, tool, tmp_path, print)
    assert caught.value.what == (
        "swift build cannot fetch what upstream depends on: "
        "https://github.com/apple/swift-numerics, https://github.com/ibireme/yyjson"
    )
    assert "--offline" in caught.value.remedy
    assert "set-mirror" in caught.value.remedy


def test_a_failure_shows_the_errors_and_the_log(tmp_path):
    log = tmp_path / "swift.log"
    log.write_text("compiling\nx.swift:1:2: error: no such thing\nlinking\n")
    error = toolchain.failure("swift build", log)
    assert error.code == ExitCode.TOOL
    says(str(error))
