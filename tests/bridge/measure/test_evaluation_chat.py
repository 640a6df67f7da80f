"""Tasks in a conversation, through chat templates of several kinds."""

from __future__ import annotations

import pytest

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation import tasks
from h2o_pack.measure.evaluation.chat_tasks import chat_askings, make_conversation
from h2o_pack.measure.evaluation.contenders import CacheFactory, find_contender
from h2o_pack.measure.evaluation.preset import load_preset
from h2o_pack.measure.evaluation.reading import run_prompts
from h2o_pack.measure.text import Tokens, held_out
from tests.bridge.measure.evaluating import random_model, tokenizer

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


def tokens(template=PLAIN):
    return Tokens(Chatting(template), held_out("prose").documents)


def conversation(template=PLAIN, *, seed=1, number=0, length=1500):
    return make_conversation(tokens(template), length, 5, seed, number)


def said(made):
    return made.tokens.decode(made.ids)


@pytest.mark.parametrize("number", range(4))
def test_a_conversation_has_the_length_and_all_that_is_asked_for(number):
    made = conversation(number=number)
    assert len(made.ids) == 1500
    for name, value in made.facts:
        assert made.form.statement.format(name=name, value=value) in said(made)
    for value in (made.rule, made.earlier[1], made.tool[1]):
        assert said(made).count(value) == 1
    assert conversation(number=number).ids == made.ids
    assert conversation(number=number, seed=2).ids != made.ids


@pytest.mark.parametrize("way", load_preset("chat").experiments[0].ways)
def test_each_way_asks_through_the_template_for_what_the_conversation_says(way):
    made = conversation()
    for asking in chat_askings(way, made.tokens, made):
        prompt = made.tokens.decode(asking[0].prompt)
        assert prompt.startswith("<user>")
        assert "<assistant>" in prompt
        answers = [turn.answer for turn in asking if turn.answer]
        assert answers or asking[-1].predicted
        assert all(answer in said(made) for answer in answers)


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
    made = conversation(COUNTS)
    with pytest.raises(UserError, match="changes earlier turns"):
        chat_askings("asked", made.tokens, made)
    with pytest.raises(UserError, match='not asked in the way "late"'):
        chat_askings("late", made.tokens, made)
    with pytest.raises(UserError, match='"tool" belongs to conversations'):
        tasks.askings("tool", made.tokens, made)


@pytest.mark.usefixtures("routed")
def test_the_full_cache_is_compared_with_itself_and_others_with_it():
    made = conversation()
    contenders = [
        find_contender("full"),
        find_contender("default").with_rows(64),
        find_contender("default+recall4[rows=16 spread=8]").with_rows(64),
    ]
    model = random_model()
    full, bounded, recalling = run_prompts(
        model, CacheFactory(model), made.tokens, [made], contenders, ["asked", "text"],
        asking=chat_askings,
    )  # fmt: skip
    assert full[0].metrics["text_kl"] == 0
    assert bounded[0].metrics["text_kl"] > 0
    assert recalling[0].metrics["text_kl"] > 0
    assert set(full[0].metrics) == {"asked", "text_nll", "text_kl"}


def test_settings_of_recall_are_part_of_a_contender_s_name():
    made = find_contender("default+recall4[rows=16 spread=8]")
    assert (made.recall.every, made.recall.rows, made.recall.spread) == (4, 16, 8)
    assert made.title == "H2O, the default, recall every 4 (rows 16, spread 8)"
