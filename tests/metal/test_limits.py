"""Threadgroup memory and buffers of kernels, and what Metal allows of them."""

from __future__ import annotations

import pytest

from tests.metal.checking import HEAD, kernel, line_of, read
from tools.kernels.compiler import (
    check_buffers,
    check_limits,
    read_calls,
    read_names,
    threadgroup_bytes,
)
from tools.kernels.source import Buffer, kernels_of, prepare

TWO = """
[[kernel]] void two(
    device float* out [[buffer(31)]],
    const device bool* a [[buffer(4), function_constant(has_a)]], // not [[buffer(9)]]
    const constant int& b [[buffer(4)]],
    uint at [[thread_position_in_grid]]) {}
"""


@pytest.mark.parametrize(("floats", "too_much"), [(8192, 0), (8193, 1)])
def test_threadgroup_memory_may_be_32_kib(tmp_path, floats, too_much):
    translation, prepared = read(tmp_path, kernel(f"threadgroup T x[{floats}];\nx[0] = 1;"))
    found = check_limits(translation, prepared)
    assert len(found) == too_much
    for finding in found:
        assert "tested_float takes 32772 bytes" in finding.message


def test_threadgroup_memory_of_called_functions_counts(tmp_path):
    before = """
    struct Pair { int a; int64_t b; };
    void helper() {
      threadgroup Pair x[3];
      threadgroup int y;
      x[0].a = 1;
      y = 2;
    }
    """
    body = "threadgroup T x[2][3];\nx[0][0] = 1;\nhelper();"
    translation, _ = read(tmp_path, kernel(body, before))
    names = read_names(translation.ir)
    assert names.keys() == {"tested_float"}
    taken = threadgroup_bytes(read_calls(translation.ir), names["tested_float"])
    assert taken == 2 * 3 * 4 + 3 * 16 + 4


def test_buffers_are_read_with_their_gates():
    assert kernels_of(TWO) == {
        "two": (
            Buffer(31, "out"),
            Buffer(4, "a", "has_a"),
            Buffer(4, "b"),
        )
    }


def test_an_index_that_metal_lacks_or_that_is_taken_is_found(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/t.metal").write_text(HEAD + TWO)
    found = check_buffers(prepare(tmp_path / "made", tmp_path / "own"))
    assert [finding.line for finding in found] == [
        line_of(HEAD + TWO, "buffer(31)"),
        line_of(HEAD + TWO, "buffer(4)"),
    ]
    assert "the last is 30" in found[0].message
    assert "a shares the index 4" in found[1].message
