"""H2ORecall: its defaults, what it refuses, and how many rows a cache has for it."""

import json
import warnings

import pytest

from h2o_py import H2OConfig, H2OConfigWarning, H2ORecall


def test_a_configuration_without_recall_is_written_as_before():
    assert "recall" not in H2OConfig(512).to_dict()
    assert H2OConfig(512).recall_rows == 0


@pytest.mark.parametrize(("size", "rows"), [(20, 9), (40, 19), (64, 31), (512, 64)])
def test_by_default_half_of_the_rows_and_at_most_64_are_recalled_where_there_is_room(
    size, rows
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OConfigWarning)
        assert H2OConfig(size, recall=H2ORecall()).recall_rows == rows


def test_recall_is_a_mapping_true_or_null_in_a_file():
    written = {"rows": 9, "layers": [0, 2], "store": "here", "limit": 1 << 40}
    config = H2OConfig.from_dict({"max_size": 512, "recall": written})
    assert config.recall == H2ORecall(9, layers=(0, 2), store="here", limit=1 << 40)
    assert H2OConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert H2OConfig.from_dict({"max_size": 512, "recall": True}).recall == H2ORecall()
    assert H2OConfig.from_dict({"max_size": 512, "recall": None}).recall is None


def test_a_command_line_gives_the_same_settings_as_words():
    words = ["rows=9", "layers=0,2", "store=a=b", "archive_bits=8"]
    assert H2ORecall.from_words(words) == H2ORecall(
        9, layers=(0, 2), store="a=b", archive_bits=8
    )


def test_rows_that_cannot_be_held_are_warned_about_once():
    with pytest.warns(H2OConfigWarning, match="leave 255 rows that a recall may") as caught:
        config = H2OConfig(512, recall=H2ORecall(rows=400))
    assert [each.message.code for each in caught] == ["recall_rows_shrink"]
    assert config.recall_rows == 255
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert config.of_layer(3).recall_rows == 255


def test_pins_take_rows_from_recall():
    with pytest.warns(H2OConfigWarning, match="leave 0 rows"):
        config = H2OConfig(512, recall=H2ORecall(), pinned=((0, 259),))
    assert config.recall_rows == 0


def test_a_layer_that_is_left_out_has_no_recall_and_each_other_its_own_folder():
    config = H2OConfig(512, recall=H2ORecall(layers=(1,), store="files"))
    assert config.of_layer(0).recall is None
    assert config.of_layer(1).recall == H2ORecall(store="files/layer-001")
