"""Samples, ways of asking, and conversations."""

from itertools import pairwise
from typing import get_args

import pytest

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation.chat_tasks import make_conversation
from h2o_pack.measure.evaluation.contenders import CacheFactory, find_contender
from h2o_pack.measure.evaluation.preset import load_preset, names
from h2o_pack.measure.evaluation.reading import run_prompts
from h2o_pack.measure.evaluation.tasks import (
    ASKED_IN,
    STATEMENT,
    Shape,
    Way,
    make_sample,
    window_start,
)
from h2o_pack.measure.text import Tokens, held_out
from tests.bridge.measure.evaluating import random_model, tokenizer, tokens

# Samples


SHAPE = Shape(256, (0.5, 0.1, 1.0), (0, 1, 2))


def make(shape=SHAPE, seed=1, number=0):
    return make_sample(tokens(), shape, seed, number)


def test_a_sample_and_its_question_have_the_length_that_was_asked_for():
    sample = make()
    assert len(sample.ids) + ASKED_IN == SHAPE.length
    assert {len(question.ids) for question in sample.questions} == {ASKED_IN}
    assert len(sample.scored) == len(sample.ids)


def test_a_fact_s_number_has_the_digits_that_were_asked_for():
    long = make(Shape(256, (0.5,), (0,), digits=8))
    assert [len(sample.questions[0].answer) for sample in (make(), long)] == [4, 8]


def test_another_seed_or_number_makes_other_text_names_and_codes():
    sample, two, three = make(), make(seed=2), make(number=1)
    assert len({sample.ids, two.ids, three.ids}) == 3
    assert len({s.questions[0].answer for s in (sample, two, three)}) == 3


def test_facts_stand_where_they_are_said_to_and_are_not_scored():
    sample = make()
    for fact in sample.questions:
        span = slice(fact.position, fact.position + fact.length)
        stated = tokens().decode(sample.ids[span])
        assert stated == f"\nthe code of {fact.key} is {fact.answer}.\n"
        assert not any(sample.scored[span])
    stated = sum(question.length for question in sample.questions)
    assert sum(sample.scored) == len(sample.ids) - stated - 1  # nothing predicts the first


def test_facts_come_at_their_depths_in_the_order_of_depth():
    sample = make()
    middle, early, late = sample.questions
    assert early.position < middle.position < late.position
    assert late.position + late.length == len(sample.ids)
    assert early.position == pytest.approx(0.1 * len(sample.ids), abs=12)


def test_a_question_asks_for_its_fact_and_does_not_hold_the_answer():
    for question in make().questions:
        text = tokens().decode(question.ids)
        assert text.endswith(f"\nthe code of {question.key} is")
        assert question.answer not in text


def test_names_and_codes_are_unlike_within_a_sample():
    sample = make(Shape(1024, tuple(i / 13 for i in range(13)), tuple(range(13))))
    facts = sample.questions
    assert len({fact.key for fact in facts}) == len({fact.answer for fact in facts}) == 13


def test_windows_of_a_seed_keep_apart():
    starts = sorted(window_start(1, number, 1000) for number in range(12))
    assert min(b - a for a, b in pairwise(starts)) > 30
    first = make(Shape(64)).ids
    assert first == tuple(tokens().window(window_start(1, 0, len(tokens().ids)), 64))


@pytest.mark.parametrize("preset", names())
def test_all_samples_of_a_preset_have_one_length_and_one_number_of_questions(preset):
    for experiment in load_preset(preset).experiments:
        length = min(experiment.lengths)
        if experiment.task == "speed" or length > 2048:
            continue
        samples = [make(experiment.shape(length, n), number=n) for n in range(3)]
        assert len({len(s.ids) for s in samples}) == 1
        assert len({tuple(len(q.ids) for q in s.questions) for s in samples}) == 1


def test_a_tokenizer_s_first_token_comes_first_and_is_not_scored():
    class WithFirst:
        bos_token_id, eos_token_id = 7, 0

        def encode(self, text, add_special_tokens=True, **_options):
            ids = tokenizer().encode(text, add_special_tokens=False)
            return [7, *ids] if add_special_tokens else ids

        def decode(self, ids):
            return tokenizer().decode(ids)

    with_first = Tokens(WithFirst(), ("some text " * 200,))
    sample = make_sample(with_first, Shape(128, (0.5,), (0,)), 1, 0)
    assert sample.ids[0] == 7
    assert sample.ids.count(7) == 1
    assert not sample.scored[0]
    assert len(sample.ids) + ASKED_IN == 128


def test_a_short_text_is_refused_by_name():
    short = Tokens(tokenizer(), ("a few words",))
    with pytest.raises(UserError, match=r"the text has \d+ tokens; a sample needs"):
        make_sample(short, Shape(256), 1, 0)


def test_facts_that_leave_no_room_are_refused():
    with pytest.raises(UserError, match="leave no room"):
        make(Shape(80, tuple(i / 10 for i in range(10)), (0,)))


# Ways of asking


WAYS = [way for way in get_args(Way) if way not in ("instruction", "earlier", "tool")]
MANY = Shape(512, tuple((i + 0.5) / 9 for i in range(9)), tuple(range(9)))
ONE = Shape(256, (0.3,), (0,))


def sample_of(shape=MANY, number=0):
    return make_sample(tokens(), shape, 5, number)


