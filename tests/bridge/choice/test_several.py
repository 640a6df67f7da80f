"""The caches of several models in one package."""

from __future__ import annotations

import pytest

from h2o_pack.choice.choose import Criteria, choose
from h2o_pack.errors import UserError
from h2o_pack.progress import silent
from h2o_pack.spec import CacheSpec, DevicesSpec, ModelSpec, PackageSpec

LARGE, SMALL = "Qwen3-4B-4bit", "Qwen3-0.6B-4bit"
OLD, NEW = "iPhone 12", "iPhone 16 Pro"


def settled(*models, devices=(OLD, NEW), max_kv=None):
    cache = CacheSpec(max_kv=max_kv)
    spec = PackageSpec(
        tuple(ModelSpec(model, cache) for model in models), devices=DevicesSpec(devices)
    )
    return choose(spec, Criteria(), silent)


def test_each_model_gets_a_cache_for_the_devices_that_can_hold_it():
    chosen = settled(SMALL, LARGE)
    small, large = chosen.spec.models
    assert (small.model, large.model) == (SMALL, LARGE)
    assert small.cache.kv != large.cache.kv == "dense"
    assert small.cache.max_kv == large.cache.max_kv == 8192
    assert chosen.choices[SMALL].devices == (OLD, NEW)
    assert chosen.choices[LARGE].devices == (NEW,)


def test_a_device_that_can_hold_no_model_is_named_with_each_reason():
    with pytest.raises(UserError) as caught:
        settled(LARGE, "Qwen3-8B-4bit", devices=(OLD,))
    said = [error.what for error in caught.value.errors]
    assert len(said) == 2
    assert all(f"on {OLD}" in text for text in said)


def test_a_model_that_is_unknown_is_no_device_that_is_too_small():
    with pytest.raises(UserError, match="there is no model"):
        settled(SMALL, "no-such-model")
