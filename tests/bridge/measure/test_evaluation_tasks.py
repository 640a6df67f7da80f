"""Samples of text, and conversations."""

from itertools import pairwise

import pytest

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation.chat_tasks import make_conversation
from h2o_pack.measure.evaluation.preset import load_preset
from h2o_pack.measure.text import Tokens, held_out, text_sample, window_start
from tests.bridge.measure.evaluating import CHAT, Chatting, tokenizer, tokens

# Samples


def test_windows_of_a_seed_keep_apart():
    starts = sorted(window_start(1, number, 1000) for number in range(12))
    assert min(b - a for a, b in pairwise(starts)) > 30
    first = text_sample(tokens(), 64, 1, 0)
    assert first == tuple(tokens().window(window_start(1, 0, len(tokens().ids)), 64))
    assert len({first, text_sample(tokens(), 64, 2, 0), text_sample(tokens(), 64, 1, 1)}) == 3


def test_a_tokenizer_s_first_token_comes_first():
    class WithFirst:
        bos_token_id, eos_token_id = 7, 0

        def encode(self, text, add_special_tokens=True, **_options):
            ids = tokenizer().encode(text, add_special_tokens=False)
            return [7, *ids] if add_special_tokens else ids

    ids = text_sample(Tokens(WithFirst(), ("some text " * 200,)), 128, 1, 0)
    assert (ids[0], ids.count(7), len(ids)) == (7, 1, 128)


def test_a_short_text_is_refused_by_name():
    short = Tokens(tokenizer(), ("a few words",))
    with pytest.raises(UserError, match=r"the text has \d+ tokens; a sample needs"):
        text_sample(short, 256, 1, 0)


# Conversations


ONLY_USERS = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate.') }}{% endif %}<{{ m['role'] }}>"
    "{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
COUNTS = "{{ messages | length }}" + CHAT


def chat_tokens(template=CHAT):
    return Tokens(Chatting(template), held_out("prose"))


def conversation(template=CHAT, *, seed=1, number=0, length=1500):
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
    asking = talk.asked(way)
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


def test_a_question_that_cannot_be_asked_is_refused():
    with pytest.raises(UserError, match="has no chat template"):
        conversation(None)
    with pytest.raises(UserError, match="leave no room for 5 facts"):
        conversation(length=400)
    talk = conversation(COUNTS)
    with pytest.raises(UserError, match="changes earlier turns"):
        talk.asked("asked")
