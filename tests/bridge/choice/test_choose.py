from __future__ import annotations

from dataclasses import replace

import pytest

from h2o_pack.choice.choose import candidates_of, chosen_model
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.models.catalogue import as_model
from tests.bridge.choice.made import CATALOGUE, GB, device, known, measured, question, table


def chosen(found):
    """The name of the chosen model and its cache."""
    return found.chosen.model, found.chosen.cache


def reasons(found):
    """Why each model that was not chosen was refused."""
    return {each.model: each.refused.reason for each in found.models if each.refused}


def test_the_largest_model_that_fits_gets_the_full_context_in_16_bits_where_that_fits():
    found = candidates_of(question(6 * GB), CATALOGUE, table())
    model, cache = chosen(found)
    assert (model, cache.kv, cache.max_kv, cache.recall) == ("large", "dense", 8192, False)
    assert reasons(found) == {"medium": "smaller", "small": "smaller"}


def test_else_it_gets_the_full_context_in_fewer_bits_if_those_lose_less_than_fewer_rows():
    bits = [
        chosen(candidates_of(question(limit * GB // 10), CATALOGUE, table()))[1]
        for limit in (52, 48)
    ]
    assert [(each.kv, each.max_kv, each.recall) for each in bits] == [
        ("8", 8192, False),
        ("4", 8192, False),
    ]


def test_else_as_many_rows_as_fit_at_the_bits_that_lose_least_with_recall_from_files():
    losses = table(
        measured("dense", 0.125, 0.3), measured("8", 0.125, 0.2), measured("8", 1.0, 0.01)
    )
    wanted = question(int(4.6 * GB))
    found = candidates_of(wanted, CATALOGUE, losses)
    model, cache = chosen(found)
    assert (model, cache.kv, cache.recall) == ("large", "8", True)
    assert 1024 < cache.max_kv < 8192
    filled = chosen_model(wanted, found).cache
    assert (filled.recall, filled.archive, filled.max_kv) == (True, "files", cache.max_kv)


def test_the_rows_are_the_most_that_leave_the_margin():
    found = candidates_of(
        question(int(4.6 * GB)), CATALOGUE, table(measured("dense", 0.125, 0.3))
    )
    _, cache = chosen(found)
    assert cache.headroom_share >= found.margin
    more = question(int(4.6 * GB), max_kv=cache.max_kv + 64, kv="dense", recall=True)
    assert candidates_of(more, CATALOGUE, table()).chosen.model != "large"


def test_the_table_decides_the_order():
    rows_first = table(
        measured("dense", 0.125, 0.001), measured("8", 0.25, 0.5), measured("8", 1.0, 0.4)
    )
    _, cache = chosen(candidates_of(question(int(5.2 * GB)), CATALOGUE, rows_first))
    assert cache.kv == "dense"
    assert cache.max_kv < 8192


def test_facts_that_are_lost_for_certain_count_before_divergence():
    losses = table(measured("8", 1.0, 0.001, loses_facts=True), measured("4", 1.0, 0.5))
    _, cache = chosen(candidates_of(question(int(5.2 * GB)), CATALOGUE, losses))
    assert cache.kv == "4"


def test_recall_is_not_chosen_where_the_table_sees_no_gain():
    losses = table(measured("dense", 0.125, 0.3), recall_pays=False)
    _, cache = chosen(candidates_of(question(int(4.6 * GB)), CATALOGUE, losses))
    assert not cache.recall


def test_fewer_rows_than_were_ever_measured_are_never_chosen():
    losses = table(measured("dense", 0.9, 0.3))
    assert chosen(candidates_of(question(int(4.6 * GB)), CATALOGUE, losses))[0] == "medium"


def test_a_storage_that_was_never_measured_is_never_chosen():
    found = candidates_of(question(int(5.2 * GB)), CATALOGUE, table())
    refused = {each.kv: each.refused.reason for each in found.caches if each.refused}
    assert refused["r8h4"] == "not measured"


def test_several_devices_get_what_serves_all_of_them():
    both = candidates_of(question(6 * GB, int(3.3 * GB)), CATALOGUE, table())
    alone = candidates_of(question(int(3.3 * GB)), CATALOGUE, table())
    assert chosen(both) == chosen(alone)
    assert chosen(both)[0] == "medium"


def test_what_is_given_is_kept_and_the_rest_is_chosen():
    kv = candidates_of(question(6 * GB, kv="4"), CATALOGUE, table())
    assert (chosen(kv)[0], chosen(kv)[1].kv) == ("large", "4")
    rows = candidates_of(question(6 * GB, max_kv=512), CATALOGUE, table())
    assert chosen(rows)[1].max_kv == 512
    no_recall = candidates_of(question(int(4.6 * GB), recall=False), CATALOGUE, table())
    assert not chosen(no_recall)[1].recall
    small = candidates_of(question(6 * GB, model=as_model(CATALOGUE[0])), CATALOGUE, table())
    assert chosen(small)[0] == "org/small"


def test_a_floor_on_speed_holds_after_ten_minutes():
    fast = candidates_of(question(6 * GB, min_speed=8), CATALOGUE, table())
    assert chosen(fast)[0] != "large"
    assert chosen(fast)[1].sustained >= 8
    assert reasons(fast)["large"] == "speed"


def test_an_unknown_speed_does_not_reach_a_floor():
    wanted = question(6 * GB, min_speed=1)
    wanted = replace(wanted, devices=(device(6 * GB, bandwidth=None),))
    found = candidates_of(wanted, CATALOGUE, table())
    assert found.chosen is None
    assert set(reasons(found).values()) == {"speed"}


def test_each_refusal_says_why():
    models = (
        *CATALOGUE,
        known("short", 2 * GB, context=4096),
        known("huge", 9 * GB),
        known("full", int(3.97 * GB)),  # beside the app's code and the tokenizer
        known("thick", int(3.9 * GB)),
        type(CATALOGUE[0])("unstated", "here", hub="org/unstated"),
    )
    found = candidates_of(question(int(4.2 * GB)), models, table())
    assert reasons(found) == {
        "huge": "app size",
        "full": "app size",
        "thick": "memory",
        "medium": "smaller",
        "short": "smaller",
        "small": "smaller",
        "unstated": "no shapes",
    }
    only = candidates_of(question(6 * GB), (models[3],), table())
    assert reasons(only) == {"short": "context"}


def test_nothing_that_fits_is_an_error_with_a_reason():
    wanted = question(GB)
    found = candidates_of(wanted, CATALOGUE, table())
    assert found.chosen is None
    with pytest.raises(UserError, match=r"small: 1\.15 GB without a cache") as caught:
        chosen_model(wanted, found)
    assert caught.value.code == ExitCode.MEMORY


def test_a_device_of_unknown_memory_is_refused():
    with pytest.raises(UserError, match="nobody knows how much memory"):
        candidates_of(question(None), CATALOGUE, table())
