"""Each check finds what is there and what is wrong, with a folder of made-up tools."""

import json
import threading
import time
from importlib import metadata
from pathlib import Path

import pytest
from huggingface_hub import constants

from h2o_pack.doctor import checks as doctor
from h2o_pack.doctor.finding import Finding, ok
from h2o_pack.doctor.machine import Surroundings, as_version, too_old
from h2o_pack.errors import BUILD_AGAIN, ExitCode
from h2o_pack.results import to_json
from h2o_py._pins import VERSIONS
from tests.bridge import schemas
from tests.bridge.machines import BROKEN, FLOODS, GARBAGE, HANGS, READY, XCODE, Machine
from tests.messages import says


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


# What a Mac has: each tool there, missing, old, broken, hanging or talking rot

NO_METAL = "echo \"error: cannot execute tool 'metal' due to missing Metal Toolchain\"; exit 1"
NO_UTILITY = "echo 'error: unable to find utility \"metal\"'; exit 72"
NO_SDK = "echo 'error: SDK \"iphoneos\" cannot be located'; exit 1"
LICENCE = "echo 'You have not agreed to the Xcode license agreements'; exit 69"
SELECTED = f"echo {XCODE}"
TOOLS_ONLY = "echo /Library/Developer/CommandLineTools"

MACOS = [
    ("echo 15.5", "ok", "15.5 on Apple silicon", ""),
    ("echo 13.7.1", "problem", "13.7.1 is older than 14", "macOS 14"),
    (None, "problem", "sw_vers is missing", "PATH"),
    (GARBAGE, "problem", "the version is unknown", "PATH"),
    (HANGS, "problem", "did not end within", "PATH"),
]
XCODE_SELECT = [
    (TOOLS_ONLY, "problem", "only the command line tools", "sudo xcode-select -s"),
    (None, "problem", "no developer folder", "Install Xcode"),
    (BROKEN, "problem", "no developer folder", "Install Xcode"),
    (HANGS, "warning", "did not end within", "xcode-select -s"),
]
XCODEBUILD = [
    (READY, "ok", f"26.4 in {XCODE}", ""),
    ("echo Xcode 16.2", "problem", "16.2 is older than 26.4", "App Store"),
    (None, "problem", "xcodebuild is missing", "Install Xcode"),
    (LICENCE, "problem", "license is not accepted", "-license accept"),
    (GARBAGE, "warning", "the version is unknown", "-runFirstLaunch"),
    (FLOODS, "warning", "printed too much", "-runFirstLaunch"),
    (HANGS, "warning", "did not end within", "-runFirstLaunch"),
]
METAL = [
    ("echo Apple metal version 32023.619", "ok", "32023.619", ""),
    (NO_METAL, "problem", "missing Metal Toolchain", "-downloadComponent MetalToolchain"),
    (NO_UTILITY, "problem", "unable to find utility", "xcode-select -s"),
    (BROKEN, "problem", "no way", "-downloadComponent"),
    (GARBAGE, "warning", "the version is unknown", "-downloadComponent"),
    (HANGS, "warning", "did not end within", "-downloadComponent"),
    (None, "problem", "xcrun is missing", "Install Xcode"),
]
IOS_SDK = [
    ("echo 26", "ok", "26", ""),
    ("echo v26.1.2-beta", "ok", "26.1.2", ""),
    ("echo 16.4", "problem", "16.4 is older than 17", "Update"),
    (NO_SDK, "problem", "cannot be located", "xcodebuild -downloadPlatform iOS"),
    ("echo none", "warning", "the version is unknown", "-downloadPlatform"),
    (None, "problem", "xcrun is missing", "Install Xcode"),
]
SWIFT = [
    ("echo 'Apple Swift version 6.3.1 (swiftlang-6.3.1)'", "ok", "6.3.1", ""),
    ("echo Swift version 5.10", "problem", "5.10 is older than 6.3", "Update Xcode"),
    (None, "problem", "missing: ", "Install Xcode"),
    (GARBAGE, "warning", "the version is unknown", "Xcode"),
]
GIT = [
    ("echo 'git version 2.39.5 (Apple Git-154)'", "ok", "2.39.5", ""),
    ("echo git version 2.17.1", "warning", "2.17.1 is older than 2.18", "Update it"),
    (None, "problem", "missing: ", "xcode-select --install"),
    (BROKEN, "warning", "no way", "xcode-select --install"),
    (LICENCE, "problem", "license", "-license accept"),
    (HANGS, "warning", "did not end within", "xcode-select"),
]
CASES = [
    *((doctor.macos, "sw_vers", {}, *case) for case in MACOS),
    *((doctor.xcode, "xcode_select", {}, *case) for case in XCODE_SELECT),
    *((doctor.xcode, "xcodebuild", {"xcode_select": SELECTED}, *case) for case in XCODEBUILD),
    *((doctor.metal, "xcrun", {}, *case) for case in METAL),
    *((doctor.ios_sdk, "xcrun", {}, *case) for case in IOS_SDK),
    *((doctor.swift, "swift", {}, *case) for case in SWIFT),
    *((doctor.git, "git", {}, *case) for case in GIT),
]


