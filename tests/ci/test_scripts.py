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


SIMULATOR = "H2OKit: this is a simulator, where MLX runs on the CPU: expect"


def test_what_the_simulators_step_waits_for_is_what_the_library_prints():
    script = (ROOT / ".ci/apple/simulator").read_text("utf-8")
    (waited_for,) = re.findall("grep -q '(.+)' ", script)
    assert SIMULATOR.startswith(waited_for)
    warnings = (ROOT / "swift_templates/H2OKit/H2OWarning.swift").read_text("utf-8")
    assert 'Data("H2OKit: \\(text)\\n".utf8)' in warnings
    assert f'"{waited_for.removeprefix("H2OKit: ")}' in warnings


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
