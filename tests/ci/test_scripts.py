"""The scripts of .ci, with stand-ins for what only other machines have."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from h2o_pack.parity.swift import VENDORED_BUILD, Host
from tests.messages import says

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: object, tools: Path | None = None, **settings: str):
    path = os.environ["PATH"] if tools is None else f"{tools}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [ROOT / ".ci" / script, *map(str, arguments)],
        env={**os.environ, "PATH": path, **settings},
        capture_output=True,
        text=True,
        check=False,
    )


def tool(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    path.chmod(0o755)
    return folder


@pytest.mark.parametrize("name", ["apple/package", "linux-package"])
def test_a_package_is_tested_where_and_as_parity_built_it(name):
    script = (ROOT / ".ci" / name).read_text("utf-8")
    assert f'--scratch-path "$package/{VENDORED_BUILD}"' in script
    _, _, _, _, *flags = Host("", Path("package"), Path("scratch")).options
    assert " ".join(flags) in script


@pytest.mark.parametrize(
    ("said", "enough"),
    [
        ("Apple Swift version 6.3 (swiftlang-6.3.0.1)", True),
        ("Swift version 6.10.2 (swift-6.10.2-RELEASE)", True),
        ("Swift version 6.2.4 (swift-6.2.4-RELEASE)", False),
        ("", False),
    ],
)
def test_a_swift_that_is_older_than_packages_need_fails_by_name(tmp_path, said, enough):
    tools = tool(tmp_path, "swift", f"#!/bin/sh\necho '{said}'\n")
    done = run("require-swift", tools=tools)
    assert (done.returncode == 0) == enough
    assert ("6.3 or newer is needed" in done.stderr) != enough


def test_what_a_machine_could_not_do_is_on_the_page_of_the_workflow(tmp_path):
    page = tmp_path / "page.md"
    done = run("not-run", "level 0", "no GPU", GITHUB_STEP_SUMMARY=str(page))
    assert done.returncode == 0
    assert "::warning title=not run::level 0 (no GPU)" in done.stdout
    assert page.read_text("utf-8") == "- not run: level 0 (no GPU)\n"


# Says its version, and otherwise which Xcode was called with what.
XCODES = """#!/usr/bin/env bash
case $DEVELOPER_DIR in
  *old*) version=26.6 ;;
  *new*) version=27.0.1 ;;
  *) exit 1 ;;
esac
[[ $1 != -version ]] || exec echo "Xcode $version"
echo "$version ${@: -1}"
"""


@pytest.mark.parametrize("selected", ["old/Contents/Developer", "/Library/CommandLineTools"])
@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac may have Xcode 27")
def test_without_xcode_27_its_step_says_so(tmp_path, selected):
    tool(tmp_path, "xcode-select", f"#!/bin/sh\necho {selected}\n")
    tool(tmp_path, "xcodebuild", XCODES)
    done = run("apple/foundation-models", tools=tmp_path, GITHUB_STEP_SUMMARY="")
    assert done.returncode == 0
    assert done.stdout.startswith("not run: the FoundationModels face")


@pytest.mark.parametrize(
    ("system", "last"),
    [
        ("26.4", "not run: the FoundationModels face's tests (this Mac has no macOS 27)"),
        ("27.1", "27.0.1 test"),
    ],
)
def test_an_xcode_27_that_is_selected_compiles_whatever_its_name_is(tmp_path, system, last):
    (tmp_path / ".ci/apple").mkdir(parents=True)
    for name in ("apple/foundation-models", "apple/metal-toolchain", "not-run"):
        shutil.copy(ROOT / ".ci" / name, tmp_path / ".ci" / name)
    (tmp_path / "build/apple/Demo/Vendor").mkdir(parents=True)
    tool(tmp_path, "xcode-select", "#!/bin/sh\necho new/Contents/Developer\n")
    tool(tmp_path, "xcodebuild", XCODES)
    tool(tmp_path, "xcrun", "#!/bin/sh\nexit 0\n")
    tool(tmp_path, "sw_vers", f"#!/bin/sh\necho {system}\n")
    script = tmp_path / ".ci/apple/foundation-models"
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": ""}
    done = subprocess.run([script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["27.0.1 build-for-testing", last]


# Notes each call; the app says on standard error what $SAID is.
SIMULATORS = """#!/usr/bin/env bash
echo "$@" >>"$CALLS"
case "$*" in
  *list*) echo '{"devices": {"tvOS": [{"name": "TV", "udid": "1"}], "iOS": ['"$PHONES"']}}' ;;
  *launch*) echo "$SAID" >"${3#--stderr=}" ;;
