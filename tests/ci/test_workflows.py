"""What the workflows run is what can be run by hand, and what a runner left out is said."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
ELSEWHERE = ("gh release create ", "mv dist/notes.md ")


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


def lines() -> Iterator[str]:
    """Yield the lines of all that CI and make run, those that are continued as one."""
    scripts = [path for path in (ROOT / ".ci").rglob("*") if os.access(path, os.X_OK)]
    for path in (ROOT / "Makefile", *WORKFLOWS, *filter(Path.is_file, scripts)):
        yield from path.read_text("utf-8").replace("\\\n", " ").splitlines()


def test_a_build_fetches_from_registries_by_hash_only():
    installs = [line for line in lines() if re.search(r"pip install|\$\(PIP\) -", line)]
    assert len(installs) == 6  # one of them defines PIP
    for line in installs:
        assert re.search("--require-hashes|--no-deps|PIP :=", line), line
    (build,) = [line for line in lines() if "-m build " in line]
    assert "--no-isolation" in build
    fetching = re.compile(r"\b(pipx|uvx|npx|npm|curl|wget|brew|cargo|go install)\b")
    assert not [line for line in lines() if fetching.search(line)]


def test_every_action_is_pinned_by_commit():
    used = [step["uses"] for path in WORKFLOWS for step in steps(path) if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", each) for each in used)


def test_pull_requests_run_on_runners_of_github_only():
    """`xcode-27` is a preview's label, which a machine of somebody's own might have too."""
    hosted = re.compile(r"(ubuntu|macos)-[0-9.]+(-arm)?")
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            labels = job.get("strategy", {}).get("matrix", {}).get("runner", [job["runs-on"]])
            of_forks = "!= 'pull_request'" not in job.get("if", "")
            assert not of_forks or all(map(hosted.fullmatch, labels)), labels


def test_make_apple_runs_each_step_of_its_workflow():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (all_of_them,) = re.findall(r"^apple: (.+)$", makefile, re.MULTILINE)
    (workflow,) = [path for path in WORKFLOWS if path.stem == "apple"]
    in_workflow = re.findall(r"make (apple-[a-z-]+)", workflow.read_text("utf-8"))
    assert sorted(all_of_them.split()) == sorted(in_workflow)
