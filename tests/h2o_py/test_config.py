"""H2OConfig and H2ORecall: defaults, what they refuse, and their JSON form."""

import json
import pickle
import re

import mlx.core as mx
import pytest

from h2o_py import H2OConfig, H2OConfigWarning, H2ORecall
from h2o_py.errors import H2OConfigError


def test_defaults_split_the_rows_into_sinks_heavy_and_recent():
    config = H2OConfig(512)
    assert (config.sink_size, config.heavy_budget, config.recent_budget) == (4, 256, 252)
    assert (config.score, config.pinned) == ("peak", ())


def test_the_published_policy_is_selectable():
    config = H2OConfig.paper(256)
    assert config.score == "abs_logit"


def test_round_trips_through_json():
    config = H2OConfig(300, score="softmax", pinned=((10, 20), (30, 31)))
    assert H2OConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_few_recent_tokens_are_warned_about_where_the_configuration_is_made():
    with pytest.warns(H2OConfigWarning, match="recent_budget = 28 is below 64") as records:
        H2OConfig(64)
    assert records[0].filename == __file__


def test_an_error_is_a_value_that_front_ends_word_and_processes_exchange():
    with pytest.raises(H2OConfigError) as raised:
        H2OConfig(64, heavy_budget=-1)
    error = pickle.loads(pickle.dumps(raised.value))  # noqa: S301  our own
    assert (error.code, error.field) == ("out_of_range", "heavy_budget")
    assert error.values["value"] == -1
    assert error.what(lambda field: f"<{field}>") == (
        "<heavy_budget> must be between 0 and 2147483647, got -1"
    )
    error.where = "settings.json"
    assert str(error).startswith("settings.json: heavy_budget must be between")


# What is said of each is in tests/golden/pages/configurations.txt.
REFUSED = (
    {"max_size": 0},
    {"max_size": 8.5},
    {"max_size": True},
    {"max_size": 64, "sink_size": -1},
    {"max_size": 512, "recall": 1},
    {"max_size": 512, "recall": {"row": 1}},
    {"max_size": 512, "recall": {"ask": 0}},
    {"max_size": 512, "recall": {"reach": -1}},
    {"max_size": 512, "recall": {"reach": True}},
    {"max_size": 512, "recall": {"archive_bits": 5}},
    {"max_size": 512, "recall": {"layers": [-1]}},
    {"max_size": 512, "recall": {"store": ""}},
    {"max_size": 512, "recall": {"limit": 2**60}},
    {"max_size": 5},
    {"max_size": 64, "heavy_budget": 40, "recent_budget": 40},
    {"max_size": 64, "recent_budget": 0},
    {"max_size": 64, "score": "peek"},
    {"max_size": 64, "pinned": [(5, 5)]},
    {"max_size": 64, "pinned": [(1, 2, 3)]},
    {"max_size": 64, "pinned": 7},
    {"max_size": 64, "pinned": [(4, 40)]},
    {"max_sise": 64},
    {"sink_size": 4},
)


def refusals():
    """Return each of them with what is said of it."""
    texts = []
    for values in REFUSED:
        with pytest.raises(H2OConfigError) as error:
            H2OConfig.from_dict(values)
        texts.append(f"{values}\n{error.value}\n")
    return "\n".join(texts)


@pytest.mark.parametrize("sink_size", [0, 1, 4, 9])
def test_the_size_that_a_refusal_proposes_is_the_smallest_that_works(sink_size):
    for size in range(1, 40):
        try:
            H2OConfig(size, sink_size=sink_size)
        except ValueError as refusal:
            proposed = str(refusal)
        else:
            break
    assert re.search(rf"(at least|max_size to) {size}\b", proposed)


def test_overlapping_pins_count_once():
    H2OConfig(64, heavy_budget=10, recent_budget=20, pinned=((0, 30), (10, 40), (2, 3)))
    with pytest.raises(ValueError, match="take 64"):
        H2OConfig(64, heavy_budget=10, recent_budget=20, pinned=((0, 44),))


def test_the_core_refuses_what_python_refuses():
    from types import SimpleNamespace

    from h2o_py._compiled import ext

    settings = vars(H2OConfig(64))
    names = {
        "key_bits": 16,
        "value_bits": 16,
        "group_size": 64,
        "dtype": mx.float32,
        "recent_bits": 0,
        "rotated": False,
    }

    def make(changes):
        policy = SimpleNamespace(**{key: changes.get(key, settings[key]) for key in settings})
        rows = {key: changes.get(key, names[key]) for key in names}
        return ext.CacheConfig(policy, **rows)

    make({})
    for change, message in [
        ({"max_size": 10}, "budgets_exceed_max_size"),
        ({"key_bits": 3}, "key_bits is 3; it must be 4, 8 or 16."),
        ({"value_bits": 4}, "either both are 16 or neither is."),
        ({"group_size": 16}, "group_size is 16; it must be 32, 64 or 128."),
        ({"score": "mean"}, "'known': 'peak, softmax, abs_logit'"),
    ]:
        with pytest.raises(ValueError) as error:
            make(change)
        assert message in str(error.value)


def test_a_configuration_without_recall_is_written_as_before():
    assert "recall" not in H2OConfig(512).to_dict()


def test_recall_is_a_mapping_true_or_null_in_a_file():
    document = {"reach": 9, "layers": [0, 2], "store": "here", "limit": 1 << 40}
    config = H2OConfig.from_dict({"max_size": 512, "recall": document})
    assert config.recall == H2ORecall(reach=9, layers=(0, 2), store="here", limit=1 << 40)
    assert H2OConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert H2OConfig.from_dict({"max_size": 512, "recall": True}).recall == H2ORecall()
    assert H2OConfig.from_dict({"max_size": 512, "recall": None}).recall is None


def test_a_command_line_gives_the_same_settings_as_words():
    words = ["reach=9", "layers=0,2", "store=a=b", "archive_bits=8"]
    assert H2ORecall.from_words(words) == H2ORecall(
        reach=9, layers=(0, 2), store="a=b", archive_bits=8
    )


def test_a_layer_that_is_left_out_has_no_recall_and_each_other_its_own_folder():
    config = H2OConfig(512, recall=H2ORecall(layers=(1,), store="files"))
    assert config.of_layer(0).recall is None
    assert config.of_layer(1).recall == H2ORecall(store="files/layer-001")
