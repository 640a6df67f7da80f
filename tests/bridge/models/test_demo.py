"""The bundled models: their cards, and that the packed weights still recall facts."""

import hashlib
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

import h2o_pack.models
from h2o_pack.measure.models import load
from tests.facts import asked

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
    model, tokenizer = load("demo-4bit")
    model.set_dtype(mx.float32)  # what packed weights stand for, which a CPU multiplies sooner
    right = 0
    for number in range(4):
        ids, answer = asked(tokenizer, 600, (0.1,), 77, number)
        steps = generate_step(mx.array(ids), model, max_tokens=ANSWER_TOKENS)
        right += answer in tokenizer.decode([token for token, _ in steps])
    assert right == 4
