"""The Swift half of parity: the sources that it builds, its programs, and MLX's kernels."""

import dataclasses
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock
from h2o_pack.parity import swift as swift_half
from h2o_pack.parity.swift import Host
from h2o_pack.vendoring.vendor import digest
from tests.bridge.trees import build_tree, program, tree
from tests.messages import refused, says

# The sources


@pytest.fixture
def package(copied_assets, tiny_package):
    return tiny_package


def test_without_vendored_sources_the_stand_in_takes_their_place(package):
    host = swift_half.prepare(package)
    says(host.name)
    files = tree(host.root)
    assert files["Package.swift"].startswith((package / "Package.swift").read_text())
    for name in tree(package / "Sources"):
        assert files[f"Sources/{name}"] == (package / "Sources" / name).read_text()
    for name in (
        "mlx-swift/Package.swift",
        "mlx-swift/Source/Cmlx/h2o/h2o.cpp",
        "mlx-swift/Source/Cmlx/include/mlx/c/h2o.h",
        "mlx-swift/Source/MLX/MLXFast+H2OLayerCache.swift",
        "mlx-swift-lm/Libraries/MLXLMCommon/RoutedAttentionCache.swift",
    ):
        assert f"Vendor/{name}" in files


@pytest.mark.swift
def test_beside_the_stand_in_parity_builds_the_caches_and_their_tests(package):
    host = swift_half.prepare(package)
    command = ["swift", "package", "--package-path", host.root, "dump-package"]
    targets = []
    for settings in ({}, host.settings):
        env = swift_half.environment(settings)
        document = json.loads(subprocess.check_output(command, env=env))
        targets.append({target["name"] for target in document["targets"]})
    assert targets[1] == {"H2OKit", "H2OKitTests"} < targets[0]


def test_only_what_changed_is_written_again(package, copied_assets):
    root = swift_half.prepare(package).root
    times = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    for path in times:
        os.utime(path, ns=(1, 1))
    source = next((copied_assets / "cexport/h2o").glob("*.cpp"))
    source.write_text(source.read_text() + "// changed\n")
    swift_half.prepare(package)
    paths = {path.name for path in times if path.stat().st_mtime_ns != 1}
    assert paths == {source.name}


def test_what_the_package_no_longer_has_goes(package):
    extra = package / "Sources/H2OKit/Extra.swift"
    extra.write_text("let extra = 1\n")
    root = swift_half.prepare(package).root
    assert (root / "Sources/H2OKit/Extra.swift").exists()
    extra.unlink()
    swift_half.prepare(package)
    assert not (root / "Sources/H2OKit/Extra.swift").exists()


@pytest.mark.parametrize("link", [".parity", ".parity/package", ".parity/package/Sources"])
def test_parity_deletes_and_writes_nothing_through_a_link_in_the_package(
    package, tmp_path, link
):
    """`sync` deletes what is not its own: here the files of another folder."""
    home = build_tree(tmp_path / "home", {"mine": "mine", "package/mine": "mine"})
    (package / link).parent.mkdir(parents=True, exist_ok=True)
    (package / link).symlink_to(home)
    before = tree(home)
    says(refused(swift_half.prepare, package, code=ExitCode.OUTPUT))
    assert tree(home) == before


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_parity_writes_to_no_link_or_pipe_in_its_folder(package, tmp_path, kind):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (package / ".parity/text").mkdir(parents=True)
    place = package / ".parity/text/request.json"
    if kind == "link":
        place.symlink_to(mine)
    else:
        os.mkfifo(place)
    says(refused(swift_half.work_folder, package, code=ExitCode.OUTPUT))
    assert mine.read_text() == "mine"


def vendored(package, assets_root, host: str = swift_half.SYSTEM) -> None:
    build_tree(package, {"Vendor/mlx-swift/Package.swift": ""})
    record = lock.read(package)
    vendor = lock.Vendored(host, digest(assets_root), (), "0" * 64)
    (package / lock.NAME).write_text(dataclasses.replace(record, vendor=vendor).to_json())


def test_vendored_sources_are_used_in_place(package, copied_assets):
    vendored(package, copied_assets)
    host = swift_half.prepare(package)
    assert host.name == "mlx-swift 0.31.6 with mlx-swift-lm main-2026-08-22 (vendored)"
    assert host.root == package


