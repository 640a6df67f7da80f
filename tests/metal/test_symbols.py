"""The C++ that drives MLX's Metal classes, against mlx's wheel for macOS."""

from __future__ import annotations

import pytest

from h2o_pack.facts import pins
from h2o_py._pins import MLX_VERSION
from tests.metal.checking import macos
from tools.kernels.macos import (
    WHEELS,
    check_symbols,
    compile_host,
    find_compiler,
    find_nm,
    mlx_folders,
)

START = """
#include "mlx/mlx.h"
#include "mlx/backend/metal/device.h"
#include "mlx/backend/gpu/copy.h"
namespace mx = mlx::core;
void go(mx::Stream s, mx::array& out) {
  auto& device = mx::metal::device(s.device);
"""


def newest():
    return mlx_folders(macos())[0]


@pytest.fixture
def compiled(tmp_path):
    """Compile statements that drive MLX; return the errors and the objects' folder."""

    def compile_(*statements: str):
        source = tmp_path / "driver.cpp"
        source.write_text(START + "".join(f"  {each}\n" for each in statements) + "}\n")
        compiler = find_compiler()
        assert compiler
        return compile_host(newest(), compiler, tmp_path / "objects", [source]), (
            tmp_path / "objects"
        )

    return compile_


def missing_symbols(objects):
    nm = find_nm()
    assert nm
    return check_symbols(newest(), objects, nm)


WRONG = {
    "device.get_libary();": "no member named 'get_libary'",
    'mx::metal::get_command_encoder("one");': "no viable conversion",
    'device.get_kernel("k", out);': "no matching member function",
    "MTL::Size size(1, 2);": "no matching constructor",
    "device.mtl_device()->newBufer(1);": "no member named 'newBufer'",
    "MTL::DataType type = MTL::DataType::DataTypeBoole;": "DataTypeBoole",
}
"""Statements, and the compiler's words for what is wrong with each."""


def test_a_call_that_mlx_or_metal_does_not_have_is_an_error(compiled):
    errors, _ = compiled(*WRONG)
    assert [error.line for error in errors] == [*range(8, 8 + len(WRONG))]
    for error, words in zip(errors, WRONG.values(), strict=True):
        assert words in error.message


def test_a_function_that_libmlx_keeps_to_itself_is_reported(compiled):
    errors, objects = compiled("out = mx::contiguous_copy_gpu(out, s);")
    assert errors == []
    (finding,) = missing_symbols(objects)
    assert "mlx::core::contiguous_copy_gpu(" in finding.message
    assert "only for libmlx itself" in finding.message


def test_a_function_that_libmlx_does_not_have_is_reported(tmp_path):
    source = tmp_path / "other.cpp"
    source.write_text(
        "namespace mlx::core { void nowhere(int); }\nvoid f() { mlx::core::nowhere(1); }\n"
    )
    compiler = find_compiler()
    assert compiler
    assert compile_host(newest(), compiler, tmp_path / "objects", [source]) == []
    (finding,) = missing_symbols(tmp_path / "objects")
    library = f"mlx-{MLX_VERSION}/libmlx.dylib"
    assert str(finding) == f"{library}: mlx::core::nowhere(int) is not there"


def test_the_wheels_are_of_the_mlx_of_python_and_of_that_in_mlx_swift():
    versions = [wheel.version for wheel in WHEELS if wheel.name == "mlx-metal"]
    assert versions == [MLX_VERSION, pins()["mlx"].version]
