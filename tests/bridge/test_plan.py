from __future__ import annotations

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.plan import CacheOptions, make_plan


def refusal(model, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        make_plan(model, CacheOptions(**options))
    assert caught.value.code == ExitCode.USAGE
    return str(caught.value)


def test_what_is_not_given_is_the_default_of_the_cache(model):
    plan = make_plan(model, CacheOptions(max_kv=512))
    assert plan.cache.to_dict() == {
        "max_size": 512,
        "sink_size": 4,
        "heavy_budget": 256,
        "recent_budget": 252,
        "score": "peak",
        "decay": 0.999,
        "novelty": 2.0,
        "pinned": [],
        "observation_window": 64,
    }
    assert plan.warnings == ()


def test_what_is_given_is_kept(model):
    options = CacheOptions(
        max_kv=300,
        sink_size=0,
        heavy_budget=100,
        recent_budget=90,
        score="softmax",
        decay=0.5,
        novelty=0.0,
        pinned=((0, 10), (20, 30)),
        observation_window=8,
    )
    assert make_plan(model, options).cache.to_dict() == {
        "max_size": 300,
        "sink_size": 0,
        "heavy_budget": 100,
        "recent_budget": 90,
        "score": "softmax",
        "decay": 0.5,
        "novelty": 0.0,
        "pinned": [[0, 10], [20, 30]],
        "observation_window": 8,
    }


def test_the_package_is_named_after_the_model_or_as_asked(model):
    options = CacheOptions(max_kv=256)
    assert make_plan(model, options).package_name == "tiny"
    plan = make_plan(model, options, "My App")
    assert (plan.package_name, plan.module_name) == ("My-App", "My_App")


def test_a_cache_without_room_names_the_flags(model):
    said = refusal(model, max_kv=3)
    assert said.startswith("--max-kv = 3 leaves no room")
    assert "--sink-size" in said
    assert "max_size" not in said


def test_pinned_tokens_count(model):
    said = refusal(model, max_kv=128, pinned=((0, 100),))
    assert "--max-kv = 128" in said
    assert "--recent-budget" in said


def test_a_message_of_one_sentence_gets_a_remedy(model):
    assert refusal(model, max_kv=256, decay=7.0) == (
        "decay = 7.0 must be finite and in 0..1. See `h2o-pack ios --help`."
    )


def test_a_cache_longer_than_the_context_is_refused(model):
    assert refusal(model, max_kv=2048) == (
        "--max-kv 2048 is more than the 1024 tokens that tiny can attend to "
        f"({model.folder}/config.json). Lower --max-kv to 1024 or less."
    )


def test_a_short_recent_window_is_remarked_upon(model):
    plan = make_plan(model, CacheOptions(max_kv=64))
    assert len(plan.warnings) == 1
    assert plan.warnings[0].startswith("--recent-budget = 28 is below 64")
