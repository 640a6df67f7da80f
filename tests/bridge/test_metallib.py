"""MLX's kernels beside the tests of a package, by a stand-in for Apple's tools."""

from __future__ import annotations

import os

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.parity import swift as hosts
from h2o_pack.parity import swift as toolchain
from h2o_pack.parity.swift import Host
from tests.bridge.refusals import refused
from tests.bridge.trees import build_tree, tree
from tests.messages import says

# Compiles by copying, so that what a library is made of can be read, and notes each call.
XCRUN = """#!/usr/bin/env bash
set -euo pipefail
echo "$@" >>"$CALLS"
[[ $1 == -sdk && $2 == macosx ]]
if [[ $3 == metal ]]; then
  [[ $4 == -fno-fast-math && $5 == -c && $7 == -o ]]
  cp "$6" "$8"
else
  [[ $3 == metallib && $4 == -o ]]
  cat "${@:6}" >"$5"
fi
"""
KERNELS = {
    "rope.metal": "rope\n",
    "steel/rope.metal": "another rope\n",
    "gemv.metal": "gemv\n",
    "utils.h": "a header\n",
}
BINARY = "out/DemoPackageTests.xctest/Contents/MacOS"


def program(folder, name: str, text: str) -> None:
    build_tree(folder, {name: text})
    (folder / name).chmod(0o755)


@pytest.fixture
def mac(tmp_path, monkeypatch) -> Host:
    """Return a package with upstream's sources, built on a machine that passes for a Mac."""
    program(tmp_path / "bin", "xcrun", XCRUN)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setattr(toolchain, "SYSTEM", "apple")
    package = build_tree(
        tmp_path / "Demo",
        {f"{toolchain.KERNELS}/{name}": text for name, text in KERNELS.items()},
    )
    (package / BINARY).mkdir(parents=True)
    return Host("vendored", package, package / "out")


def calls(host: Host) -> list[str]:
    """Return which of Apple's tools have run so far."""
    return [line.split()[2] for line in (host.root.parent / "calls").read_text().splitlines()]


def test_the_library_is_made_of_every_kernel_and_lies_beside_the_binary(mac):
    toolchain.place_metallib(mac, mac.root / "out")
    assert calls(mac) == ["metal"] * 3 + ["metallib"]
    assert tree(mac.root / BINARY) == {"mlx.metallib": "gemv\nrope\nanother rope\n"}


def test_kernels_that_did_not_change_are_not_compiled_again(mac):
    toolchain.place_metallib(mac, mac.root / "out")
    (mac.root / BINARY / "mlx.metallib").unlink()
    toolchain.place_metallib(mac, mac.root / "out")
    assert calls(mac).count("metallib") == 1
    assert (mac.root / BINARY / "mlx.metallib").is_file()


@pytest.mark.parametrize("changed", ["gemv.metal", "utils.h"])
def test_kernels_that_changed_are_compiled_again(mac, changed):
    toolchain.place_metallib(mac, mac.root / "out")
    library = mac.root / hosts.WORK / toolchain.METALLIB
    later = library.stat().st_mtime + 1
    os.utime(mac.root / toolchain.KERNELS / changed, (later, later))
    toolchain.place_metallib(mac, mac.root / "out")
    assert calls(mac).count("metallib") == 2


def test_kernels_that_do_not_compile_are_refused_with_the_compilers_words(mac, tmp_path):
    missing = "error: cannot execute tool 'metal' due to missing Metal Toolchain"
    program(tmp_path / "bin", "xcrun", f'#!/bin/sh\necho "{missing}" >&2\nexit 1\n')
    said = refused(toolchain.place_metallib, mac, mac.root / "out", code=ExitCode.TOOL)
    says(said)
    assert not (mac.root / hosts.WORK / toolchain.METALLIB).exists()


def test_without_apples_tools_the_refusal_says_what_is_missing(mac, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    said = refused(toolchain.place_metallib, mac, mac.root / "out", code=ExitCode.TOOL)
    says(said)


@pytest.mark.parametrize(
    ("system", "vendored", "needed"),
    [("apple", True, True), ("apple", False, False), ("linux", True, False)],
)
def test_only_upstreams_sources_on_a_mac_need_a_library(
    mac, monkeypatch, system, vendored, needed
):
    monkeypatch.setattr(toolchain, "SYSTEM", system)
    if not vendored:
        (mac.root / "Vendor").rename(mac.root / "NoVendor")
    assert toolchain.needs_metallib(mac) == needed


def test_tests_start_with_the_library_beside_them(mac, tmp_path):
    # The stand-in for swift passes its tests only where the library is.
    body = (
        f'case "$*" in *--show-bin-path*) echo "{mac.root / "out"}";; '
        f'test*) test -s "{mac.root / BINARY / "mlx.metallib"}";; esac'
    )
    program(tmp_path / "bin", "swift", f"#!/bin/sh\n{body}\n")
    swift = str(tmp_path / "bin/swift")
    build = toolchain.build(mac, swift, tmp_path / "work", print)
    assert build.run_tests("Tests", {}, print) == 0
