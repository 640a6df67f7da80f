"""The layers in which recall pays: chosen from a profile, written by `budgets`, read again."""

from __future__ import annotations

import json

import msgspec
import pytest

from h2o_pack.measure.profiling import show
from h2o_pack.measure.profiling.report import Profile
from h2o_pack.measure.profiling.rules import Reach, recalling_layers
from h2o_py.budgets import Budgets, load_budgets, read_budgets
from h2o_py.errors import H2OBudgetsError
from tests.bridge import schemas
from tests.bridge.measure.profiles import profiled
from tests.h2o_py.small_models import small_model

WINDOWS = (8, 64, 512)


def looking(index, lost):
    """A layer that loses so much at 64 rows."""
    return Reach(index, WINDOWS, (1.0, lost, 0.0))


def chosen(*lost, rows=64):
    layers = [looking(index, share) for index, share in enumerate(lost)]
    return recalling_layers(layers, dict.fromkeys(range(len(lost)), rows))


def test_layers_that_look_past_their_rows_more_than_the_mean_are_chosen():
    assert chosen(0.1, 0.02, 0.5, 0.01) == (2,)
    assert chosen(0.3, 0.02, 0.5, 0.01) == (0, 2)


def test_layers_that_look_back_alike_are_all_chosen():
    assert chosen(0.1, 0.1, 0.1) == (0, 1, 2)


def test_no_layer_is_chosen_where_nothing_is_lost():
    assert chosen(0.1, 0.5, rows=512) == ()


def test_a_layers_own_rows_count():
    layers = [looking(0, 0.4), looking(1, 0.4)]
    assert recalling_layers(layers, {0: 64, 1: 512}) == (0,)


@pytest.fixture
def uneven(tmp_path):
    """A profile.json of a small model, of whose full layers 1 and 3 the third looks back."""
    profile, _ = profiled(small_model("gemma3_text"))
    document = msgspec.to_builtins(profile)
    sizes = document["windows"]
    document["layers"][1]["beyond"] = [0.1 * (1 - i / len(sizes)) for i in range(len(sizes))]
    document["layers"][3]["beyond"] = [0.9 * (1 - i / len(sizes)) for i in range(len(sizes))]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("measure", ["concentration", "reach"])
def test_budgets_name_the_layers_only_if_asked(run, tmp_path, uneven, measure):
    output = tmp_path / "budgets.json"
    flags = ["--profile", uneven, "--max-kv", 80, "--measure", measure, "--output", output]
    result = run("budgets", "--json", *flags)
    assert schemas.check(json.loads(result.stdout), "budgets")["recall"] is None
    assert set(json.loads(output.read_text())) == {"format", "layers"}
    result = run("budgets", "--json", *flags, "--recall")
    assert schemas.check(json.loads(result.stdout), "budgets")["recall"] == [3]
    made = load_budgets(output)
    assert made.recall == (3,)
    assert read_budgets(made.to_dict(), made.source) == made
    shown = run("budgets", *flags, "--recall")
    assert "layers in which recall pays: 3" in shown.stdout


def test_a_profile_marks_the_layers_for_a_few_sizes(uneven):
    profile = msgspec.json.decode(uneven.read_bytes(), type=Profile)
    tables = {table.title: table for table in show.sections(profile)}
    table = tables["Layers in which recall pays"]
    assert table.header == ("layer", "9 rows", "18 rows", "37 rows")
    marked = {row[0]: [cell.endswith(", recall") for cell in row[1:]] for row in table.rows}
    assert marked == {"1": [False] * 3, "3": [True] * 3}


@pytest.mark.parametrize("recall", [3, [1, 1], [2, 1], [-1], [4], ["1"], [True], [0.0], {}])
def test_a_wrong_list_of_layers_is_refused(recall):
    document = {"format": 1, "layers": [None] * 4, "recall": recall}
    with pytest.raises(H2OBudgetsError, match="budgets: recall: it must be a list of incr"):
        read_budgets(document, "budgets")


def test_recall_in_a_layer_that_evicts_nothing_is_refused():
    budgets = Budgets((None, None), recall=(1,))
    with pytest.raises(H2OBudgetsError, match=r"recall: layer 1 of gemma3 .* Leave it out"):
        budgets.check_layers([True, False], "gemma3")
