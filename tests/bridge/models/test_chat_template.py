from __future__ import annotations

import json

import pytest

from h2o_pack.errors import UserError
from h2o_pack.models.texts import ChatTemplate, find_template

CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}"
    "{% generation %}{{ '<|im_end|>\\n' }}{% endgeneration %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{%- endif %}"
)
HELLO = [{"role": "user", "content": "hello"}]


def today(_format: str) -> str:
    return "22 Nov"


def config(**values) -> dict[str, bytes]:
    return {"tokenizer_config.json": json.dumps(values).encode()}


def test_messages_are_rendered_as_transformers_does():
    rendered = ChatTemplate(CHATML, "x").render(HELLO, today)
    assert rendered == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def test_special_tokens_and_the_date_can_be_read():
    files = config(
        bos_token={"content": "<s>"}, chat_template="{{ bos_token }}{{ strftime_now('%d') }}"
    )
    template = find_template(files, "tiny")
    assert template is not None
    assert template.render(HELLO, today) == "<s>22 Nov"


SAYS = "{% for each in messages %}{{ each.role }}: {{ each.content }}\n{% endfor %}"
KEEPS = SAYS.replace(
    "{{ each.content", "<think>{{ each.reasoning_content }}</think>{{ each.content"
)
DROPS = SAYS + "{{ '<think>' if enable_thinking }}"


@pytest.mark.parametrize(
    ("source", "drops"),
    [(SAYS, False), (KEEPS, False), (DROPS, True), ("<think>{% if %}", False)],
)
def test_a_template_that_thinks_and_shows_no_earlier_thoughts_drops_them(source, drops):
    assert ChatTemplate(source, "x").drops_thoughts is drops


def test_variables_are_what_not_every_template_is_given():
    source = (
        CHATML + "{% set ns = namespace(x=1) %}{{ raise_exception(tools) if reasoning_effort }}"
    )
    assert ChatTemplate(source, "x").variables == ("enable_thinking", "reasoning_effort")


PROBLEMS = {
    CHATML: "",
    "one\n{% if %}": (
        "cannot be parsed: line 2: Expected an expression, got 'end of statement block'"
    ),
    "{{ messages | upside_down }}": "cannot be parsed: line 1: No filter named 'upside_down'.",
    "{{ raise_exception('Roles alternate') }}": 'refuses a user\'s message: "Roles alternate"',
    "{{ unknown.name }}": "refuses a user's message: \"'unknown' is undefined\"",
    "{{ 1 / 0 }}": 'fails at a user\'s message: "division by zero"',
}


@pytest.mark.parametrize("source", PROBLEMS)
def test_a_template_that_cannot_be_used_is_described(source):
    assert ChatTemplate(source, "x").problem() == PROBLEMS[source]


def test_a_file_of_its_own_comes_before_the_tokenizers():
    files = {**config(chat_template="old"), "chat_template.jinja": b"new"}
    template = find_template(files, "tiny")
    assert template == ChatTemplate("new", "chat_template.jinja")
    older = {**config(chat_template="old"), "chat_template.json": b'{"chat_template": "new"}'}
    assert find_template(older, "tiny") == ChatTemplate("new", "chat_template.json")


def test_of_several_templates_the_default_is_taken():
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert find_template(config(chat_template=named), "tiny") == ChatTemplate(
        "d", "tokenizer_config.json"
    )


def test_a_model_without_a_template_has_none():
    assert find_template({}, "tiny") is None
    assert find_template(config(chat_template=None), "tiny") is None


@pytest.mark.parametrize(
    ("files", "what"),
    [
        (config(chat_template=7), "chat_template in tokenizer_config.json is neither"),
        ({"chat_template.jinja": b"\xff"}, "chat_template.jinja is not UTF-8 text"),
        ({"tokenizer_config.json": b"["}, "tokenizer_config.json is not valid JSON"),
    ],
)
def test_files_without_what_they_should_have_are_refused(files, what):
    with pytest.raises(UserError, match=what):
        find_template(files, "tiny")
