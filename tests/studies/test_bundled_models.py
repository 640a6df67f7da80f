"""The committed models against their cards, and that they still recall."""

import hashlib
from functools import cache
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

from h2o_pack.measure.evaluation.tasks import Shape, make_sample
from h2o_pack.measure.models import load
from h2o_pack.measure.text import Tokens, held_out
from studies.pages import CARDS, MODELS, card, figures

DEMANDED = [(distance, others) for others in (0, 4) for distance in (256, 512, 1024, 1500)]
ANSWER_TOKENS = 6  # a space and four digits are five


@cache
def measured() -> Any:
    return figures("tiny-lm/measurements.json")


@pytest.mark.parametrize("name", CARDS)
def test_the_card_is_what_the_records_say(name: str) -> None:
    assert (MODELS / name / "README.md").read_text(encoding="utf-8") == card(name)


@pytest.mark.parametrize("name", CARDS)
def test_the_weights_are_those_that_were_measured(name: str) -> None:
    weights = (MODELS / name / "model.safetensors").read_bytes()
    model = measured()["models"][name]
    assert model["sha256"] == hashlib.sha256(weights).hexdigest()
    assert model["bytes"] == len(weights)


def test_the_4_bit_variant_is_small() -> None:
    assert (MODELS / "demo-4bit" / "model.safetensors").stat().st_size <= 1_300_000


@pytest.mark.parametrize(("name", "least"), [("demo", 0.98), ("demo-4bit", 0.95)])
def test_the_full_cache_recalled_nearly_every_fact(name: str, least: float) -> None:
    trials = [trial for trial in measured()["models"][name]["recall"] if not trial["window"]]
    right = {(trial["distance"], trial["others"]): trial["right"] for trial in trials}
    assert measured()["facts"] >= 100
    assert all(right[trial] >= least * measured()["facts"] for trial in DEMANDED)


def test_a_window_forgets_what_the_model_could_recall() -> None:
    recalls = measured()["models"]["demo"]["recall"]
    by_distance = {each["distance"]: each["right"] for each in recalls if each["window"]}
    assert by_distance[256] >= 98
    assert by_distance[1024] <= 2


@pytest.mark.parametrize("name", CARDS)
def test_source_is_predicted_half_a_nat_better_than_by_the_5_gram_model(name: str) -> None:
    model = measured()["models"][name]["losses"]["source"]["nats_a_token"]
    assert measured()["order"] == 5
    assert model <= measured()["ngram"]["source"]["nats_a_token"] - 0.5


@pytest.mark.parametrize("name", CARDS)
def test_the_committed_weights_recall_facts_through_mlx_lm(name: str) -> None:
    model, tokenizer = load(name)
    if name == "demo-4bit":  # what its packed weights stand for, which a CPU multiplies sooner
        model.set_dtype(mx.float32)
    text = held_out("source")
    tokens = Tokens(tokenizer, text.documents)
    right = 0
    for number in range(8):
        sample = make_sample(tokens, text.words, Shape(600, (0.1,), (0,)), 77, number)
        [question] = sample.questions
        assert question.distance >= 512
        prompt = mx.array([*sample.ids, *question.ids])
        answer = [token for token, _ in generate_step(prompt, model, max_tokens=ANSWER_TOKENS)]
        right += question.answer in tokens.decode(answer)
    assert right >= 7
