"""The checks of a machine: Python and its packages, Apple's tools, disks, the hub."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from h2o_pack.doctor.finding import Checkup, Finding, ok, problem, warning
from h2o_pack.doctor.machine import (
    Surroundings,
    needed,
    not_understood,
    shown,
    too_old,
)
from h2o_pack.errors import BUILD_AGAIN, GET_SWIFT, UserError, in_one_line
from h2o_pack.files.paths import existing
from h2o_py._pins import VERSIONS

IMPORT = "from h2o_py._compiled import ext; print(ext.instruction_set())"


def python(machine: Surroundings) -> Finding:
    """Check the version of Python."""
    if old := too_old(machine.python, "python"):
        return problem(old, f"Install Python {needed('python')} or newer.", blocks=True)
    return ok(shown(machine.python))


def pinned(package: str) -> Finding:
    """Compare an installed package with the version for which the core was compiled."""
    version = VERSIONS[package]
    remedy = f"Run: pip install {package}=={version}"
    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError:
        return problem(f"missing; version {version} is needed", remedy, blocks=True)
    if installed != version:
        what = f"version {installed} is installed, but h2o-pack needs {version}"
        return problem(what, remedy, blocks=True)
    return ok(installed)


def compiled_module(machine: Surroundings) -> Finding:
    """Import the compiled module in another process, because a crash ends the process."""
    # -P: the current folder, which may be an app of somebody else, contains no modules.
    result = machine.run(machine.executable, "-P", "-c", IMPORT)
    if result is None:
        return problem(f"Python is missing ({machine.executable})", BUILD_AGAIN)
    if result.code is None:
        return problem(f"importing it fails: {result.line}", BUILD_AGAIN)
    if result.code < 0:
        return problem(f"importing it killed Python with signal {-result.code}", BUILD_AGAIN)
    if result.code != 0:
        last = result.output.strip().splitlines()[-1:] or ["importing it printed nothing"]
        return problem(last[0], BUILD_AGAIN)
    return ok(f"works; instruction set {result.line}")


SELECT = "sudo xcode-select -s /Applications/Xcode.app"
GET_XCODE = "Install Xcode from the App Store, open it once, then run: " + SELECT
TOOLCHAIN = "xcodebuild -downloadComponent MetalToolchain"
PLATFORM = "xcodebuild -downloadPlatform iOS"
UPDATE_XCODE = "Update Xcode in the App Store."
NOT_ACCEPTED = "Xcode's license is not accepted"
ACCEPT = "Run: sudo xcodebuild -license accept"


def macos(machine: Surroundings) -> Finding:
    """Check for Apple silicon and the version of macOS that MLX needs."""
    result = machine.run("sw_vers", "-productVersion")
    if result is None or (release := result.version()) is None:
        why = result.line if result else "sw_vers is missing"
        return problem(f"the version is unknown: {why}", "Add /usr/bin to PATH.")
    if old := too_old(release, "macos"):
        return problem(
            f"{old}, which MLX needs", f"Update to macOS {needed('macos')} or newer."
        )
    if machine.processor == "arm64":
        return ok(f"{shown(release)} on Apple silicon")
    silicon = machine.run("sysctl", "-n", "hw.optional.arm64")
    if silicon is not None and silicon.output.strip() == "1":
        what = f"{shown(release)}, but this Python is for Intel and runs under Rosetta"
        return problem(what, "Install a Python for arm64, and h2o-pack with it.")
    what = f"{shown(release)} on an Intel processor, for which MLX has no wheels"
    return problem(what, "Use a Mac with Apple silicon.")


def xcode(machine: Surroundings) -> Finding:
    """Check that Xcode itself is selected; the command line tools lack Metal and iOS."""
    selected = machine.run("xcode-select", "-p")
    if selected is None or (selected.code is not None and selected.code != 0):
        return problem("no developer folder is selected", GET_XCODE)
    if selected.code is None:
        return not_understood(selected, f"Run: {SELECT}")
    if "CommandLineTools" in selected.output:
        return problem(f"only the command line tools are selected ({selected.line})", GET_XCODE)
    return selected_xcode(machine, selected.line)


def selected_xcode(machine: Surroundings, folder: str) -> Finding:
    """Check that the Xcode in a folder is ready and new enough."""
    result = machine.run("xcodebuild", "-version")
    if result is None:
        return problem(f"xcodebuild is missing ({folder})", GET_XCODE)
    if "license" in result.output.lower():
        return problem(NOT_ACCEPTED, ACCEPT)
    release = result.version("Xcode ")
    if release is None:
        return not_understood(result, "Run: xcodebuild -runFirstLaunch")
    if old := too_old(release, "xcode"):
        return problem(f"{old}: generated packages need Swift {needed('swift')}", UPDATE_XCODE)
    return ok(f"{shown(release)} in {folder}")


def metal(machine: Surroundings) -> Finding:
    """Check for the Metal compiler, which is a separate download from Xcode 26 on."""
    result = machine.run("xcrun", "metal", "--version")
    if result is None:
        return problem("xcrun is missing", GET_XCODE)
    if result.code is None:
        return not_understood(result, f"Run: {TOOLCHAIN}")
    if result.code != 0:
        lacks_xcode = "unable to find utility" in result.output
        return problem(result.line, GET_XCODE if lacks_xcode else f"Run: {TOOLCHAIN}")
    if "metal" not in result.output.lower():
        return not_understood(result, f"Run: {TOOLCHAIN}")
    return ok(result.line)


def ios_sdk(machine: Surroundings) -> Finding:
    """Check for the SDK with which an app for the phone is built."""
    result = machine.run("xcrun", "--sdk", "iphoneos", "--show-sdk-version")
    if result is None:
        return problem("xcrun is missing", GET_XCODE)
    if result.code is not None and result.code != 0:
        return problem(result.line, f"Run: {PLATFORM}")
    version = result.version()
    if version is None:
        return not_understood(result, f"Run: {PLATFORM}")
    return compared(version, "ios-sdk", problem, ", for which packages are built", UPDATE_XCODE)


Grade = Callable[[str, str], Finding]


def compared(
    version: tuple[int, ...], tool: str, grade: Grade, why: str, update: str
) -> Finding:
    """Return whether a tool is new enough; `why` ends the sentence that says it is too old."""
    if old := too_old(version, tool):
        return grade(f"{old}{why}", update)
    return ok(shown(version))


def swift(machine: Surroundings) -> Finding:
    """Check for Swift, which only parity needs on systems other than macOS."""
    grade: Grade = problem if machine.is_mac else warning
    get = "Install Xcode." if machine.is_mac else f"Install Swift: {GET_SWIFT}"
    result = machine.run("swift", "--version")
    if result is None:
        return grade("missing: `h2o-pack parity` cannot run the package's tests", get)
    version = result.version("Swift version ")
    if version is None:
        return not_understood(result, get)
    update = get.replace("Install", "Update", 1)
    return compared(version, "swift", grade, ", which generated packages need", update)


def git(machine: Surroundings) -> Finding:
    """Check for git, which downloads upstream's sources for a package's Vendor folder."""
    install = "xcode-select --install" if machine.is_mac else "apt install git"
    result = machine.run("git", "--version")
    if result is None:
        get = f"Run: {install}; or give `h2o-pack vendor --upstream` a folder with clones."
        return problem("missing: mlx-swift and mlx-swift-lm cannot be downloaded", get)
    if "license" in result.output.lower() and machine.is_mac:
        return problem(NOT_ACCEPTED, ACCEPT)
    version = result.version("git version ")
    if version is None:
        return not_understood(result, f"Run: {install}")
    why = ": may be unable to fetch commits by their id"
    return compared(version, "git", warning, why, f"Update it: {install}")


GB = 10**9
LEAST_GB = 1
"""Free GB that a package needs at least: it takes a few MB, and its build several hundred."""
ROOM_GB = 10
"""Free GB that are enough for any model and a build; models for phones have up to about 5
GB."""


def output(machine: Surroundings) -> Finding:
    """Check the disk for packages."""
    return room(machine.output, "Free space, or give another --output.", blocks=True)


def models(machine: Surroundings) -> Finding:
    """Check the disk for downloaded models."""
    from huggingface_hub import constants

    remedy = "Free space (`hf cache delete`), or set HF_HUB_CACHE to a folder on a larger disk."
    folder = Path(constants.HF_HUB_CACHE)
    finding = room(folder, remedy)
    disks = {existing(place).stat().st_dev for place in (machine.output, folder)}
    if finding.status == "ok" and len(disks) > 1:
        return ok(f"{finding.what}; packages are on another disk, so models are copied")
    return finding


def room(folder: Path, remedy: str, *, blocks: bool = False) -> Finding:
    """Check the free space of a folder's disk, and whether the folder is writable.

    blocks: whether `h2o-pack ios` cannot work when this is a problem.
    """
    parent = existing(folder)
    if not parent.is_dir():
        return problem(f"{folder} is not a folder", remedy, blocks=blocks)
    if not os.access(parent, os.W_OK | os.X_OK):
        return problem(f"{parent} cannot be written", remedy, blocks=blocks)
    try:
        free = shutil.disk_usage(parent).free / GB
    except OSError as error:
        return warning(f"{parent}: {error.strerror or error}", remedy)
    what = f"{free:,.1f} GB are free in {folder}"
    if free < LEAST_GB:
        return problem(f"only {what}", remedy, blocks=blocks)
    if free < ROOM_GB:
        return warning(f"{what}, which is too little for some models", remedy)
    return ok(what)


QUESTION = "/api/models?limit=1"
MOST = 1 << 20


def hub(machine: Surroundings) -> Finding:
    """Ask the hub for the name of one model, without a token."""
    from huggingface_hub import constants

    from h2o_pack.hub.client import CHECK_NETWORK

    endpoint = constants.ENDPOINT
    if constants.HF_HUB_OFFLINE:
        remedy = "Unset it to allow downloads; models in the hub's cache still work."
        return warning("HF_HUB_OFFLINE is set, so nothing is downloaded", remedy)
    if not usable(endpoint):
        remedy = "Unset it, or set it to an address such as https://huggingface.co."
        return problem(f"HF_ENDPOINT = {endpoint!r} is not an address", remedy)
    status, answer = ask(endpoint + QUESTION, machine.hub_seconds)
    if status is None:
        return warning(f"{endpoint} cannot be reached: {answer}", CHECK_NETWORK)
    if status != 200:  # noqa: PLR2004  HTTP's status for success
        return warning(f"{endpoint} answers with status {status}", CHECK_NETWORK)
    try:
        is_hub = isinstance(json.loads(answer), list)
    except (ValueError, RecursionError):
        is_hub = False
    if not is_hub:
        what = f"{endpoint} does not answer as the hub does: it may be a proxy or a login page"
        return warning(what, CHECK_NETWORK)
    return ok(f"{endpoint} answers")


def ask(address: str, seconds: float) -> tuple[int | None, str]:
    """Return status and body of an address, or None and the reason why there is no answer."""
    from httpx2 import HTTPError
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    from h2o_pack.hub.client import at_most

    try:
        with at_most(MOST):
            response = get_session().get(address, timeout=seconds, follow_redirects=True)
            return response.status_code, response.text
    except UserError as error:
        return None, error.what
    except (HTTPError, OSError, ValueError) as error:
        return None, in_one_line(error)


def usable(endpoint: str) -> bool:
    """Whether an endpoint is an HTTP address."""
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


Check = Callable[[Surroundings], Finding]


def on_a_mac(check: Check) -> Check:
    """Return a check that is "not applicable" on systems other than macOS."""
    elsewhere = Finding("", "not applicable", "needs a Mac")
    return lambda machine: check(machine) if machine.is_mac else elsewhere


CHECKS: Mapping[str, Check] = {
    "macOS": on_a_mac(macos),
    "Xcode": on_a_mac(xcode),
    "Metal toolchain": on_a_mac(metal),
    "iOS SDK": on_a_mac(ios_sdk),
    "Swift": swift,
    "Python": python,
    "mlx": lambda _machine: pinned("mlx"),
    "mlx-lm": lambda _machine: pinned("mlx-lm"),
    "compiled module": compiled_module,
    "disk for packages": output,
    "disk for models": models,
    "hub": hub,
    "git": git,
}
GRACE_SECONDS = 5.0


def check_up(
    machine: Surroundings,
    checks: Mapping[str, Check] = CHECKS,
    seconds: float | None = None,
) -> Checkup:
    """Run the checks, each on a thread that is abandoned if it takes too long."""
    if seconds is None:
        seconds = 2 * machine.tool_seconds + GRACE_SECONDS
    deadline = time.monotonic() + seconds
    late = warning(
        f"no answer within {seconds:g} s", "Check this yourself, and run doctor again."
    )
    findings = dict.fromkeys(checks, late)

    def run(name: str, check: Check) -> None:
        try:
            findings[name] = check(machine)
        except Exception as error:  # noqa: BLE001  an error in one check must not end the others
            what = f"the check failed: {type(error).__name__}: {error}"
            findings[name] = warning(what, "Report this as an error of h2o-pack.")

    threads = [
        threading.Thread(target=run, args=item, name=f"doctor: {item[0]}", daemon=True)
        for item in checks.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return Checkup(tuple(replace(findings[name], name=name) for name in checks))
