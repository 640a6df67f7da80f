"""The core, compiled for the MLX that mlx-swift contains, against the reference."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from filelock import FileLock

from h2o_pack.facts import pins
from h2o_py._pins import MLX_VERSION
from tests.processes import output_of

ROOT = Path(__file__).parents[2]
VERSIONS = ROOT / "cexport/older-mlx.txt"
OLDER = dict(re.findall(r"^([\w-]+)==([\d.]+)", VERSIONS.read_text("utf-8"), re.MULTILINE))
TREE = ROOT / "build/older-mlx"
PACKAGES = TREE / "packages"


def run(*command: object) -> str:
    """Run in the tree, with the older packages before those of this Python."""
    site = sysconfig.get_path("purelib")
    paths = os.pathsep.join(map(str, (TREE, PACKAGES, ROOT / "bridge", ROOT, site)))
    tools = os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"]))  # cmake, ninja
    settings = {**os.environ, "PATH": tools, "PYTHONPATH": paths}
    return output_of(*command, cwd=TREE, env=settings)


@pytest.fixture(scope="module")
def older() -> Path:
    """Copy our sources as if they were made for the older MLX, and compile the module."""
    TREE.mkdir(parents=True, exist_ok=True)
    with FileLock(TREE / ".lock"):
        if not PACKAGES.exists():
            downloads = TREE / "fetched"
            shutil.rmtree(downloads, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            run(*pip, "--no-compile", "--target", downloads, "--requirement", VERSIONS)
            downloads.rename(PACKAGES)
        for name in ("cexport", "interface", "metal/kernels", "h2o_py"):
            shutil.copytree(
                ROOT / name,
                TREE / name,
                ignore=shutil.ignore_patterns("*.so", "__pycache__"),
                dirs_exist_ok=True,
            )
        (TREE / "tests/cexport").mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests/cexport/bindings.cpp", TREE / "tests/cexport")
        made_for = TREE / "h2o_py/_pins.py"
        text = made_for.read_text("utf-8")
        made_for.write_text(text.replace(MLX_VERSION, OLDER["mlx"]), "utf-8")
        build = TREE / "build"
        run(
            "cmake", "-G", "Ninja", "-S", TREE / "cexport", "-B", build,
            f"-DPython_EXECUTABLE={sys.executable}", "-DH2O_OPTIMIZATION=-O0",
        )  # fmt: skip
        run("cmake", "--build", build)
        for name in ("_ext", "_policy"):
            (module,) = build.glob(f"{name}*.so")
            shutil.copy(module, TREE / "h2o_py")
    return TREE


def test_the_older_mlx_is_the_one_that_mlx_swift_contains():
    assert OLDER["mlx"] == OLDER["mlx-cpu"] == pins()["mlx"].version


@pytest.mark.nightly("tests/h2o_py/test_{core,cache,traffic}.py with the newer versions")
def test_core_and_caches_pass_their_tests_with_the_older_versions(older):
    versions = run(
        sys.executable, "-S", "-c",
        "from importlib import metadata, util; print(util.find_spec('h2o_py').origin,"
        "metadata.version('mlx'), metadata.version('mlx-lm'))",
    )  # fmt: skip
    assert versions == f"{older}/h2o_py/__init__.py {OLDER['mlx']} {OLDER['mlx-lm']}\n"
    tests = [ROOT / f"tests/h2o_py/test_{name}.py" for name in ("core", "cache", "traffic")]
    settings = ("-c", ROOT / "pyproject.toml", "-q", "-p", "no:cacheprovider")
    some = ("-k", "test_core or test_cache or k8v4-True or 16-False")
    output = run(sys.executable, "-S", "-m", "pytest", *settings, *tests, *some)
    assert " passed" in output