@pytest.mark.parametrize(
    ("check", "tool", "others", "script", "status", "what", "remedy"), CASES
)
def test_what_a_mac_has(machine, check, tool, others, script, status, what, remedy):
    machine.has(**others)
    if script is not None:
        machine.has(**{tool: script})
    finding = check(machine.seen(tool_seconds=0.3 if script == HANGS else 20.0))
    assert (finding.status, finding.blocks) == (status, False), finding
    assert what in finding.what
    assert remedy in finding.remedy
    assert bool(finding.remedy) == (status != "ok")
    assert finding.what.isprintable()


# What other machines have


def test_apples_checks_need_a_mac(machine):
    machine.has(sw_vers="exit 1", xcrun="exit 1", xcode_select="exit 1")
    checks = {
        name: doctor.CHECKS[name] for name in ("macOS", "Xcode", "Metal toolchain", "iOS SDK")
    }
    assert doctor.check_up(machine.seen("linux"), checks).findings == tuple(
        Finding(name, "not applicable", "needs a Mac") for name in checks
    )


INTEL, LINUX = {"processor": "x86_64"}, {"platform": "linux"}
ROSETTA = {"sw_vers": "echo 15.5", "sysctl": "echo 1"}
OLD_SWIFT = {"swift": "echo Swift version 5.10"}
ELSEWHERE = [
    (doctor.macos, INTEL, ROSETTA, "problem", "Install a Python for arm64"),
    (doctor.macos, INTEL, {"sw_vers": "echo 15.5"}, "problem", "Use a Mac with Apple silicon"),
    (doctor.swift, LINUX, {}, "warning", "swift.org/install"),
    (doctor.swift, LINUX, OLD_SWIFT, "warning", "Update Swift: https://swift.org"),
    (doctor.git, LINUX, {"git": BROKEN}, "warning", "apt install git"),
    (doctor.python, {"python": (3, 10, 18)}, {}, "problem", "Install Python 3.11"),
    (doctor.python, {"python": (3, 11, 0)}, {}, "ok", ""),
    (doctor.python, {"python": (3, 14, 1)}, {}, "ok", ""),
]


@pytest.mark.parametrize(("check", "changes", "scripts", "status", "remedy"), ELSEWHERE)
def test_each_machine_has_its_own_remedy_and_an_old_python_blocks(
    machine, check, changes, scripts, status, remedy
):
    finding = check(machine.has(**scripts).seen(**changes))
    blocks = check is doctor.python and status == "problem"
    assert (finding.status, finding.blocks) == (status, blocks)
    assert remedy in finding.remedy


@pytest.mark.parametrize("package", ["mlx", "mlx-lm"])
def test_mlx_is_compared_with_its_pin(machine, package, monkeypatch):
    check = doctor.CHECKS[package]
    assert check(machine.seen()).status == "ok"
    monkeypatch.setattr(metadata, "version", lambda name: {package: "0.99.0"}[name])
    finding = check(machine.seen())
    assert (finding.status, finding.blocks) == ("problem", True)
    pin = VERSIONS[package]
    assert f"version 0.99.0 is installed, but h2o-pack needs {pin}" in finding.what
    assert finding.remedy == f"Run: pip install {package}=={pin}"

    def missing(_name):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", missing)
    assert "missing" in check(machine.seen()).what
    assert check(machine.seen()).blocks


def test_the_compiled_module_is_really_imported(machine):
    finding = doctor.compiled_module(Surroundings())
    assert finding.status == "ok", finding
    assert "instruction set" in finding.what


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("echo Traceback; echo 'ImportError: no libmlx'; exit 1", "ImportError: no libmlx"),
        ("kill -11 $$", "killed Python with signal 11"),
        (HANGS, "did not end within"),
        ("exit 3", "printed nothing"),
    ],
)
def test_a_module_that_does_not_load_is_told(machine, script, what):
    machine.has(python=script)
    surroundings = machine.seen(
        executable=str(machine.folder / "python"), tool_seconds=0.3 if script == HANGS else 20.0
    )
    finding = doctor.compiled_module(surroundings)
    assert (finding.status, finding.blocks) == ("problem", False)
    assert what in finding.what
    assert finding.remedy == BUILD_AGAIN
    broken = machine.seen(executable=str(machine.folder / "none"))
    says(doctor.compiled_module(broken).what)


