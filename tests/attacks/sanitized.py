"""The core built with sanitizers, in the place of the usual one."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from tests.processes import output_of

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/sanitized"
OPTIONS = "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024"


def build() -> None:
    """Build it with the compiler that builds the usual one."""
    settings = ["-DCMAKE_BUILD_TYPE=Release", "-DH2O_SANITIZE=ON"]
    settings.append(f"-DPython_EXECUTABLE={sys.executable}")
    configure = ["cmake", "-S", ROOT / "cexport", "-B", FOLDER, "-G", "Ninja", *settings]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in (configure, ["cmake", "--build", FOLDER, "-j", "2"]):
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PATH": path}
        )


def environment() -> dict[str, str]:
    """What a Python needs to load it: the sanitizers come before everything else."""
    names = ("libasan.so", "libstdc++.so.6")
    libraries = [output_of("c++", f"-print-file-name={name}").strip() for name in names]
    return {**os.environ, "LD_PRELOAD": ":".join(libraries), "ASAN_OPTIONS": OPTIONS}


def load() -> None:
    """Put it in the place of `h2o_py._ext`, before anything imports that."""
    import mlx.core  # noqa: F401  brings libmlx, which the module links

    import h2o_py

    [path] = FOLDER.glob("_ext.*.so")
    spec = importlib.util.spec_from_file_location("h2o_py._ext", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["h2o_py._ext"] = module
    h2o_py._ext = module  # type: ignore[attr-defined]
