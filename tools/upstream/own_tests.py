"""Run upstream's own tests with h2o-pack in them: python -m tools.upstream.own_tests FOLDER.

FOLDER contains clones of mlx-lm and mlx-swift-lm, or one of them. The tests of mlx-lm for
caches, generation, server and models run as they are, with routing installed, and with H2O
caches in place of mlx-lm's. With --package, the tests of mlx-swift-lm run in a copy of the
package's Vendor folder, without and with the edits of mlx-swift-lm; that needs a Mac, because
their package has targets that import AVFoundation. Prints each test that ends otherwise. Tests
that need a model of the hub end alike without a network, so they show nothing there. The exit
code is 1 if a test ends otherwise.
"""
# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

from h2o_pack import assets
from h2o_pack.errors import ExitCode, usage_error
from h2o_pack.files import lock
from h2o_pack.files.paths import VENDOR_FOLDER
from h2o_pack.parity.swift import LEAN, OPTIMIZED, environment, failure, run_command
from h2o_pack.vendoring.edits import apply_all, edits_of
from tools.upstream.attached import ATTACHED, MODE, ROUTED

PLAIN = "as they are"
TESTS = ("test_prompt_cache", "test_generate", "test_server", "test_models")
PASSED = "passed"
LIBRARIES, SWIFT_TESTS = "Libraries", "Tests/MLXLMTests"
TEST_TARGET = re.compile(r"\.testTarget\(\s*name: \"MLXLMTests\".*?\n        \),", re.DOTALL)
NO_TESTS = "// h2o-pack: no tests"
"""Where an edit has removed a target of tests from Package.swift."""
ENDED = re.compile(r"Test (?:Case ')?(?P<name>[^'\n]+?)'? (?P<end>passed|failed|skipped)\b")
Outcomes = Mapping[str, str]


def of_mlx_lm(clone: Path, mode: str) -> Outcomes:
    """Run the tests of a clone of mlx-lm, with its code; returns how each ended, by its name.

    mode: PLAIN, ROUTED or ATTACHED.
    """
    with TemporaryDirectory() as work:
        report = Path(work, "report.xml")
        paths = [clone / "tests" / f"{name}.py" for name in TESTS]
        files = [str(path) for path in paths if path.is_file()]
        options = ("-q", "-n", "0", "-c", os.devnull, "--continue-on-collection-errors")
        plugin = ("-p", "tools.upstream.attached", f"--junitxml={report}")
        settings = {MODE: mode, "PYTHONPATH": f"{clone}{os.pathsep}{assets.root()}"}
        command = [sys.executable, "-m", "pytest", *options, *plugin, *files]
        subprocess.run(command, cwd=work, env={**os.environ, **settings}, check=False)  # noqa: S603
        return dict(outcomes(ET.parse(report)))  # noqa: S314 - written by pytest


def outcomes(report: ET.ElementTree[ET.Element]) -> Mapping[str, str]:
    """Return how each test of a JUnit report ended, by its name."""
    found = {}
    for case in report.iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        name = f"{case.get('classname')}.{case.get('name')}"
        found[name] = next(iter(sorted(kinds)), PASSED)
    return found


def of_mlx_swift_lm(clone: Path, package: Path, work: Path) -> tuple[Outcomes, Outcomes]:
    """Run mlx-swift-lm's tests without and with the edits; returns how each ended, by its name.

    Edits for the package's host alone stay, because without them nothing compiles. package: has
    a Vendor folder. work: an empty folder.
    """
    vendor = work / VENDOR_FOLDER
    shutil.copytree(package / VENDOR_FOLDER, vendor)
    root = vendor / "mlx-swift-lm"
    shutil.copytree(clone / SWIFT_TESTS, root / SWIFT_TESTS)
    manifest = root / "Package.swift"
    [target] = TEST_TARGET.findall((clone / "Package.swift").read_text("utf-8"))
    manifest.write_text(manifest.read_text("utf-8").replace(NO_TESTS, target, 1), "utf-8")
    record = lock.read(package).vendor
    if record is None:
        raise usage_error(f"{package} has no Vendor folder", "Run h2o-pack vendor there first.")
    edits = edits_of(assets.root()).applying(record.host)
    needed = replace(edits, edits=tuple(e for e in edits.edits if e.only)).by_file()
    libraries = root / LIBRARIES
    for path in libraries.rglob("*.swift"):
        file = path.relative_to(root)
        if not (clone / file).is_file():
            path.unlink()  # h2o-pack has added it
            continue
        text = (clone / file).read_text("utf-8")
        text = apply_all(text, needed.get((root.name, file.as_posix()), ()))
        if text != path.read_text("utf-8"):
            path.write_text(text, "utf-8")
    plain = run_swift(root, work / "build")
    edited = package / VENDOR_FOLDER / root.name / LIBRARIES
    shutil.copytree(edited, libraries, dirs_exist_ok=True)
    return plain, run_swift(root, work / "build")


def run_swift(package: Path, scratch: Path) -> Outcomes:
    """Run the tests of a Swift package; returns how each ended, by its name."""
    places = ("--package-path", str(package), "--scratch-path", str(scratch))
    command = ["swift", "test", *places, *LEAN, *OPTIMIZED]
    log = scratch.with_suffix(".log")
    run_command(command, log, environment({}), lambda _line: None)
    found = {m["name"]: m["end"] for m in ENDED.finditer(log.read_text("utf-8", "replace"))}
    if not found:
        raise failure("swift test", log)
    return found


def differing(plain: Outcomes, other: Outcomes) -> list[str]:
    """Return a line for each test that ends otherwise."""
    return [
        f"  {name}: {plain.get(name, 'missing')} -> {other.get(name, 'missing')}"
        for name in sorted({*plain, *other})
        if plain.get(name) != other.get(name)
    ]


def print_differences(what: str, plain: Outcomes, others: Mapping[str, Outcomes]) -> int:
    """Print the differences; returns how many there are."""
    counts = Counter(plain.values())
    print(f"{what}, {PLAIN}: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    count = 0
    for mode, found in others.items():
        lines = differing(plain, found)
        print(f"{what}, {mode}: {len(lines)} end otherwise", *lines, sep="\n")
        count += len(lines)
    return count


def main(arguments: list[str] | None = None) -> int:
    """Run the tests that a folder has; return 1 if one ends otherwise, and otherwise 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.upstream.own_tests", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="a folder of clones")
    parser.add_argument("--package", type=Path, help="a package with Vendor, for mlx-swift-lm")
    options = parser.parse_args(arguments)
    count = 0
    clone = options.folder / "mlx-lm"
    if clone.is_dir():
        others = {mode: of_mlx_lm(clone, mode) for mode in (ROUTED, ATTACHED)}
        count += print_differences("mlx-lm", of_mlx_lm(clone, PLAIN), others)
    clone = options.folder / "mlx-swift-lm"
    if clone.is_dir() and options.package is not None:
        with TemporaryDirectory() as work:
            plain, edited = of_mlx_swift_lm(clone, options.package, Path(work))
        count += print_differences("mlx-swift-lm", plain, {"with the edits": edited})
    return int(ExitCode.DIFFERENT) if count else 0


if __name__ == "__main__":
    sys.exit(main())
