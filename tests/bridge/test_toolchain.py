from __future__ import annotations

import sys
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.parity import toolchain
from h2o_pack.parity.host import Host
from tests.bridge.refusals import refused


def program(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_without_swift_there_is_no_toolchain(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.find_toolchain() is None


def test_without_a_cxx_compiler_the_message_says_how_to_get_one(tmp_path, monkeypatch):
    program(tmp_path / "bin", "swift", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert refused(toolchain.find_toolchain, code=ExitCode.TOOL) == (
        "there is no working C++ compiler. Install one: `apt install g++` on Debian, "
        "`xcode-select --install` on macOS."
    )


def test_a_compiler_without_the_standard_library_is_named(tmp_path, monkeypatch):
    program(tmp_path / "bin", "swift", "exit 0")
    broken = program(tmp_path / "bin", "clang++", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UserError) as caught:
        toolchain.find_toolchain()
    assert f"there is no working C++ compiler ({broken})" in str(caught.value)


def test_swift_with_a_working_compiler_beside_it_is_found(tmp_path, monkeypatch):
    swift = program(tmp_path / "bin", "swift", "exit 0")
    program(tmp_path / "bin", "clang++", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert toolchain.find_toolchain() == toolchain.Toolchain(str(swift))


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

    def make(body: str) -> tuple[Host, toolchain.Toolchain]:
        found = program(tmp_path, "swift", body)
        return Host("h", tmp_path, tmp_path), toolchain.Toolchain(str(found))

    return make


def test_tests_run_when_the_build_in_the_background_is_done(swift, tmp_path):
    host, tool = swift('echo "$1 $H2O_PARITY_TRACE"; [ "$1" = build ] || exit 3')
    lines: list[str] = []
    with toolchain.building(host, tool, tmp_path) as build:
        for trace in ("one", "two"):
            settings = {"H2O_PARITY_TRACE": trace}
            assert build.run_tests("Tests", settings, lines.append) == 3
    assert [line for line in lines if line.startswith("test")] == ["test one", "test two"]


def test_each_line_of_a_build_is_told_once(swift, tmp_path):
    heard = tmp_path / "heard"
    waits = f"echo one; until [ -e '{heard}' ]; do sleep 0.05; done; sleep 0.6"
    host, tool = swift(f'[ "$1" = test ] || {{ {waits}; }}')
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        heard.touch()

    with toolchain.building(host, tool, tmp_path) as build:
        build.run_tests("Tests", {}, hear)
    assert lines == ["one"]


def test_a_build_that_fails_in_the_background_is_told_when_tests_are_to_run(swift, tmp_path):
    host, tool = swift("echo 'a.swift: error: no such thing'; exit 1")
    with (
        pytest.raises(UserError, match=r"swift build failed:\n  a.swift: error"),
        toolchain.building(host, tool, tmp_path) as build,
    ):
        build.run_tests("Tests", {}, print)


def test_what_fails_meanwhile_ends_the_build(swift, tmp_path):
    host, tool = swift("exec sleep 600")
    with pytest.raises(KeyboardInterrupt), toolchain.building(host, tool, tmp_path) as build:
        raise KeyboardInterrupt
    assert build.process.returncode


def test_a_failure_shows_the_errors_and_the_log(tmp_path):
    log = tmp_path / "swift.log"
    log.write_text("compiling\nx.swift:1:2: error: no such thing\nlinking\n")
    error = toolchain.failure("swift build", log)
    assert error.code == ExitCode.TOOL
    assert str(error) == (
        f"swift build failed:\n  x.swift:1:2: error: no such thing\n (all of it is in {log}). "
        "Correct that and run it again."
    )
