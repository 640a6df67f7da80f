"""The text that MLX compiles where the kernels run is the text that ran here."""

from __future__ import annotations

import re

import pytest

from interface import kernel_text as text

INSTANCES = [(kernel, types) for kernel in text.kernels() for types in kernel.instances]


def test_each_instance_is_compiled_from_the_text_that_the_host_runs(host):
    for kernel, arguments in INSTANCES:
        host.compile_kernel(kernel.name, arguments)
    assert {text.instance_name(kernel.name, types) for kernel, types in INSTANCES} <= set(
        host.kernel_names()
    )


@pytest.mark.parametrize(
    ("kernel", "arguments", "refusal"),
    [
        ("h2o_attend", ["float", "80"], "made of the text with .*h2o_attend<float, 80>"),
        ("h2o_attend", ["float, 64> x; //", ""], "No kernel here was made of the text"),
        ("sdpa_vector", ["float", "64"], "There is no kernel sdpa_vector"),
    ],
)
def test_another_text_is_refused(host, kernel, arguments, refusal):
    with pytest.raises(ValueError, match=refusal):
        host.compile_kernel(kernel, arguments)


def test_a_copy_needs_no_constants():
    """MLX makes its pipeline with none, and Metal then refuses a text that declares any."""
    with_none = [h for h in text.libraries() if "function_constant(" not in text.library(h)]
    assert with_none == ["h2o_copy.h"]


@pytest.mark.parametrize("header", text.libraries())
def test_a_text_stands_alone_and_is_ascii(header):
    source = text.library(header)
    assert source.isascii()
    assert re.findall(r"^#include .*", source, re.MULTILINE) == ["#include <metal_stdlib>"]
    assert "//" not in source
