"""What the kernels read and write, counted access by access."""

import pytest

from tests.metal import traffic


@pytest.fixture(scope="module")
def rows(host, backend):
    return {row.name: row for row in traffic.table(host, backend)}


def test_fused_quantized_steps_move_a_fraction_of_the_dense_bytes(rows):
    dense, eight, mixed, four = (rows[name].total for name in ("16", "8", "k8v4", "4"))
    assert eight <= 0.60 * dense
    assert four <= 0.35 * dense
    assert four < mixed < eight


def test_a_dense_step_reads_each_row_once_for_a_query_head_and_writes_one(rows):
    row = 2 * traffic.DIM * 2
    assert rows["16"].write == pytest.approx(2 * traffic.KV_HEADS * row, rel=0.5)
    keys_and_values = traffic.HEADS * traffic.ROWS * row
    logits = traffic.HEADS * traffic.ROWS * 4
    small = 4 * traffic.HEADS * traffic.DIM * 2
    assert keys_and_values + logits <= rows["16"].attention
    assert rows["16"].attention <= keys_and_values + logits + small


def test_the_figures_in_the_docs_are_those_counted(rows):
    page = traffic.PAGE.read_text("utf-8")
    assert traffic.with_table(page, list(rows.values())) == page
