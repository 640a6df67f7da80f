import random
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from studies.tiny_lm.recipe import Recipe
from studies.tiny_lm.samples import FORMS, SampleMaker
from studies.tiny_lm.vocabulary import SIZE

TOKENIZER = Path(__file__).parents[2] / "bridge/h2o_pack/models/demo/tokenizer.json"
WORDS = ("lantern", "harbour", "quarry", "thistle", "marble", "copper", "willow", "ember")
TEXT = "def area(width, height):\n    return width * height\n" * 400
PROSE = "The while statement repeats as long as an expression is true. " * 400


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER))


def maker(tokenizer: Tokenizer, seed: int = 0) -> SampleMaker:
    source, prose = (np.array(tokenizer.encode(text).ids, np.int32) for text in (TEXT, PROSE))
    return SampleMaker(Recipe(), tokenizer, WORDS, source, prose, random.Random(seed))  # noqa: S311


@pytest.mark.parametrize("length", [64, 256, 1024, 2048])
def test_every_sample_fills_its_length_with_a_weight_for_each_token(
    tokenizer: Tokenizer, length: int
) -> None:
    for sample in maker(tokenizer).batch(length, 60, copy_share=0.2):
        assert sample.tokens.shape == sample.weights.shape == (length + 1,)
        assert sample.tokens.min() >= 0
        assert sample.tokens.max() < SIZE


def test_the_same_seed_gives_the_same_samples_and_another_seed_others(
    tokenizer: Tokenizer,
) -> None:
    def made(seed: int) -> list[list[int]]:
        batch = maker(tokenizer, seed).batch(256, 8, copy_share=0.1)
        return [sample.tokens.tolist() for sample in batch]

    assert made(3) == made(3)
    assert made(3) != made(4)


def test_answers_that_count_were_stated_before_and_asked_in_the_same_form(
    tokenizer: Tokenizer,
) -> None:
    answers = 0
    for _ in range(100):
        sample = maker(tokenizer, answers).recall(1024)
        place = 0
        for weight, run in groupby(sample.weights):
            size = len(list(run))
            if weight == Recipe().answer_weight:
                before = tokenizer.decode(sample.tokens[:place].tolist())
                answer = tokenizer.decode(sample.tokens[place : place + size].tolist())
                question = before[-4:]  # the end of the name, and of the form
                assert question + answer in before
                answers += 1
            place += size
    assert answers > 300


def test_what_is_stated_first_has_no_weight(tokenizer: Tokenizer) -> None:
    sample = maker(tokenizer).recall(512)
    unweighted = tokenizer.decode(sample.tokens[sample.weights == 0].tolist())
    named = [word for word in WORDS if word in unweighted.lower()]
    assert named or any(letter in unweighted for letter in "=:")
    assert sample.weights[0] == 1  # text, unless a fact comes first


def test_copies_count_only_where_they_can_be_predicted(tokenizer: Tokenizer) -> None:
    sample = maker(tokenizer).copies(600)
    tokens, counted = sample.tokens, np.flatnonzero(sample.weights)
    assert 0.3 < len(counted) / len(tokens) < 0.6
    runs = np.split(counted, np.flatnonzero(np.diff(counted) > 1) + 1)
    for run in runs[:-1]:  # the last one is cut
        size = len(run) + 1
        assert (tokens[run] == tokens[run - size]).all()


def test_forms_hold_one_name(tokenizer: Tokenizer) -> None:
    assert all(form.format("LANTERN").count("LANTERN") == 1 for form in FORMS)
    fact = maker(tokenizer).fact("the code of {} is", "LANTERN")
    assert tokenizer.decode(list(fact.tokens[: fact.start])).endswith("code of LANTERN is")
    assert tokenizer.decode(list(fact.tokens[fact.start : fact.end])).startswith(" ")


def test_the_rate_rises_stays_and_falls_to_what_is_left() -> None:
    recipe = Recipe()
    assert recipe.rate(0) < 0.05
    assert recipe.rate(recipe.warm_up_steps) == 1
    assert recipe.rate(recipe.steps // 2 - 1) == 1
    assert recipe.rate(recipe.steps * 3 // 4) == pytest.approx(0.51, abs=0.01)
    assert recipe.rate(recipe.steps) == pytest.approx(recipe.last_rate)


def test_every_other_step_of_the_end_sees_quantized_weights() -> None:
    recipe = Recipe()
    steps = [step for step in range(recipe.steps) if recipe.quantizes(step)]
    assert min(steps) >= 0.75 * recipe.steps
    assert len(steps) == pytest.approx(0.125 * recipe.steps, abs=1)


def test_a_shortened_recipe_has_the_same_stages() -> None:
    recipe = Recipe(seed=5)
    short = recipe.shortened(10)
    assert short.tokens == pytest.approx(recipe.tokens / 10, rel=0.01)
    assert [stage.length for stage in short.stages] == [256, 512, 1024, 2048]
    assert short.seed == 5
