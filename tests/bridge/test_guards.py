"""Sources that only some of Apple's targets compile: MLX's backends, of which each has one."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from h2o_pack import assets
from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from h2o_pack.vendoring.edits import Guard, edits_of, guard_sources
from tests.bridge.refusals import refused
from tests.bridge.trees import build_tree, tree
from tools.upstream import __main__ as upstream

BACKEND = "Source/Cmlx/mlx/mlx/backend"
# One file of each folder, and the two of which only one may be there.
SOURCES = {
    f"mlx-swift/{BACKEND}/{name}.cpp": f'const char* {symbol}() {{\n  return "{side}";\n}}\n'
    for name, symbol, side in (
        ("gpu/copy", "copied_by", "GPU"),
        ("no_gpu/primitives", "copied_by", "CPU"),
        ("metal/metal", "run_by", "GPU"),
        ("metal/no_metal", "run_by", "CPU"),
        ("cpu/copy", "also", "CPU"),
    )
}
MAIN = """
#include <cstdio>
const char* copied_by();
const char* run_by();
const char* also();
int main() {
  std::printf("%s %s %s", copied_by(), run_by(), also());
}
"""
GUARD = Guard("mlx-swift", ("a/*.cpp", "b/**/*.cpp"), "C", count=1, version="0.31.6")


def shipped() -> tuple[Guard, ...]:
    """The guards of packages, for as many files as there are here."""
    guards = edits_of(assets.root()).applying("apple").guards
    assert [guard.count for guard in guards] == [37, 7]
    return tuple(replace(guard, count=2) for guard in guards)


@pytest.fixture
def vendor(tmp_path) -> Path:
    return build_tree(tmp_path / "Vendor", SOURCES)


def built(vendor: Path, folder: Path, *, simulator: bool) -> str:
    """Compile all of a folder, of which each function has one definition, and run it."""
    headers = build_tree(folder / "headers", {"TargetConditionals.h": ""})
    main = build_tree(folder, {"main.cpp": MAIN}) / "main.cpp"
    compiler = shutil.which("c++") or shutil.which("clang++")
    assert compiler
    options = [
        f"-DTARGET_OS_SIMULATOR={int(simulator)}",
        f"-I{headers}",
        "-o",
        folder / "program",
    ]
    subprocess.run([compiler, *options, main, *vendor.rglob("*.cpp")], check=True)
    done = subprocess.run([folder / "program"], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(("simulator", "said"), [(True, "CPU CPU CPU"), (False, "GPU GPU CPU")])
def test_a_simulator_has_the_backend_without_a_gpu_and_a_device_the_other(
    vendor, tmp_path, simulator, said
):
    guard_sources(vendor, shipped())
    assert built(vendor, tmp_path / "build", simulator=simulator) == said


def test_each_changed_file_is_recorded(vendor):
    before = tree(vendor)
    recorded = {file.path: file for file in guard_sources(vendor, shipped())}
    after = tree(vendor)
    assert {name for name in before if before[name] != after[name]} == set(recorded)
    for name, file in recorded.items():
        assert file.before == lock.sha256(before[name].encode())
        assert file.after == lock.sha256(after[name].encode())


def test_on_linux_nothing_is_guarded():
    assert edits_of(assets.root()).applying("linux").guards == ()


def test_files_that_upstream_added_or_took_away_are_refused_together(tmp_path):
    build_tree(tmp_path / "mlx-swift", dict.fromkeys(("b/x.cpp", "b/in/y.cpp", "c/x.cpp"), ""))
    which = "mlx-swift 0.31.6"
    expected = f"(mlx-swift, expected as in {which}). Use the sources of {which}."
    guards = [GUARD, replace(GUARD, paths=("c/*.cpp",), without=("x.cpp",))]
    assert refused(guard_sources, tmp_path, guards, code=ExitCode.VERSION).splitlines() == [
        f"2 files match a/*.cpp and b/**/*.cpp instead of 1 {expected}",
        f"0 files match c/*.cpp instead of 1 {expected}",
    ]


def test_a_file_that_upstream_added_has_drifted(tmp_path):
    as_expected = build_tree(tmp_path, {"b/x.cpp": ""})
    assert list(upstream.lost_files(as_expected, GUARD)) == []
    (drift,) = upstream.lost_files(build_tree(tmp_path, {"a/new.cpp": ""}), GUARD)
    assert drift.file == str(tmp_path)
    assert drift.expected == "the files of mlx-swift 0.31.6"
    assert drift.found.startswith("2 files match a/*.cpp and b/**/*.cpp instead of 1")
