"""Ways of asking: what is fed, what is expected, and that samples can be asked side by side."""

from __future__ import annotations

from typing import get_args

import pytest

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation.tasks import STATEMENT, Shape, Way, askings, make_sample
from tests.bridge.measure.evaluating import tokens, words

WAYS = [way for way in get_args(Way) if way not in ("instruction", "earlier", "tool")]
MANY = Shape(512, tuple((i + 0.5) / 9 for i in range(9)), tuple(range(9)))
ONE = Shape(256, (0.3,), (0,))


def make(shape=MANY, number=0):
    return make_sample(tokens(), words(), shape, 5, number)


def asked(way, shape=MANY, number=0):
    return askings(way, tokens(), make(shape, number))


def shown(ids):
    return tokens().decode(ids)


@pytest.mark.parametrize("way", WAYS)
def test_turns_are_as_long_in_every_sample(way):
    lengths = {
        tuple(
            tuple((len(turn.prompt), len(turn.forced), turn.counts) for turn in asking)
            for asking in asked(way, number=number)
        )
        for number in range(6)
    }
    assert len(lengths) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_way_asks_the_same_again_and_another_sample_something_else(way):
    assert asked(way) == asked(way)
    assert asked(way) != asked(way, number=1)


@pytest.mark.parametrize("way", [w for w in WAYS if w not in ("copy", "text")])
def test_every_answer_that_counts_is_stated_in_the_text(way):
    turns = [turn for asking in asked(way) for turn in asking if turn.answer and turn.counts]
    text = shown(make().ids)
    assert turns
    for turn in turns:
        assert f"is {turn.answer}." in text


def test_a_question_ends_in_the_name_of_the_fact_whose_code_is_the_answer():
    facts = {q.fact.code: q.fact for q in make().questions}
    [[turn]] = asked("asked")
    assert shown(turn.prompt).endswith(f"\nthe code of {facts[turn.answer].key} is")
    [[turn]] = asked("wording")
    assert shown(turn.prompt).endswith(f"\nnumber for {facts[turn.answer].key}:")
    for [turn] in asked("middle"):
        assert shown(turn.forced).endswith(f"\nthe code of {facts[turn.answer].key} is")
        assert "the code of" not in shown(turn.prompt)


def test_a_second_turn_follows_another_fact_or_else_text():
    [[first, second]] = asked("second_turn")
    assert first.answer
    assert not first.counts
    assert first.answer != second.answer
    [[first, second]] = asked("second_turn", ONE)
    assert not first.answer
    assert first.forced
    assert second.counts


def test_names_come_in_one_prompt_and_are_asked_for_without_another():
    [[naming, *questions]] = asked("named")
    facts = [q.fact for q in make().questions[:8]]
    assert all(fact.key in shown(naming.prompt) for fact in facts)
    assert len({turn.answer for turn in questions}) == len(questions) == 4
    assert {turn.answer for turn in questions} <= {fact.code for fact in facts}
    assert not any(turn.prompt for turn in questions)


def test_facts_too_few_to_be_named_together_are_refused():
    with pytest.raises(UserError, match="1 facts cannot be named together"):
        asked("named", ONE)


def test_a_question_in_an_answer_ends_at_every_remainder_of_four_steps():
    assert {len(turn.forced) % 4 for [turn] in asked("middle")} == {0, 1, 2, 3}


def test_a_copied_passage_stands_in_the_text_and_has_no_fact_where_it_can():
    [[turn]] = asked("copy", ONE)
    passage = turn.prompt + turn.forced
    ids = make(ONE).ids
    assert any(ids[i : i + len(passage)] == passage for i in range(len(ids)))
    assert STATEMENT[:12] not in shown(passage)
    assert turn.predicted


def test_a_text_without_room_for_a_passage_is_refused():
    with pytest.raises(UserError, match="no passage of 64 to copy"):
        asked("copy", Shape(60, (0.3,), (0,)))


def test_text_goes_on_where_the_sample_ends():
    plain = make_sample(tokens(), words(), Shape(200), 5, 0)
    longer = make_sample(tokens(), words(), Shape(300), 5, 0)
    [[turn]] = askings("text", tokens(), plain)
    going_on = turn.prompt + turn.forced
    assert going_on == longer.ids[200 : 200 + len(going_on)]
