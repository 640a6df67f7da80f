"""Samples: text with facts, and questions."""

from __future__ import annotations

import gzip
from itertools import pairwise

import pytest

from h2o_pack.errors import UserError
from h2o_pack.files.text import read_text
from h2o_pack.measure.evaluation.preset import load_preset, names
from h2o_pack.measure.evaluation.tasks import ASKED_IN, Shape, make_sample
from h2o_pack.measure.text import Tokens, held_out
from tests.bridge.measure.evaluating import tokenizer, tokens, words

SHAPE = Shape(256, (0.5, 0.1, 1.0), (0, 1, 2))


def make(shape=SHAPE, seed=1, number=0):
    return make_sample(tokens(), words(), shape, seed, number)


def test_a_sample_and_its_question_have_the_length_that_was_asked_for():
    sample = make()
    assert len(sample.ids) + ASKED_IN == SHAPE.length
    assert {len(question.ids) for question in sample.questions} == {ASKED_IN}
    assert len(sample.scored) == len(sample.ids)


def test_a_fact_s_number_has_the_digits_that_were_asked_for():
    long = make(Shape(256, (0.5,), (0,), digits=8))
    assert [len(sample.questions[0].answer) for sample in (make(), long)] == [4, 8]


def test_the_same_seed_and_number_make_the_same_sample():
    assert make() == make()


def test_another_seed_or_number_makes_other_text_names_and_codes():
    one, two, three = make(), make(seed=2), make(number=1)
    assert len({one.ids, two.ids, three.ids}) == 3
    assert len({s.questions[0].answer for s in (one, two, three)}) == 3


def test_facts_stand_where_they_are_said_to_and_are_not_scored():
    sample = make()
    for question in sample.questions:
        fact = question.fact
        span = slice(fact.position, fact.position + fact.length)
        stated = tokens().decode(sample.ids[span])
        assert stated == f"\nthe code of {fact.key} is {fact.code}.\n"
        assert not any(sample.scored[span])
    stated = sum(question.fact.length for question in sample.questions)
    assert sum(sample.scored) == len(sample.ids) - stated - 1  # nothing predicts the first


def test_facts_come_at_their_depths_in_the_order_of_depth():
    sample = make()
    middle, early, late = (q.fact for q in sample.questions)
    assert early.position < middle.position < late.position
    assert late.position + late.length == len(sample.ids)
    assert early.position == pytest.approx(0.1 * len(sample.ids), abs=12)


def test_a_question_asks_for_its_fact_and_does_not_hold_the_answer():
    for question in make().questions:
        asked = tokens().decode(question.ids)
        assert asked.endswith(f"\nthe code of {question.fact.key} is")
        assert question.answer == question.fact.code
        assert question.answer not in asked


def test_a_distance_is_from_the_statement_to_the_question_and_grows_with_turns():
    sample = make()
    end = len(sample.ids) + ASKED_IN
    for question in sample.questions:
        assert question.distance == end - question.fact.position - question.fact.length
    turns = make(Shape(256, SHAPE.depths, SHAPE.asked, in_turns=True))
    pairs = zip(turns.questions, make().questions, strict=True)
    later = [turn.distance - alone.distance for turn, alone in pairs]
    assert later == [0, ASKED_IN, 2 * ASKED_IN]


def test_names_and_codes_are_unlike_within_a_sample():
    sample = make(Shape(1024, tuple(i / 13 for i in range(13)), tuple(range(13))))
    facts = [question.fact for question in sample.questions]
    assert len({fact.key for fact in facts}) == len({fact.code for fact in facts}) == 13


def test_windows_of_a_seed_keep_apart():
    starts = sorted(_start(number) for number in range(12))
    gaps = [b - a for a, b in pairwise(starts)]
    assert min(gaps) > 2000


def _start(number):
    sample = make(Shape(64), number=number)
    first = list(sample.ids)
    ids = tokens().ids
    return next(i for i in range(len(ids)) if ids[i] == first[0] and ids[i : i + 64] == first)


@pytest.mark.parametrize("preset", names())
def test_all_samples_of_a_preset_have_one_length_and_one_number_of_questions(preset):
    for experiment in load_preset(preset).experiments:
        length = min(experiment.lengths)
        if experiment.task == "speed" or length > 2048:
            continue
        made = [make(experiment.shape(length, n), number=n) for n in range(3)]
        assert len({len(s.ids) for s in made}) == 1
        assert len({tuple(len(q.ids) for q in s.questions) for s in made}) == 1


def test_a_tokenizer_s_first_token_comes_first_and_is_not_scored():
    class WithFirst:
        bos_token_id, eos_token_id = 7, 0

        def encode(self, text, add_special_tokens=True):
            ids = tokenizer().encode(text, add_special_tokens=False)
            return [7, *ids] if add_special_tokens else ids

        def decode(self, ids):
            return tokenizer().decode(ids)

    with_first = Tokens(WithFirst(), ("some text " * 200,))
    sample = make_sample(with_first, words(), Shape(128, (0.5,), (0,)), 1, 0)
    assert sample.ids[0] == 7
    assert sample.ids.count(7) == 1
    assert not sample.scored[0]
    assert len(sample.ids) + ASKED_IN == 128


def test_a_short_text_is_refused_by_name():
    short = Tokens(tokenizer(), ("a few words",))
    with pytest.raises(UserError, match=r"the text has \d+ tokens; a sample needs"):
        make_sample(short, words(), Shape(256), 1, 0)


def test_facts_that_leave_no_room_are_refused():
    with pytest.raises(UserError, match="leave no room"):
        make(Shape(80, tuple(i / 10 for i in range(10)), (0,)))


def test_held_out_text_can_lie_in_a_user_s_folder(tmp_path):
    for name in ("source", "prose"):
        data = f"<|endoftext|>first {name}<|endoftext|>second".encode()
        (tmp_path / f"{name}.txt.gz").write_bytes(gzip.compress(data))
    (tmp_path / "words.txt").write_text("alpha\nbravo\n")
    found = held_out("prose", tmp_path)
    assert found.documents == ("first prose", "second")
    assert found.words == ("alpha", "bravo")


def test_a_text_that_is_no_text_is_refused_by_name(tmp_path):
    path = tmp_path / "image.bin"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"image\.bin.*Give UTF-8"):
        read_text(path, "Give UTF-8.")
