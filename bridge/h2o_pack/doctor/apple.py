"""Apple's system and tools: what building a generated package takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from h2o_pack.doctor.finding import Finding, not_applicable, ok, problem
from h2o_pack.doctor.surroundings import (
    Surroundings,
    needed,
    not_understood,
    older,
    shown,
    version_in,
)

SELECT = "sudo xcode-select -s /Applications/Xcode.app"
GET_XCODE = "Install Xcode from the App Store, open it once, then run: " + SELECT
TOOLCHAIN = "xcodebuild -downloadComponent MetalToolchain"
PLATFORM = "xcodebuild -downloadPlatform iOS"


def mac_only(
    name: str,
) -> Callable[[Callable[[Surroundings], Finding]], Callable[[Surroundings], Finding]]:
    """Make a check that says so where there is no Mac."""

    def decorate(check: Callable[[Surroundings], Finding]) -> Callable[[Surroundings], Finding]:
        @wraps(check)
        def on_a_mac(machine: Surroundings) -> Finding:
            return check(machine) if machine.is_mac else not_applicable(name, "needs a Mac")

        return on_a_mac

    return decorate


@mac_only("macOS")
def macos(machine: Surroundings) -> Finding:
    """MLX's wheels and generated packages need a system, and Apple silicon."""
    name, least = "macOS", needed("macos")
    ran = machine.run("sw_vers", "-productVersion")
    if ran is None or ran.code != 0 or (found := version_in(ran.said)) is None:
        said = ran.line if ran else "sw_vers is missing"
        return problem(name, f"its version could not be read: {said}", "Repair PATH: /usr/bin.")
    if older(found, least):
        what = f"{shown(found)} is older than {least}, which MLX needs"
        return problem(name, what, f"Update to macOS {least} or newer.")
    if machine.processor == "arm64":
        return ok(name, f"{shown(found)} on Apple silicon")
    silicon = machine.run("sysctl", "-n", "hw.optional.arm64")
    if silicon is not None and silicon.said.strip() == "1":
        what = f"{shown(found)}, but this Python is for Intel and runs under Rosetta"
        return problem(name, what, "Install a Python for arm64, and h2o-pack with it.")
    what = f"{shown(found)} on an Intel processor, for which MLX has no wheels"
    return problem(name, what, "Use a Mac with Apple silicon.")


@mac_only("Xcode")
def xcode(machine: Surroundings) -> Finding:
    """Xcode itself has to be selected: the command line tools lack Metal and iOS."""
    name = "Xcode"
    selected = machine.run("xcode-select", "-p")
    if selected is None or (selected.code is not None and selected.code != 0):
        return problem(name, "no developer folder is selected", GET_XCODE)
    if selected.code is None:
        return not_understood(name, selected, f"Run: {SELECT}")
    if "CommandLineTools" in selected.said:
        what = f"only the command line tools are selected ({selected.line})"
        return problem(name, what, GET_XCODE)
    return selected_xcode(machine, selected.line)


def selected_xcode(machine: Surroundings, folder: str) -> Finding:
    """Whether the Xcode in a folder is ready and new enough."""
    name, least = "Xcode", needed("xcode")
    ran = machine.run("xcodebuild", "-version")
    if ran is None:
        return problem(name, f"xcodebuild is missing ({folder})", GET_XCODE)
    if "license" in ran.said.lower():
        remedy = "Run: sudo xcodebuild -license accept"
        return problem(name, "its license has not been agreed to", remedy)
    found = version_in(ran.said) if ran.said.startswith("Xcode") else None
    if ran.code != 0 or found is None:
        return not_understood(name, ran, "Run: xcodebuild -runFirstLaunch")
    if older(found, least):
        swift = needed("swift")
        what = f"{shown(found)} is older than {least}: generated packages need Swift {swift}"
        return problem(name, what, "Update Xcode in the App Store.")
    return ok(name, f"{shown(found)} in {folder}")


@mac_only("Metal toolchain")
def metal(machine: Surroundings) -> Finding:
    """From Xcode 26 on the Metal compiler is a download of its own."""
    name = "Metal toolchain"
    ran = machine.run("xcrun", "metal", "--version")
    if ran is None:
        return problem(name, "xcrun is missing", GET_XCODE)
    if ran.code is None:
        return not_understood(name, ran, f"Run: {TOOLCHAIN}")
    if ran.code != 0:
        lacks_xcode = "unable to find utility" in ran.said
        return problem(name, ran.line, GET_XCODE if lacks_xcode else f"Run: {TOOLCHAIN}")
    if "metal" not in ran.said.lower():
        return not_understood(name, ran, f"Run: {TOOLCHAIN}")
    return ok(name, ran.line)


@mac_only("iOS SDK")
def ios_sdk(machine: Surroundings) -> Finding:
    """The SDK that an app for the phone is built with."""
    name, least = "iOS SDK", needed("ios-sdk")
    ran = machine.run("xcrun", "--sdk", "iphoneos", "--show-sdk-version")
    if ran is None:
        return problem(name, "xcrun is missing", GET_XCODE)
    if ran.code is not None and ran.code != 0:
        return problem(name, ran.line, f"Run: {PLATFORM}")
    found = version_in(ran.said) if ran.code == 0 else None
    if found is None:
        return not_understood(name, ran, f"Run: {PLATFORM}")
    if older(found, least):
        what = f"{shown(found)} is older than {least}, for which packages are built"
        return problem(name, what, "Update Xcode in the App Store.")
    return ok(name, shown(found))
