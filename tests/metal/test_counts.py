"""What the kernels read and write, counted access by access."""

import struct

import mlx.core as mx
import pytest

from tests.metal import traffic

ROWS, DIM, HEADS = 70, 64, 4


def run_attention(host, kernel, *, emits, masked=False):
    """One dispatch of MLX's attention with our edits; its counts by buffer."""
    mx.random.seed(0)
    q = mx.random.normal((1, HEADS, 1, DIM))
    k, v = (mx.random.normal((1, 2, ROWS, DIM)) for _ in range(2))
    two = "2pass_1" in kernel
    blocks = 32
    constants = {
        20: masked, 21: False, 22: False, 23: masked, 24: False, 25: False,
    }  # fmt: skip
    if emits is not None:
        constants[27] = emits
    arrays = {0: q, 1: k, 2: v}
    strides = [struct.pack("<Q", n) for n in (ROWS * DIM, DIM, ROWS * DIM, DIM)]
    number = lambda n: struct.pack("<i", n)
    scale = struct.pack("<f", 0.125)
    first_mask = 15 if two else 13
    if two:
        constants[26] = blocks
        data = {7: number(ROWS), **dict(enumerate(strides, 8)), 12: scale}
        outputs = {
            3: ((HEADS, blocks, DIM), mx.float32),
            4: ((HEADS, blocks), mx.float32),
            5: ((HEADS, blocks), mx.float32),
        }
        grid, group = (2, 1, blocks), (32, 2, 1)
    else:
        data = {4: number(2), 5: number(ROWS), **dict(enumerate(strides, 6)), 10: scale}
        outputs = {3: ((HEADS, DIM), mx.float32)}
        grid, group = (HEADS, 1, 1), (1024, 1, 1)
    if masked:
        arrays[13 if two else 11] = mx.arange(ROWS) % 3 != 1
        data.update({first_mask: number(1), first_mask + 1: number(0)})
        data[first_mask + 2] = number(0)
    if emits:
        outputs[27] = ((HEADS, ROWS), mx.float32)
    host.reset_counters()
    host.run(
        kernel, grid, group, arrays=arrays, outputs=outputs, data=data, constants=constants
    )
    (entry,) = host.counters()
    # What is passed by value lies in constant memory, which a GPU holds in registers.
    return {i: dict(b) for i, b in entry["buffers"].items() if i not in data}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kernel", ["sdpa_vector", "sdpa_vector_2pass_1"])
def test_scores_cost_one_store_of_four_bytes_each_and_nothing_else(host, kernel, masked):
    name = f"{kernel}_float_{DIM}_{DIM}"
    silent = run_attention(host, name, emits=None, masked=masked)
    off = run_attention(host, name, emits=False, masked=masked)
    on = run_attention(host, name, emits=True, masked=masked)
    assert off == silent
    scores = on.pop(27)
    assert on == silent
    assert scores["stores"] == HEADS * ROWS
    assert scores["bytes_stored"] == 4 * HEADS * ROWS
    assert scores["written"] == 4 * HEADS * ROWS
    assert scores["loads"] == 0


@pytest.fixture(scope="module")
def rows(host, backend):
    return {row.name: row for row in traffic.table(host, backend)}


def test_fused_quantized_steps_move_a_fraction_of_the_dense_bytes(rows):
    assert rows["8-bit"].ratio <= 0.60
    assert rows["4-bit"].ratio <= 0.35
    assert rows["4-bit"].ratio < rows["keys 8, values 4"].ratio < rows["8-bit"].ratio


def test_a_dense_step_reads_each_row_once_for_a_query_head_and_writes_one(rows):
    row = 2 * traffic.DIM * 2
    assert rows["dense"].write == pytest.approx(2 * traffic.KV_HEADS * row, rel=0.5)
    keys_and_values = traffic.HEADS * traffic.ROWS * row
    logits = traffic.HEADS * traffic.ROWS * 4
    small = 4 * traffic.HEADS * traffic.DIM * 2
    assert keys_and_values + logits <= rows["dense"].attention
    assert rows["dense"].attention <= keys_and_values + logits + small


def test_the_figures_in_the_docs_are_those_counted(rows):
    page = traffic.PAGE.read_text("utf-8")
    assert traffic.with_table(page, list(rows.values())) == page
    assert traffic.DATA.read_text("utf-8") == traffic.to_json(list(rows.values()))