esac
"""
XCODEBUILD = """#!/usr/bin/env bash
set -euo pipefail
echo "${@: -1}" >>"$CALLS"
while [[ $1 != -derivedDataPath ]]; do shift; done
mkdir -p "$2/Build/Products/Debug-iphonesimulator/demo.app"
"""
PHONE = '{"name": "iPhone 17", "udid": "2"}'
SIMULATOR = "H2OKit: this is a simulator, where MLX runs on the CPU: expect"


def in_simulator(folder: Path, *, said: str = SIMULATOR, phones: str = PHONE):
    """Run the simulator's step; return what came of it and the calls of Apple's tools."""
    tool(folder, "xcrun", SIMULATORS)
    tool(folder, "xcodebuild", XCODEBUILD)
    tool(folder, "plutil", "#!/bin/sh\necho org.example.demo\n")
    (folder / "apple/Demo").mkdir(parents=True)
    done = run(
        "apple/simulator",
        folder / "apple/Demo",
        tools=folder,
        CALLS=str(folder / "calls"),
        PHONES=phones,
        SAID=said,
        SIMULATOR_SECONDS="1",
        GITHUB_STEP_SUMMARY="",
    )
    return done, (folder / "calls").read_text("utf-8").splitlines()


def test_the_app_is_built_and_started_in_the_first_iphones_simulator(tmp_path):
    done, calls = in_simulator(tmp_path)
    assert done.returncode == 0, done.stderr
    assert [each.removeprefix("simctl ").split()[0] for each in calls] == [
        "list", "test", "build", "bootstatus", "install", "launch", "terminate",
    ]  # fmt: skip
    assert calls[-1] == "simctl terminate 2 org.example.demo"


def test_an_app_that_does_not_say_that_it_runs_in_a_simulator_has_not_started(tmp_path):
    done, calls = in_simulator(tmp_path, said="dyld: Library not loaded")
    assert done.returncode == 1
    says(done.stderr)
    assert "launch" in calls[-1]


def test_what_the_simulators_step_waits_for_is_what_the_library_prints():
    script = (ROOT / ".ci/apple/simulator").read_text("utf-8")
    (waited_for,) = re.findall("grep -q '(.+)' ", script)
    assert SIMULATOR.startswith(waited_for)
    warnings = (ROOT / "swift_templates/H2OKit/H2OWarning.swift").read_text("utf-8")
    assert 'Data("H2OKit: \\(text)\\n".utf8)' in warnings
    assert f'"{waited_for.removeprefix("H2OKit: ")}' in warnings


def test_without_a_simulator_its_step_says_so(tmp_path):
    done, calls = in_simulator(tmp_path, phones="")
    assert done.returncode == 0
    assert done.stdout.startswith("not run: the app in a simulator (this Xcode has no iPhone")
    assert len(calls) == 1


@pytest.mark.parametrize("target", ["wheel", "apple-wheel", "demo"])
def test_a_python_that_is_too_old_is_named_before_anything_is_made(tmp_path, target):
    old = tool(tmp_path, "python3", "#!/bin/sh\nexit 1\n") / "python3"
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    # What a virtual environment depends on is elsewhere: nothing of it is needed to say so.
    command = ["make", target, f"PYTHON={old}", "SOURCES="]
    done = subprocess.run(
        command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"needs Python 3.10 or newer; {old} is older" in done.stdout
    assert not (tmp_path / "dist").exists()
    assert not (tmp_path / ".venv").exists()


def test_release_notes_are_those_of_the_version():
    version = re.search(
        r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
    )
    assert version is not None
    done = run("release-notes", f"v{version[1]}")
    assert done.returncode == 0, done.stderr
    assert "### Added" in done.stdout
    assert not re.search("^## ", done.stdout, re.MULTILINE)
    assert run("release-notes", "v999.0.0").returncode == 1


@pytest.mark.parametrize(
    ("said", "summary"),
    [
        ("Apple Swift version 6.1.2 (swiftlang-6.1.2.1.2)", "Swift: 6.1.2 is older than 6.3"),
        ("Apple Swift version 6.3 (swiftlang-6.3.0.1)", "1 passed"),
    ],
)
def test_the_swift_half_is_left_out_where_swift_is_too_old_for_packages(
    tmp_path, said, summary
):
    tool(tmp_path, "swift", f"#!/bin/sh\necho '{said}'\n")
    test = tmp_path / "test_one.py"
    marked = "@pytest.mark.swift\ndef test_it():\n    pass\n"
    test.write_text(f"import pytest\n\n\n{marked}", "utf-8")
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", test]
    command += ["-p", "tests.left_out", "--rootdir", tmp_path, "-W", "ignore::Warning"]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    assert summary in done.stdout


def test_skipped_tests_are_on_the_page_of_the_workflow(tmp_path):
    page, test = tmp_path / "page.md", tmp_path / "test_one.py"
    marked = "@pytest.mark.skip(reason='no such tool')\ndef test_it():\n    pass\n"
    test.write_text(f"import pytest\n\n\n{marked}", "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    command += ["-p", "tests.left_out", "--rootdir", tmp_path]
    settings = {**os.environ, "GITHUB_STEP_SUMMARY": str(page), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=settings, capture_output=True, check=True)
    says(page.read_text("utf-8"))
