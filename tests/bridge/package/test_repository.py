"""A package in git and on a build server."""

import os

import pytest
import yaml

from h2o_pack.package.build import make_package
from h2o_pack.spec import CacheSpec
from tests.bridge.plans import plan_of
from tests.bridge.trees import program
from tests.processes import ran

WORKFLOW = ".github/workflows/h2o-pack.yml"


@pytest.fixture
def clone(model, tmp_path):
    """A repository with a package in a subfolder, as a colleague has it: without Vendor."""
    root = tmp_path / "repository"
    package = make_package(plan_of(model, CacheSpec(max_kv=512)), root / "apps/My Demo").folder
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.com")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "All")):
        ran(*git, "-c", "filter.lfs.clean=cat", *command, cwd=root, check=True)
    return package


def test_git_lfs_has_the_weights_and_git_the_rest(clone):
    paths = ("Model/model.safetensors", "Model/tokenizer.json", "Model/a/model.safetensors")
    shown = ran("git", "check-attr", "filter", "--", *paths, cwd=clone, check=True).stdout
    filters = dict(line.split(": filter: ") for line in shown.splitlines())
    assert filters == dict(zip(paths, ("lfs", "unspecified", "lfs"), strict=True))
    ignored = ran("git", "check-ignore", "Vendor/mlx-swift", "README.md", cwd=clone).stdout
    assert ignored.splitlines() == ["Vendor/mlx-swift"]


def test_the_workflow_finds_the_package_builds_the_app_and_runs_parity_on_demand(clone):
    jobs = yaml.safe_load((clone / WORKFLOW).read_text("utf-8"))["jobs"]
    find = next(s["run"] for s in jobs["app"]["steps"] if "PACKAGE=" in s.get("run", ""))
    root = clone.parents[1]
    settings = os.environ | {"GITHUB_ENV": str(root / "env")}
    ran("bash", "-ec", find, cwd=root, env=settings, check=True)
    assert (root / "env").read_text("utf-8") == "PACKAGE=apps/My Demo\n"
    build = jobs["app"]["steps"][-1]
    assert build["working-directory"] == "${{ env.PACKAGE }}"
    assert [line.split()[-1] for line in build["run"].splitlines()[1:]] == ["build", "test"]
    demanded = {name for name, job in jobs.items() if "workflow_dispatch" in job.get("if", "")}
    assert demanded == set(jobs) - {"app"}
    assert "parity" not in str(jobs["app"])


@pytest.mark.parametrize("has_vendor", [False, True])
def test_xcode_clouds_script_fetches_weights_and_makes_vendor_unless_it_is_there(
    clone, tmp_path, has_vendor
):
    tools, log = tmp_path / "tools", tmp_path / "log"
    log.touch()
    for name in ("brew", "git", "python3.12", "xcrun"):
        program(tools, name, f'echo "{name} $*" >>"{log}"')
    for name in ("pip", "h2o-pack"):
        program(tmp_path / "home/h2o-pack/bin", name, f'echo "{name} $*" >>"{log}"')
    if has_vendor:
        (clone / "Vendor").mkdir()
    settings = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "H2O_PACK": "git+https://example.com@1",
    }
    ran(clone / "App/ci_scripts/ci_post_clone.sh", cwd=tmp_path, env=settings, check=True)
    calls = log.read_text("utf-8").splitlines()
    assert "git lfs pull" in calls
    assert ("pip install git+https://example.com@1" in calls) != has_vendor
    assert ("h2o-pack vendor ." in calls) != has_vendor


@pytest.mark.swift
def test_a_build_without_vendor_says_in_one_line_what_to_run(clone):
    process = ran("swift", "package", "dump-package", cwd=clone)
    assert process.returncode != 0
    lines = [line for line in process.stderr.splitlines() if "Vendor" in line]
    assert set(lines) == {
        "Vendor is missing. In the folder of this Package.swift, run: h2o-pack vendor ."
    }


def test_the_readme_begins_with_the_code_to_paste(clone):
    text = (clone / "README.md").read_text("utf-8")
    assert text.splitlines()[2:4] == ["```swift", "import H2OSessions"]
    assert "\n## In git and on a build server\n" in text
