"""The header of the C API, which Swift imports; Swift's tests call its functions."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STANDIN = ROOT / "swift_templates/standin/mlx-swift/Source/Cmlx"
HEADERS = ("h2o.h", "h2o_policy.h")
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_header_is_c99_and_needs_no_other_before_it(tmp_path):
    """In Cmlx's include folder as a package has it: mlx-c's headers and ours."""
    shutil.copytree(STANDIN / "include", tmp_path, dirs_exist_ok=True)
    for header in HEADERS:
        shutil.copy(ROOT / "cexport/c" / header, tmp_path / "mlx/c" / header)
    source = tmp_path / "alone.c"
    includes = "".join(f'#include "mlx/c/{name}"\n' for name in HEADERS)
    source.write_text(includes + "int main(void) { return 0; }\n")
    command = ["cc", *STRICT, "-fsyntax-only", "-I", str(tmp_path), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
