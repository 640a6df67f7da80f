from __future__ import annotations

from functools import partial

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.models.texts import ChatTemplate, ModelTexts, common, first_turns
from h2o_pack.package.system_prompt import opening_tokens
from tests.bridge.refusals import refused

MARKS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"


class Letters:
    """A tokenizer whose ids are code points, with a template and a first token of its own."""

    def encode(self, text):
        return [1, *map(ord, text)]

    def apply_chat_template(self, messages, **_options):
        text = ChatTemplate(MARKS, "x").render(messages, str)
        return self.encode(text)


def text_of(ids):
    return "".join(map(chr, ids))


def test_the_opening_is_the_system_prompt_and_the_marks_around_it():
    ids = opening_tokens(Letters(), "Be brief.", templated=True)
    assert text_of(ids) == "\x01<system>Be brief.</><user>"


def test_without_a_template_it_is_a_line_of_text():
    ids = opening_tokens(Letters(), "Be brief.", templated=False)
    assert text_of(ids) == "\x01Be brief.\n"


def test_what_all_begin_with_may_be_nothing_or_all():
    assert common(["abc", "abd", "ab"]) == ["a", "b"]
    assert common(["abc", "abc"]) == ["a", "b", "c"]
    assert common(["abc", "xbc"]) == []


def test_a_template_that_writes_the_date_after_the_user_has_spoken_is_no_problem():
    template = ChatTemplate(MARKS + "{{ strftime_now('%d') }}", "x")
    assert len(first_turns(ModelTexts(template), "Be brief.", "m")) == 2


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("{{ raise_exception('no system role') }}", "refuses a system prompt: no system role"),
        ("{{ messages[-1].content }}", "leaves out what the system says"),
        ("{{ strftime_now('%d') }}" + MARKS, "writes the date, so that each day's turns begin"),
    ],
)
def test_a_template_with_which_nothing_can_be_prepared_is_refused(source, what):
    said = partial(refused, first_turns, code=ExitCode.USAGE)
    texts = ModelTexts(ChatTemplate(source, "x.jinja"))
    assert f"the chat template {what}" in said(texts, "Be brief.", "m")
