from __future__ import annotations

import json
from pathlib import Path

import pytest

from h2o_pack.choice.losses import NOTHING, read_losses
from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation import report as compare
from h2o_pack.measure.evaluation.report import losses as losses_of
from h2o_pack.results import to_json
from h2o_py.storages import STORAGE_BITS
from tests.bridge.choice.made import measured, table


def test_a_measured_share_has_its_own_loss_and_those_between_lie_on_a_line_over_the_logarithm():
    losses = table(measured("8", 0.25, 0.3), measured("8", 1.0, 0.1))
    assert losses.loss("8", 0.25).kl == pytest.approx(0.3)
    assert losses.loss("8", 0.5).kl == pytest.approx(0.2)
    assert losses.loss("8", 1.0).kl == pytest.approx(0.1)


def test_all_rows_in_16_bits_lose_nothing():
    assert table().loss("dense", 1.0) == NOTHING


def test_between_shares_the_facts_are_those_of_fewer_rows():
    losses = table(measured("8", 0.25, 0.3, loses_facts=True), measured("8", 1.0, 0.1))
    assert losses.loss("8", 0.9).loses_facts
    assert not losses.loss("8", 1.0).loses_facts


def test_fewer_rows_than_were_measured_have_no_loss():
    assert table(measured("8", 0.25, 0.3)).loss("8", 0.2) is None
    assert table(measured("8", 0.25, 0.3)).loss("4", 0.5) is None


def test_a_table_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "losses.json"
    path.write_text(to_json(table()))
    assert read_losses(path) == table()


def test_a_file_that_is_no_table_is_refused(tmp_path):
    path = tmp_path / "losses.json"
    path.write_text(json.dumps({"format": 1, "model": "x"}))
    with pytest.raises(UserError, match="is not a table of losses"):
        read_losses(path)


def test_the_bundled_table_has_every_storage_with_all_rows_and_most_with_fewer():
    losses = read_losses()
    for kv in STORAGE_BITS:
        assert losses.loss(kv, 1.0) is not None
    for kv in ("dense", "8", "k8v4", "4", "r8h4"):
        assert losses.least_share(kv) < 0.5


def test_a_report_without_a_cache_of_all_rows_gives_no_table():
    chat = compare.read(Path(__file__).parents[3] / "docs/results/chat/results.json")
    assert losses_of(chat) is None


def test_the_bundled_table_is_what_the_committed_evaluation_gives():
    folder = Path(__file__).parents[3] / "docs/results/storages"
    report = compare.read(folder / "results.json")
    assert losses_of(report) == read_losses()
