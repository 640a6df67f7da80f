"""The caches of several models in one package."""

from __future__ import annotations

import pytest

from h2o_pack.choice.command import Given
from h2o_pack.choice.several import settle_each
from h2o_pack.errors import UserError
from h2o_pack.progress import silent

LARGE, SMALL = "Qwen3-4B-4bit", "Qwen3-0.6B-4bit"
OLD, NEW = "iPhone 12", "iPhone 16 Pro"


def settled(*models, devices=(OLD, NEW), max_kv=None):
    return settle_each(Given(None, max_kv, None, None, devices), models, silent)


@pytest.mark.parametrize("max_kv", [None, 512])
def test_each_model_is_settled_for_the_devices_that_can_hold_it(max_kv):
    small, large = settled(SMALL, LARGE, max_kv=max_kv)
    assert (small.model, small.cache.devices) == (SMALL, (OLD, NEW))
    assert (large.model, large.cache.devices) == (LARGE, (NEW,))
    assert (small.choice is None) == (large.choice is None) == (max_kv is not None)


def test_rows_are_chosen_for_each_model():
    small, large = settled(SMALL, LARGE)
    assert small.cache.kv != large.cache.kv == "dense"
    assert small.cache.max_kv == large.cache.max_kv == 8192


def test_a_device_that_can_hold_no_model_is_named_with_each_reason():
    with pytest.raises(UserError) as caught:
        settled(LARGE, "Qwen3-8B-4bit", max_kv=512)
    said = [each.what for each in caught.value.errors]
    assert len(said) == 2
    assert all(f"an app on {OLD} may use" in each for each in said)


def test_a_model_that_no_device_can_hold_is_refused():
    with pytest.raises(UserError, match="Qwen3-4B-4bit needs"):
        settled(SMALL, LARGE, devices=(OLD,), max_kv=512)


def test_a_model_that_is_unknown_is_no_device_that_is_too_small():
    with pytest.raises(UserError, match="there is no model"):
        settled(SMALL, "no-such-model")
