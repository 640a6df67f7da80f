"""The C API, called from C: its header alone, then every function of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

ROOT = Path(__file__).parents[2]
STANDIN = ROOT / "swift_templates/standin/mlx-swift/Source/Cmlx"
MLX = Path(mx.__file__).parent
# libmlx brings its own Fortran library, which the linker need not look for.
LINK = ["-Wl,--allow-shlib-undefined"] if sys.platform == "linux" else []
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]

needs_compilers = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("c++")), reason="there is no C and C++ compiler"
)


@pytest.fixture(scope="module")
def include(tmp_path_factory):
    """Cmlx's include folder as a package has it: mlx-c's headers and ours."""
    folder = tmp_path_factory.mktemp("include")
    shutil.copytree(STANDIN / "include", folder, dirs_exist_ok=True)
    for header in ("h2o.h", "h2o_policy.h"):
        shutil.copy(ROOT / "cexport/c" / header, folder / "mlx/c" / header)
    return folder


def run(*command):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@needs_compilers
def test_the_header_is_c99_and_needs_no_other_before_it(include, tmp_path):
    source = tmp_path / "alone.c"
    source.write_text('#include "mlx/c/h2o.h"\nint main(void) { return 0; }\n')
    run("cc", *STRICT, "-fsyntax-only", "-I", include, source)


@needs_compilers
@pytest.mark.slow
def test_a_c_program_calls_every_function_and_gets_the_same_errors(include, tmp_path):
    run(
        "cc", *STRICT, "-c", Path(__file__).with_name("caller.c"), "-I", include,
        "-o", tmp_path / "caller.o",
    )  # fmt: skip
    sources = [
        *(ROOT / "cexport/h2o").rglob("*.cpp"),
        ROOT / "cexport/c/h2o.cpp",
        *(STANDIN / "mlx-c/mlx/c").glob("*.cpp"),
    ]
    program = tmp_path / "caller"
    run(
        "c++", "-std=c++20", "-O0", "-w", tmp_path / "caller.o", *sources,
        "-I", ROOT / "cexport/h2o", "-I", include, "-I", STANDIN / "mlx-c",
        "-isystem", MLX / "include", "-L", MLX / "lib", "-lmlx", f"-Wl,-rpath,{MLX / 'lib'}",
        *LINK,
        "-o", program,
    )  # fmt: skip
    assert run(program) == "0 failures\n"