@pytest.mark.parametrize(
    ("free", "status"), [(0.4, "problem"), (3, "warning"), (50, "ok")]
)  # fmt: skip
def test_room_is_measured_where_packages_and_models_go(machine, monkeypatch, free, status):
    usage = type("Usage", (), {"free": int(free * 10**9)})
    paths = []
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: paths.append(path) or usage)
    surroundings = machine.seen(output=machine.home / "new/folder")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(machine.home / "hub"))
    package, models = doctor.output(surroundings), doctor.models(surroundings)
    assert (package.status, models.status) == (status, status)
    assert (package.blocks, models.blocks) == (status == "problem", False)
    says(package.what)
    assert f"{machine.home}/hub" in models.what
    assert "--output" in package.remedy or status == "ok"
    assert paths == [machine.home, machine.home]


def test_an_output_that_is_a_file_blocks(machine):
    path = machine.home / "file"
    path.write_text("")
    finding = doctor.output(machine.seen(output=path / "below"))
    assert (finding.status, finding.blocks) == ("problem", True)
    says(finding.what)


def test_an_output_without_permission_blocks(machine, monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    finding = doctor.output(machine.seen())
    assert (finding.status, finding.blocks) == ("problem", True)
    says(finding.what)


def test_a_tool_that_hangs_is_ended_with_what_it_started(machine):
    machine.has(tool=f"/bin/sleep 600 & echo $! > {machine.home}/child; wait")
    ran = machine.seen(tool_seconds=2).run("tool")
    assert ran.code is None
    child = int((machine.home / "child").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            break
    else:
        assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize(("selected", "runs"), [("echo /X", True), ("exit 2", False)])
def test_apples_stand_ins_are_not_run_where_they_would_open_a_window(machine, selected, runs):
    machine.has(git=f"echo git version 2.50; echo > {machine.home}/ran", xcode_select=selected)
    finding = doctor.git(machine.seen(shims=machine.folder))
    assert (machine.home / "ran").exists() == runs
    assert finding.status == ("ok" if runs else "warning")
    assert ("no developer tools are installed" in finding.what) == (not runs)


def test_a_file_that_is_no_program_is_told(machine):
    path = machine.folder / "git"
    path.write_bytes(b"\x00\x01 not a program")
    path.chmod(0o755)
    finding = doctor.git(machine.seen())
    assert finding.status == "warning"
    says(finding.what)


def test_one_slow_or_broken_check_does_not_keep_the_others(machine):
    release = threading.Event()

    def slow(_machine):
        release.wait(600)
        return ok("too late")

    def broken(_machine):
        raise RuntimeError("oh")

    checks = {"slow": slow, "broken": broken, "quick": lambda _machine: ok("fine")}
    findings = doctor.check_up(machine.seen(), checks, 0.3).findings
    release.set()
    by_name = {finding.name: finding for finding in findings}
    assert list(by_name) == ["slow", "broken", "quick"]
    assert by_name["slow"].status == by_name["broken"].status == "warning"
    says(by_name["slow"].what)
    assert "RuntimeError: oh" in by_name["broken"].what
    assert by_name["quick"].status == "ok"


def test_every_check_reports_under_its_own_name(machine, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    machine.has(swift=GARBAGE, git=GARBAGE)
    for platform in ("darwin", "linux"):
        report = doctor.check_up(machine.seen(platform))
        assert [finding.name for finding in report.findings] == list(doctor.CHECKS)
        assert not report.blocked
        schemas.check(json.loads(to_json(report)), "doctor")


def test_the_command_exits_with_5_only_where_ios_is_blocked(run, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    result = run("doctor", "--output", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    document = schemas.check(json.loads(result.stdout), "doctor")
    assert not document["blocked"]
    assert {finding["name"] for finding in document["findings"]} == set(doctor.CHECKS)
    (tmp_path / "file").write_text("")
    result = run("doctor", "--output", tmp_path / "file/x")
    assert result.exit_code == ExitCode.TOOL
    assert "solve this: disk for packages" in " ".join(result.output.split())


def test_versions_are_compared_as_numbers():
    assert as_version("16.10") > as_version("16.9")
    assert as_version("9" * 5000)[0] == int("9" * 9)
    assert not too_old((17,), "ios-sdk")
    assert too_old((16, 9, 9), "ios-sdk") == "16.9.9 is older than 17.0"
