"""What the workflows and scripts run, with stand-ins for what only other machines have."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from h2o_pack.parity.swift import OPTIMIZED, VENDORED_BUILD, Host
from tests.bridge.trees import program
from tests.processes import ROOT, python, ran

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


@pytest.mark.parametrize("page", ["README.md", "docs/quick-start.md"])
def test_the_pages_install_as_ci_does(page):
    text = (ROOT / page).read_text("utf-8")
    (block,) = re.findall(r"^```sh\n(make install.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert [line.partition(" #")[0].strip() for line in block.splitlines()] == [
        "make install",
        ". .venv/bin/activate",
        "h2o-pack doctor",
    ]


def test_no_message_installs_this_project_by_a_name_that_anybody_may_take():
    """It is not on PyPI."""
    name = re.compile(r"pip install[^\n`\",]*\bh2o-pack\b")
    sources = (
        path for folder in ("bridge", "h2o_py") for path in (ROOT / folder).rglob("*.py")
    )
    pages = (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"))
    assert not [path for path in (*sources, *pages) if name.search(path.read_text("utf-8"))]


def test_every_action_is_pinned_by_commit():
    actions = [step["uses"] for path in WORKFLOWS for step in steps(path) if "uses" in step]
    assert actions
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action) for action in actions)


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


# Scripts


def run(script: str, *arguments: object, tools: Path | None = None, **settings: str):
    path = os.environ["PATH"] if tools is None else f"{tools}{os.pathsep}{os.environ['PATH']}"
    return ran(ROOT / ".ci" / script, *arguments, env=os.environ | {"PATH": path, **settings})


def test_a_package_is_tested_where_and_as_parity_built_it(tmp_path):
    program(tmp_path, "swift", 'echo "$@"')
    host = Host("", Path("package"), Path("package", VENDORED_BUILD), flags=OPTIMIZED)
    result = run("package-tests", "package", tools=tmp_path)
    assert result.stdout.split() == ["test", *host.options, "--skip-build"]


@pytest.mark.parametrize(
    ("version", "enough"),
    [
        ("Apple Swift version 6.3 (swiftlang-6.3.0.1)", True),
        ("Swift version 6.10.2 (swift-6.10.2-RELEASE)", True),
        ("Swift version 6.2.4 (swift-6.2.4-RELEASE)", False),
        ("", False),
    ],
)
def test_a_swift_that_is_older_than_packages_need_fails_by_name(tmp_path, version, enough):
    program(tmp_path, "swift", f"echo '{version}'")
    result = run("require-swift", tools=tmp_path)
    assert (result.returncode == 0) == enough
    assert ("6.3 or newer is needed" in result.stderr) != enough


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
    old = program(tmp_path, "python3", "exit 1")
    for name in ("Makefile", "pyproject.toml", "requirements.lock", ".ci/uv.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    # What a virtual environment depends on is elsewhere: nothing of it is needed to say so.
    process = ran("make", target, f"PYTHON={old}", "SOURCES=", cwd=tmp_path)
    assert process.returncode == 2
    assert f"needs Python 3.11 or newer; {old} is older" in process.stdout
    assert not (tmp_path / "dist").exists()
    assert not (tmp_path / ".venv").exists()


PYTHON = """\
echo "python $*" >>"$LOG"
case "$*" in
  "-m venv "*)
    mkdir -p "$3/bin" "$3/lib/python3/site-packages"
    touch "$3/lib/python3/site-packages/_editable_.pth"
    cp "$0" "$3/bin/python"
    cp "$TOOL" "$3/bin/uv"
    cp "$TOOL" "$3/bin/h2o-pack" ;;
esac
"""
TOOL = 'echo "$(basename "$0") $*" >>"$LOG"'


def test_the_demo_after_an_installation_compiles_nothing(tmp_path):
    """With a Python that only notes its arguments; `.ci/ten-minutes` runs a real one."""
    checkout, tools = tmp_path / "checkout", tmp_path / "tools"
    program(tools, "python3", PYTHON)
    program(tools, "tool", TOOL)
    for name in (
        "Makefile",
        "requirements.lock",
        ".ci/uv.lock",
        "pyproject.toml",
        "interface/kernel_text.py",
        "h2o_py/_pins.py",
    ):
        (checkout / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / name, checkout / name)
    log = tmp_path / "log"
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "LOG": str(log), "TOOL": str(tools / "tool")}
    installed = ran("make", "install", cwd=checkout, env=env, check=True)
    assert "Compiling the core, which takes" in installed.stdout
    assert "h2o-pack is installed in .venv" in installed.stdout
    shown = ran("make", "demo", cwd=checkout, env=env, check=True)
    assert "Compiling" not in shown.stdout
    asked = log.read_text("utf-8").splitlines()
    assert [line for line in asked if "--editable" in line] == [
        "python -m pip install --quiet --disable-pip-version-check --no-compile "
        "--no-build-isolation --no-deps --editable ."
    ]
    assert sum("--require-hashes" in line for line in asked) == 2
    calls = [line.split()[1] for line in asked if line.startswith("h2o-pack")]
    assert calls == ["ios", "parity"]


@pytest.mark.parametrize(
    ("version", "summary"),
    [
        ("Apple Swift version 6.1.2 (swiftlang-6.1.2.1.2)", "Swift: 6.1.2 is older than 6.3"),
        ("Apple Swift version 6.3 (swiftlang-6.3.0.1)", "1 passed"),
    ],
)
def test_the_swift_half_is_left_out_where_swift_is_too_old_for_packages(
    tmp_path, version, summary
):
    program(tmp_path, "swift", f"echo '{version}'")
    test = tmp_path / "test_one.py"
    marked = "@pytest.mark.swift\ndef test_it():\n    pass\n"
    test.write_text(f"import pytest\n\n\n{marked}", "utf-8")
    options = ("-rs", "-p", "no:cacheprovider", "-p", "tests.left_out", "-W", "ignore::Warning")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    settings = {**os.environ, "PATH": path, **alone}
    process = python(
        "-m", "pytest", *options, "--rootdir", tmp_path, test, env=settings, check=True
    )
    assert summary in process.stdout
