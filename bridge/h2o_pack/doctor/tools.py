"""Tools of every platform: Swift, git, clang."""

from __future__ import annotations

import re

from h2o_pack.doctor.finding import Finding, ok, problem, warning
from h2o_pack.doctor.surroundings import (
    Surroundings,
    as_version,
    needed,
    not_understood,
    older,
    shown,
)
from h2o_pack.errors import GET_SWIFT

SWIFT = re.compile(r"Swift version (\d+(?:\.\d+)*)")
GIT = re.compile(r"git version (\d+(?:\.\d+)*)")
CLANG = re.compile(r"clang version (\d+(?:\.\d+)*)")


def swift(machine: Surroundings) -> Finding:
    """Builds and tests packages; elsewhere than on a Mac only parity asks for it."""
    name, least = "Swift", needed("swift")
    get = "Install Xcode." if machine.is_mac else f"Install Swift: {GET_SWIFT}"
    ran = machine.run("swift", "--version")
    if ran is None:
        what = "it is missing: `h2o-pack parity` cannot run the package's tests"
        return problem(name, what, get) if machine.is_mac else warning(name, what, get)
    found = SWIFT.search(ran.said)
    if ran.code != 0 or found is None:
        return not_understood(name, ran, get)
    version = as_version(found[1])
    if older(version, least):
        what = f"{shown(version)} is older than {least}, which generated packages need"
        get = get.replace("Install", "Update", 1)
        return problem(name, what, get) if machine.is_mac else warning(name, what, get)
    return ok(name, shown(version))


def git(machine: Surroundings) -> Finding:
    """Fetches upstream's sources for a package's Vendor folder."""
    name, least = "git", needed("git")
    install = "xcode-select --install" if machine.is_mac else "apt install git"
    ran = machine.run("git", "--version")
    if ran is None:
        what = "it is missing: upstream's sources cannot be fetched"
        return problem(name, what, f"Run: {install}; or give `h2o-pack vendor --upstream`.")
    if "license" in ran.said.lower() and machine.is_mac:
        remedy = "Run: sudo xcodebuild -license accept"
        return problem(name, "Xcode's license has not been agreed to", remedy)
    found = GIT.search(ran.said)
    if ran.code != 0 or found is None:
        return not_understood(name, ran, f"Run: {install}")
    version = as_version(found[1])
    if older(version, least):
        what = f"{shown(version)} is older than {least}: it may not fetch commits by their id"
        return warning(name, what, f"Update it: {install}")
    return ok(name, shown(version))


def clang(machine: Surroundings) -> Finding:
    """Only h2o-pack's own tests and `kernels check` compile the Metal kernels with it."""
    name, least = "clang", needed("clang")
    use = "optional; h2o-pack's own tests and `kernels check` use it"
    get = "Install Xcode." if machine.is_mac else "Run: apt install clang, or install Swift."
    ran = machine.run("clang++", "--version")
    if ran is None:
        return warning(name, f"clang++ is missing ({use})", get)
    if ran.code == 0 and "Apple clang" in ran.said:
        return ok(name, ran.line)
    found = CLANG.search(ran.said)
    if ran.code != 0 or found is None:
        return not_understood(name, ran, get)
    version = as_version(found[1])
    if older(version, least):
        return warning(name, f"{shown(version)} is older than {least} ({use})", get)
    return ok(name, shown(version))
