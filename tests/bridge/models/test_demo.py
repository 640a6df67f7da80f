"""The bundled models: their cards, and that the packed weights still recall facts."""

import hashlib
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

import h2o_pack.models
from h2o_pack.measure.evaluation.tasks import Shape, make_sample
from h2o_pack.measure.models import load
from h2o_pack.measure.text import Tokens, held_out

MODELS = Path(h2o_pack.models.__file__).parent
ANSWER_TOKENS = 6  # a space and four digits are five


@pytest.mark.parametrize("name", ["demo", "demo-4bit"])
def test_the_card_names_the_weights_beside_it(name):
    card = (MODELS / name / "README.md").read_text("utf-8")
    weights = (MODELS / name / "model.safetensors").read_bytes()
    assert f"`{hashlib.sha256(weights).hexdigest()}`" in card
    assert f"{len(weights):,} bytes" in card


@pytest.mark.nightly(
    "test_recall_generation.py::test_generate_takes_recall_in_its_configuration"
)
def test_the_4_bit_weights_recall_facts_through_mlx_lm():
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