refusal = partial(refused, swift_half.prepare, code=ExitCode.VERSION)


def test_vendored_sources_with_other_edits_are_refused(package, copied_assets):
    vendored(package, copied_assets)
    core = copied_assets / "cexport/c/h2o.cpp"
    core.write_text(core.read_text() + "// newer\n")
    says(refusal(package))


def test_vendored_sources_for_another_host_are_refused(package, copied_assets):
    system = "apple" if swift_half.SYSTEM == "linux" else "linux"
    vendored(package, copied_assets, system)
    says(refusal(package))


# Programs


def test_without_swift_there_is_no_toolchain(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert swift_half.find_swift() is None


def test_without_a_cxx_compiler_the_message_says_how_to_get_one(tmp_path, monkeypatch):
    program(tmp_path / "bin", "swift", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    says(refused(swift_half.find_swift, code=ExitCode.TOOL))


def test_a_compiler_without_the_standard_library_is_named(tmp_path, monkeypatch):
    program(tmp_path / "bin", "swift", "exit 0")
    program(tmp_path / "bin", "clang++", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    says(refused(swift_half.find_swift, code=ExitCode.TOOL))


def test_swift_with_a_working_compiler_beside_it_is_found(tmp_path, monkeypatch):
    swift = program(tmp_path / "bin", "swift", "exit 0")
    program(tmp_path / "bin", "clang++", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert swift_half.find_swift() == str(swift)


def test_builds_link_the_mlx_of_this_python():
    env = swift_half.environment({"H2O_PARITY_TRACE": "/t"})
    assert (Path(env["MLX_ROOT"]) / "include" / "mlx" / "mlx.h").is_file()
    assert env["MLX_DISABLE_COMPILE"] == "1"
    assert env["H2O_PARITY_TRACE"] == "/t"


def test_a_programs_output_goes_to_the_log_and_line_by_line_to_the_caller(tmp_path):
    lines: list[str] = []
    log = tmp_path / "deep" / "log"
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    command = [sys.executable, "-u", "-c", code]
    assert swift_half.run_command(command, log, {}, lines.append) == 3
    assert lines == ["one", "two"]
    assert log.read_text() == "one\ntwo\n"


def test_an_interruption_ends_the_program(tmp_path):
    def stop(_line: str) -> None:
        raise KeyboardInterrupt

    command = [sys.executable, "-u", "-c", "import time; print('on'); time.sleep(600)"]
    with pytest.raises(KeyboardInterrupt):
        swift_half.run_command(command, tmp_path / "log", {}, stop)


@pytest.fixture
def swift(tmp_path):
    """Return a host, and a program in the place of swift that builds it."""

    def make(body: str) -> tuple[Host, str]:
        path = program(tmp_path, "swift", body)
        return Host("h", tmp_path, tmp_path), str(path)

    return make


def test_tests_run_after_the_build(swift, tmp_path):
    host, tool = swift('echo "$1 $H2O_PARITY_TRACE"; [ "$1" = build ] || exit 3')
    lines: list[str] = []
    build = swift_half.build(host, tool, tmp_path, lines.append)
    for trace in ("one", "two"):
        assert build.run_tests("Tests", {"H2O_PARITY_TRACE": trace}, lines.append) == 3
    assert [line.strip() for line in lines[1:]] == ["build", "test one", "test two"]


def test_a_build_that_fails_ends_with_swifts_words(swift, tmp_path):
    host, tool = swift("echo 'a.swift: error: no such thing'; echo '[2/2] Linking'; exit 1")
    says(refused(swift_half.build, host, tool, tmp_path, print, code=ExitCode.TOOL))


def test_dependencies_that_cannot_be_fetched_are_named_with_the_remedy(swift, tmp_path):
    host, tool = swift(
        "echo 'error: Failed to clone repository https://github.com/apple/swift-numerics:'\n"
        "echo \"fatal: unable to access 'https://github.com/apple/swift-numerics/': no host\"\n"
        "echo \"fatal: unable to access 'https://github.com/ibireme/yyjson.git/': no host\"\n"
        "exit 1"
    )
    with pytest.raises(UserError) as error:
        swift_half.build(host, tool, tmp_path, print)
    assert error.value.what == (
        "swift build cannot fetch packages that upstream depends on: "
        "https://github.com/apple/swift-numerics, https://github.com/ibireme/yyjson"
    )
    assert "--offline" in error.value.remedy
    assert "set-mirror" in error.value.remedy


# MLX's kernels beside the tests, by a stand-in for Apple's tools

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


@pytest.fixture
def mac(tmp_path, monkeypatch) -> Host:
    """Return a package with upstream's sources, built on a machine that passes for a Mac."""
    program(tmp_path / "bin", "xcrun", XCRUN)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setattr(swift_half, "SYSTEM", "apple")
    package = build_tree(
        tmp_path / "Demo",
        {f"{swift_half.KERNELS}/{name}": text for name, text in KERNELS.items()},
    )
    (package / BINARY).mkdir(parents=True)
    return Host("vendored", package, package / "out")


def calls(host: Host) -> list[str]:
    """Return which of Apple's tools have run so far."""
    return [line.split()[2] for line in (host.root.parent / "calls").read_text().splitlines()]


def test_the_library_is_made_of_every_kernel_and_lies_beside_the_binary(mac):
    swift_half.place_metallib(mac, mac.root / "out")
    assert calls(mac) == ["metal"] * 3 + ["metallib"]
    assert tree(mac.root / BINARY) == {"mlx.metallib": "gemv\nrope\nanother rope\n"}


def test_kernels_that_did_not_change_are_not_compiled_again(mac):
    swift_half.place_metallib(mac, mac.root / "out")
    (mac.root / BINARY / "mlx.metallib").unlink()
    swift_half.place_metallib(mac, mac.root / "out")
    assert calls(mac).count("metallib") == 1
    assert (mac.root / BINARY / "mlx.metallib").is_file()


@pytest.mark.parametrize("name", ["gemv.metal", "utils.h"])
def test_kernels_that_changed_are_compiled_again(mac, name):
    swift_half.place_metallib(mac, mac.root / "out")
    library = mac.root / swift_half.WORK / swift_half.METALLIB
    later = library.stat().st_mtime + 1
    os.utime(mac.root / swift_half.KERNELS / name, (later, later))
    swift_half.place_metallib(mac, mac.root / "out")
    assert calls(mac).count("metallib") == 2


def test_kernels_that_do_not_compile_are_refused_with_the_compilers_words(mac, tmp_path):
    missing = "error: cannot execute tool 'metal' due to missing Metal Toolchain"
    program(tmp_path / "bin", "xcrun", f'#!/bin/sh\necho "{missing}" >&2\nexit 1\n')
    says(refused(swift_half.place_metallib, mac, mac.root / "out", code=ExitCode.TOOL))
    assert not (mac.root / swift_half.WORK / swift_half.METALLIB).exists()


def test_without_apples_tools_the_refusal_says_what_is_missing(mac, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    says(refused(swift_half.place_metallib, mac, mac.root / "out", code=ExitCode.TOOL))


@pytest.mark.parametrize(
    ("system", "vendored", "needed"),
    [("apple", True, True), ("apple", False, False), ("linux", True, False)],
)
def test_only_upstreams_sources_on_a_mac_need_a_library(
    mac, monkeypatch, system, vendored, needed
):
    monkeypatch.setattr(swift_half, "SYSTEM", system)
    if not vendored:
        (mac.root / "Vendor").rename(mac.root / "NoVendor")
    assert swift_half.needs_metallib(mac) == needed


def test_tests_start_with_the_library_beside_them(mac, tmp_path):
    # The stand-in for swift passes its tests only where the library is.
    body = (
        f'case "$*" in *--show-bin-path*) echo "{mac.root / "out"}";; '
        f'test*) test -s "{mac.root / BINARY / "mlx.metallib"}";; esac'
    )
    program(tmp_path / "bin", "swift", f"#!/bin/sh\n{body}\n")
    swift = str(tmp_path / "bin/swift")
    build = swift_half.build(mac, swift, tmp_path / "work", print)
    assert build.run_tests("Tests", {}, print) == 0
