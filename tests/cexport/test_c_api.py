"""The C API as C uses it; Swift's tests call its functions with real arrays."""

import shutil
from pathlib import Path

import mlx.core
import pytest

from tests.processes import ROOT, output_of

MLX = Path(mlx.core.__file__).parent
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_header_is_c99_and_needs_no_other_before_it(tmp_path):
    standin = ROOT / "swift_templates/standin/mlx-swift/Source/Cmlx/include"
    include = shutil.copytree(standin, tmp_path / "include")
    shutil.copy(ROOT / "cexport/c/h2o.h", include / "mlx/c/h2o.h")
    source = tmp_path / "alone.c"
    source.write_text('#include "mlx/c/h2o.h"\nint main(void) { return 0; }\n')
    output_of("cc", *STRICT, "-fsyntax-only", "-I", include, source)


def refuse_empty_handles(cmlx: Path, objects: list[Path], folder: Path) -> None:
    """Call every function with an empty handle, of a core that a package compiled.

    cmlx: the folder of the core's headers in C; folder: for what is made.
    """
    calls, program = folder / "calls.o", folder / "calls"
    source = Path(__file__).parent / "null_handles.c"
    output_of("cc", *STRICT, "-c", "-I", cmlx / "include", source, "-o", calls)
    library = ["-L", MLX / "lib", "-lmlx", f"-Wl,-rpath,{MLX / 'lib'}"]
    output_of("c++", calls, *objects, *library, "-o", program)
    assert output_of(program) == ""
