"""The C API as C uses it; Swift's tests call its functions with real arrays."""

import shutil
import subprocess
from pathlib import Path

import mlx.core
import pytest

ROOT = Path(__file__).parents[2]
MLX = Path(mlx.core.__file__).parent
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]


def run(*command: object) -> str:
    process = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_header_is_c99_and_needs_no_other_before_it(tmp_path):
    standin = ROOT / "swift_templates/standin/mlx-swift/Source/Cmlx/include"
    include = shutil.copytree(standin, tmp_path / "include")
    shutil.copy(ROOT / "cexport/c/h2o.h", include / "mlx/c/h2o.h")
    source = tmp_path / "alone.c"
    source.write_text('#include "mlx/c/h2o.h"\nint main(void) { return 0; }\n')
    run("cc", *STRICT, "-fsyntax-only", "-I", include, source)


def refuse_empty_handles(cmlx: Path, objects: list[Path], folder: Path) -> None:
    """Call every function with an empty handle, of a core that a package compiled.

    cmlx: the folder of the core's headers in C; folder: for what is made.
    """
    calls, program = folder / "calls.o", folder / "calls"
    source = Path(__file__).parent / "null_handles.c"
    run("cc", *STRICT, "-c", "-I", cmlx / "include", source, "-o", calls)
    library = ["-L", MLX / "lib", "-lmlx", f"-Wl,-rpath,{MLX / 'lib'}"]
    run("c++", calls, *objects, *library, "-o", program)
    assert run(program) == ""
