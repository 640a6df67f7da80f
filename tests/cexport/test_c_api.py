"""The C API as C uses it; Swift's tests call its functions with real arrays."""

import shutil
import subprocess
from pathlib import Path

import mlx.core
import pytest

ROOT = Path(__file__).parents[2]
CMLX = ROOT / "swift_templates/standin/mlx-swift/Source/Cmlx"
MLX = Path(mlx.core.__file__).parent
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]


def run(*command: object) -> str:
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def include(tmp_path_factory) -> Path:
    """Cmlx's include folder as a package has it: mlx-c's headers and ours."""
    folder = tmp_path_factory.mktemp("include")
    shutil.copytree(CMLX / "include", folder, dirs_exist_ok=True)
    shutil.copy(ROOT / "cexport/c/h2o.h", folder / "mlx/c/h2o.h")
    return folder


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_header_is_c99_and_needs_no_other_before_it(include, tmp_path):
    source = tmp_path / "alone.c"
    source.write_text('#include "mlx/c/h2o.h"\nint main(void) { return 0; }\n')
    run("cc", *STRICT, "-fsyntax-only", "-I", include, source)


@pytest.mark.slow
def test_every_function_refuses_a_handle_that_is_empty(include, tmp_path):
    core = [*ROOT.glob("cexport/c/*.cpp"), CMLX / "mlx-c/mlx/c/array.cpp"]
    core += [*ROOT.glob("cexport/h2o/*.cpp"), *ROOT.glob("cexport/h2o/metal/*.cpp")]
    whole = tmp_path / "core.cpp"  # MLX's headers take longest to compile
    whole.write_text("".join(f'#include "{source}"\n' for source in sorted(core)))
    folders = [CMLX / "mlx-c", include, ROOT / "cexport/h2o", ROOT / "metal/kernels"]
    folders.append(MLX / "include")
    options = [part for folder in folders for part in ("-isystem", folder)]
    calls, program = tmp_path / "calls.o", tmp_path / "calls"
    source = Path(__file__).parent / "null_handles.c"
    run("cc", *STRICT, "-c", "-I", include, source, "-o", calls)
    library = ["-L", MLX / "lib", "-lmlx", f"-Wl,-rpath,{MLX / 'lib'}"]
    run("c++", "-std=c++20", "-O0", *options, whole, calls, *library, "-o", program)
    assert run(program) == ""