def asked(way, shape=MANY, number=0):
    return sample_of(shape, number).asked(way)


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
    text = shown(sample_of().ids)
    assert turns
    for turn in turns:
        assert f"is {turn.answer}." in text


def test_a_question_ends_in_the_name_of_the_fact_whose_code_is_the_answer():
    facts = {fact.answer: fact for fact in sample_of().questions}
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
    facts = sample_of().questions[:8]
    assert all(fact.key in shown(naming.prompt) for fact in facts)
    assert len({turn.answer for turn in questions}) == len(questions) == 4
    assert {turn.answer for turn in questions} <= {fact.answer for fact in facts}
    assert not any(turn.prompt for turn in questions)


def test_facts_too_few_to_be_named_together_are_refused():
    with pytest.raises(UserError, match="cannot be asked about 1"):
        asked("named", ONE)


def test_a_question_in_an_answer_ends_at_every_remainder_of_four_steps():
    assert {len(turn.forced) % 4 for [turn] in asked("middle")} == {0, 1, 2, 3}


def test_a_copied_passage_stands_in_the_text_and_has_no_fact_where_it_can():
    [[turn]] = asked("copy", ONE)
    passage = turn.prompt + turn.forced
    ids = sample_of(ONE).ids
    assert any(ids[i : i + len(passage)] == passage for i in range(len(ids)))
    assert STATEMENT[:12] not in shown(passage)
    assert turn.predicted


def test_a_text_without_room_for_a_passage_is_refused():
    with pytest.raises(UserError, match="no passage of 64 to copy"):
        asked("copy", Shape(60, (0.3,), (0,)))


def test_text_goes_on_where_the_sample_ends():
    plain = make_sample(tokens(), Shape(200), 5, 0)
    longer = make_sample(tokens(), Shape(300), 5, 0)
    [[turn]] = plain.asked("text")
    going_on = turn.prompt + turn.forced
    assert going_on == longer.ids[200 : 200 + len(going_on)]


# Conversations


PLAIN = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
ONLY_USERS = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate.') }}{% endif %}<{{ m['role'] }}>"
    "{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
COUNTS = "{{ messages | length }}" + PLAIN


class Chatting:
    """The demo model's tokenizer, with a chat template."""

    def __init__(self, template):
        self.chat_template = template

    def __getattr__(self, name):
        return getattr(tokenizer(), name)

    def apply_chat_template(self, messages, **options):
        return tokenizer().apply_chat_template(
            messages, chat_template=self.chat_template, **options
        )


def chat_tokens(template=PLAIN):
    return Tokens(Chatting(template), held_out("prose"))


def conversation(template=PLAIN, *, seed=1, number=0, length=1500):
    return make_conversation(chat_tokens(template), length, 5, seed, number)


def said(conversation):
    return conversation.tokens.decode(conversation.ids)


@pytest.mark.parametrize("number", range(4))
def test_a_conversation_has_the_length_and_all_that_is_asked_for(number):
    talk = conversation(number=number)
    assert len(talk.ids) == 1500
    for name, value in talk.facts:
        assert talk.form.statement.format(name=name, value=value) in said(talk)
    for value in (talk.rule, talk.earlier[1], talk.tool[1]):
        assert said(talk).count(value) == 1
    assert conversation(number=number).ids == talk.ids
    assert conversation(number=number, seed=2).ids != talk.ids


@pytest.mark.parametrize("way", load_preset("chat").experiments[0].ways)
def test_each_way_asks_through_the_template_for_what_the_conversation_says(way):
    talk = conversation()
    for asking in talk.asked(way):
        prompt = talk.tokens.decode(asking[0].prompt)
        assert prompt.startswith("<user>")
        assert "<assistant>" in prompt
        answers = [turn.answer for turn in asking if turn.answer]
        assert answers or asking[-1].predicted
        assert all(answer in said(talk) for answer in answers)


def test_a_template_without_system_and_tool_gets_them_as_users():
    text = said(conversation(ONLY_USERS))
    assert "<system>" not in text
    assert "<tool>" not in text
    assert '{"customer"' in text


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(UserError, match="has no chat template"):
        conversation(None)
    with pytest.raises(UserError, match="leave no room for 5 facts"):
        conversation(length=400)
    talk = conversation(COUNTS)
    with pytest.raises(UserError, match="changes earlier turns"):
        talk.asked("asked")
    with pytest.raises(UserError, match='not asked in the way "late"'):
        talk.asked("late")
    with pytest.raises(UserError, match='"tool" belongs to conversations'):
        make().asked("tool")


@pytest.mark.usefixtures("routed")
def test_the_full_cache_is_compared_with_itself_and_others_with_it():
    talk = conversation()
    contenders = [
        find_contender("full"),
        find_contender("default").with_rows(64),
        find_contender("default+recall4[rows=16 spread=8]").with_rows(64),
    ]
    model = random_model()
    full, bounded, recalling = run_prompts(
        model, CacheFactory(model), talk.tokens, [talk], contenders, ["asked", "text"],
    )  # fmt: skip
    assert full[0].metrics["text_kl"] == 0
    assert bounded[0].metrics["text_kl"] > 0
    assert recalling[0].metrics["text_kl"] > 0
    assert set(full[0].metrics) == {"asked", "text_nll", "text_kl"}
