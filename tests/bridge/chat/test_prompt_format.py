"""What a conversation reads, turn by turn, is what the template writes for the whole."""

import pytest
from transformers import PreTrainedTokenizerFast

from h2o_pack.chat.prompt_format import PromptFormat
from h2o_pack.resolved.chat import Chat, Thinking, reply, system, user
from tests.bridge.resolved.test_chat import CHATML, SPOKEN, THINKING
from tests.conftest import DEMO

LLAMA = (
    "<bos>{% for m in messages %}<|h|>{{ m.role }}<|/h|>\n\n{{ m.content | trim }}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|h|>assistant<|/h|>\n\n{% endif %}"
)
OWN_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are kind.<|im_end|>\n"
    "{% endif %}" + CHATML
)
ALTERNATES = "{% if messages[-1].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
TURNS = [
    user("What is the capital of France?"),
    reply("Paris."),
    user(" And of\nItaly? "),
    reply("Rome,\n\nof course"),
    user("Thanks"),
]


def format_of(template, **chat):
    """The format of a model with the demo's tokens and a template."""
    file = DEMO / "tokenizer.json"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = template
    return PromptFormat(tokenizer, Chat(template=template is not None, **chat))


def read_by_turns(form, messages, *, stop):
    """The ids that are read if a model gives the replies, with or without a stop token."""
    ids = form.opening(messages[: 1 + (messages[0]["role"] == "system")]).ids
    end = form.tokenizer.convert_tokens_to_ids("<|im_end|>") if stop else None
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            ids = ids + form.tokenizer.encode(message["content"], add_special_tokens=False)
            ids += [end] * stop
            ids += form.following(messages[: index + 2], index + 1, end).ids
    return form.tokenizer.decode(ids)


@pytest.mark.parametrize("system_prompt", [[], [system("Be brief.")]])
@pytest.mark.parametrize(
    ("template", "stop"),
    [
        (CHATML, True),
        (CHATML, False),
        (LLAMA, True),
        (OWN_SYSTEM, True),
        (SPOKEN, False),
        (THINKING, True),
        (ALTERNATES + CHATML, True),
    ],
)
def test_turns_together_are_the_whole(template, stop, system_prompt):
    form = format_of(template)
    messages = [*system_prompt, *TURNS]
    whole = form.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False
    )
    assert read_by_turns(form, messages, stop=stop) == whole


def test_the_system_prompt_is_pinned_and_nothing_of_the_message():
    form = format_of(CHATML)
    ids, pinned = form.opening([system("Be brief."), user("abc")])
    start = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
    assert form.tokenizer.decode(ids[:pinned]) == start
    assert form.opening([user("abc")]).pinned == 0


def test_without_a_template_messages_are_lines():
    form = format_of(None)
    messages = [system("Be brief."), user("a"), reply("b"), user("c")]
    ids, pinned = form.opening(messages[:2])
    assert form.tokenizer.decode(ids) == "Be brief.\na"
    assert form.tokenizer.decode(ids[:pinned]) == "Be brief.\n"
    assert form.tokenizer.decode(form.following(messages, 3, None).ids) == "\nc"


def test_only_the_template_opens_a_thought():
    begins = THINKING + "{% if add_generation_prompt %}<think>\n{% endif %}"
    marks = Thinking("<think>", "</think>")
    assert format_of(begins, thinking=marks).opens_thought([user("a")])
    assert not format_of(THINKING, thinking=marks).opens_thought([user("a <think>")])
    closed = begins.replace("<think>\n", "<think>\n</think>")
    assert not format_of(closed, thinking=marks).opens_thought([user("a")])
