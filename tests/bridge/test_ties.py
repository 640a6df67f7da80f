from __future__ import annotations

from types import SimpleNamespace

import mlx.core as mx
import pytest

from h2o_pack.parity.op import TIE, tied
from h2o_py import H2OConfig
from h2o_py.rows import Ledger

CONFIG = H2OConfig(16, sink_size=1, heavy_budget=1, recent_budget=1)


def cache(positions: list[int], scores: list[float]) -> SimpleNamespace:
    """Return what `tied` asks of a cache, of one head that knows these rows, of novelty 0.1."""
    floats = mx.array([[scores]], mx.float32)
    ledger = Ledger(
        floats,
        mx.array([[positions]], mx.int32),
        mx.full(floats.shape, 0.1),
        mx.zeros((1, 1, 4)),
        mx.array([[-1]], mx.int32),
    )
    return SimpleNamespace(ledger=ledger, positions=ledger.positions, config=CONFIG)


@pytest.mark.parametrize("tokens", [1, 5])
def test_rows_of_almost_the_same_importance_tie(tokens):
    ours = cache([0, 1, 2], [1.0, 0.5, 0.3])
    theirs = cache([0, 1, 3], [1.0, 0.5, 0.3 + TIE / 2])
    before = cache([0, 1, 2, 3], [1.0, 0.5, 0.3, 0.3 + TIE / 2]).ledger
    said = tied(ours, theirs, before, tokens)
    assert said.startswith("head 0 ties [2] with [3]: their importances differ by ")


@pytest.mark.parametrize("tokens", [1, 5])
def test_rows_of_another_importance_do_not(tokens):
    ours = cache([0, 1, 2], [1.0, 0.5, 0.3])
    theirs = cache([0, 1, 3], [1.0, 0.5, 0.3 + 5 * TIE])
    before = cache([0, 1, 2, 3], [1.0, 0.5, 0.3, 0.3 + 5 * TIE]).ledger
    assert tied(ours, theirs, before, tokens) == ""


def test_a_row_that_was_not_there_ties_with_none():
    ours = cache([0, 1, 2], [1.0, 0.5, 0.3])
    theirs = cache([0, 1, 3], [1.0, 0.5, 0.3])
    assert tied(ours, theirs, cache([0, 1, 2], [1.0, 0.5, 0.3]).ledger, 1) == ""


def test_equal_positions_are_no_tie():
    ours = cache([0, 1, 2], [1.0, 0.5, 0.3])
    assert tied(ours, ours, ours.ledger, 1) == ""
