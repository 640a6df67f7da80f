"""The committed models and pages against their records."""

import hashlib
from functools import cache
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

from h2o_pack.measure.evaluation.tasks import Shape, make_sample
from h2o_pack.measure.models import load
from h2o_pack.measure.text import Tokens, held_out
from studies.pages import CARDS, MODELS, PAGES, RESULTS, card, figures, text

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


@pytest.mark.nightly(
    "test_recall_generation.py::test_generate_takes_recall_in_its_configuration"
)
def test_the_committed_4_bit_weights_recall_facts_through_mlx_lm() -> None:
    """Those of 16 bits are evaluated by tests/bridge/measure/test_evaluation_verdicts.py."""
    model, tokenizer = load("demo-4bit")
    model.set_dtype(mx.float32)  # what packed weights stand for, which a CPU multiplies sooner
    tokens = Tokens(tokenizer, held_out())
    right = 0
    for number in range(4):
        sample = make_sample(tokens, Shape(600, (0.1,), (0,)), 77, number)
        [question] = sample.questions
        assert len(sample.ids) - question.position >= 512
        prompt = mx.array([*sample.ids, *question.ids])
        answer = [token for token, _ in generate_step(prompt, model, max_tokens=ANSWER_TOKENS)]
        right += question.answer in tokens.decode(answer)
    assert right == 4


@pytest.mark.parametrize("page", PAGES)
def test_a_committed_page_is_what_its_figures_say(page):
    assert (RESULTS / page).read_text(encoding="utf-8") == text(page)
