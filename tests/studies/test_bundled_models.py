"""The committed models against their cards, and that they still recall."""

import json
from pathlib import Path
from typing import Any

import pytest

from h2o_pack.measure.text import held_out
from studies.tiny_lm.card import card
from studies.tiny_lm.files import sha256
from studies.tiny_lm.measure import (
    DEMANDED,
    LONGEST_PROMPT,
    Trial,
    answer,
    held_out_tokens,
    load,
    prompts,
)

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "bridge/h2o_pack/models"
RECORDS = ROOT / "docs/results/tiny-lm"
NAMES = ("demo", "demo-4bit")


def record(name: str) -> Any:
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_the_card_is_what_the_records_say(name: str) -> None:
    text = (MODELS / name / "README.md").read_text(encoding="utf-8")
    assert text == card(name, record("training"), record("measurements"))


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_those_that_were_measured(name: str) -> None:
    weights = MODELS / name / "model.safetensors"
    measured = record("measurements")["models"][name]
    assert measured["sha256"] == sha256(weights)
    assert measured["bytes"] == weights.stat().st_size
    assert measured["sha256"] in (MODELS / name / "README.md").read_text(encoding="utf-8")


def test_the_4_bit_variant_is_small() -> None:
    assert (MODELS / "demo-4bit" / "model.safetensors").stat().st_size <= 1_300_000


@pytest.mark.parametrize(("name", "least"), [("demo", 0.98), ("demo-4bit", 0.95)])
def test_the_full_cache_recalled_nearly_every_fact(name: str, least: float) -> None:
    measured = record("measurements")
    recalls = measured["models"][name]["recall"]
    assert measured["facts"] >= 100
    for trial in DEMANDED:
        found = [
            each["right"]
            for each in recalls
            if (each["distance"], each["others"], each["window"])
            == (trial.distance, trial.others, 0)
        ]
        assert len(found) == 1
        assert found[0] >= least * measured["facts"], trial


def test_a_window_forgets_what_the_model_could_recall() -> None:
    recalls = record("measurements")["models"]["demo"]["recall"]
    by_distance = {each["distance"]: each["right"] for each in recalls if each["window"]}
    assert by_distance[256] >= 98
    assert by_distance[1024] <= 2


@pytest.mark.parametrize("name", NAMES)
def test_source_is_predicted_half_a_nat_better_than_by_the_5_gram_model(name: str) -> None:
    measured = record("measurements")
    model = measured["models"][name]["losses"]["source"]["nats_a_token"]
    assert measured["order"] == 5
    assert model <= measured["ngram"]["source"]["nats_a_token"] - 0.5


def test_prompts_fit_into_the_models_context() -> None:
    config = json.loads((MODELS / "demo" / "config.json").read_text(encoding="utf-8"))
    assert config["max_position_embeddings"] >= LONGEST_PROMPT


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_weights_recall_facts_through_mlx_lm(name: str) -> None:
    tokens = held_out_tokens(MODELS / "demo")["source"]
    words = held_out("source", MODELS / "demo" / "held_out").words
    load(MODELS / name)
    asked = prompts(Trial(512), tokens, words, seed=77, count=8)
    assert sum(code in answer(ids, window=0) for ids, code in asked) >= 7
