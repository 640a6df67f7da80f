"""Each check of a tool, with the tool there, missing, old, broken, hanging or talking rot."""

from __future__ import annotations

import pytest

from h2o_pack.doctor import checks
from tests.bridge.machines import BROKEN, FLOODS, GARBAGE, HANGS, READY, XCODE, Machine

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
    (GARBAGE, "problem", "could not be read", "PATH"),
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
    (LICENCE, "problem", "license has not been agreed", "-license accept"),
    (GARBAGE, "warning", "could not be read", "-runFirstLaunch"),
    (FLOODS, "warning", "printed too much", "-runFirstLaunch"),
    (HANGS, "warning", "did not end within", "-runFirstLaunch"),
]
METAL = [
    ("echo Apple metal version 32023.619", "ok", "32023.619", ""),
    (NO_METAL, "problem", "missing Metal Toolchain", "-downloadComponent MetalToolchain"),
    (NO_UTILITY, "problem", "unable to find utility", "xcode-select -s"),
    (BROKEN, "problem", "no way", "-downloadComponent"),
    (GARBAGE, "warning", "could not be read", "-downloadComponent"),
    (HANGS, "warning", "did not end within", "-downloadComponent"),
    (None, "problem", "xcrun is missing", "Install Xcode"),
]
IOS_SDK = [
    ("echo 26.1", "ok", "26.1", ""),
    ("echo 16.4", "problem", "16.4 is older than 17", "Update"),
    (NO_SDK, "problem", "cannot be located", "xcodebuild -downloadPlatform iOS"),
    ("echo none", "warning", "could not be read", "-downloadPlatform"),
    (None, "problem", "xcrun is missing", "Install Xcode"),
]
SWIFT = [
    ("echo 'Apple Swift version 6.3.1 (swiftlang-6.3.1)'", "ok", "6.3.1", ""),
    ("echo Swift version 5.10", "problem", "5.10 is older than 6.3", "Update Xcode"),
    (None, "problem", "it is missing", "Install Xcode"),
    (GARBAGE, "warning", "could not be read", "Xcode"),
]
GIT = [
    ("echo 'git version 2.39.5 (Apple Git-154)'", "ok", "2.39.5", ""),
    ("echo git version 2.17.1", "warning", "2.17.1 is older than 2.18", "Update it"),
    (None, "problem", "it is missing", "xcode-select --install"),
    (BROKEN, "warning", "no way", "xcode-select --install"),
    (LICENCE, "problem", "license", "-license accept"),
    (HANGS, "warning", "did not end within", "xcode-select"),
]
CLANG = [
    ("echo Apple clang version 17.0.0", "ok", "Apple clang", ""),
    ("echo clang version 21.0.0", "ok", "21.0.0", ""),
    ("echo Debian clang version 14.0.6", "warning", "14.0.6 is older than 16", "Install"),
    (None, "warning", "clang++ is missing (optional", "Install"),
    (GARBAGE, "warning", "could not be read", "Install"),
]
CASES = [
    *((checks.macos, "sw_vers", {}, *case) for case in MACOS),
    *((checks.xcode, "xcode_select", {}, *case) for case in XCODE_SELECT),
    *((checks.xcode, "xcodebuild", {"xcode_select": SELECTED}, *case) for case in XCODEBUILD),
    *((checks.metal, "xcrun", {}, *case) for case in METAL),
    *((checks.ios_sdk, "xcrun", {}, *case) for case in IOS_SDK),
    *((checks.swift, "swift", {}, *case) for case in SWIFT),
    *((checks.git, "git", {}, *case) for case in GIT),
    *((checks.clang, "clang++", {}, *case) for case in CLANG),
]


@pytest.mark.parametrize(
    ("check", "tool", "others", "script", "status", "what", "remedy"), CASES
)
def test_what_a_mac_has(tmp_path, check, tool, others, script, status, what, remedy):
    machine = Machine(tmp_path).has(**others)
    if script is not None:
        machine.has(**{tool: script})
    found = check(machine.seen(tool_seconds=0.3 if script == HANGS else 20.0))
    assert (found.status, found.blocks) == (status, False), found
    assert what in found.what
    assert remedy in found.remedy
    assert bool(found.remedy) == (status != "ok")
    assert found.what.isprintable()
