"""What a chat template does, found by rendering it."""

import pytest

from h2o_pack.resolved.chat import Thinking, describe_chat, ids_of_ends
from tests.messages import says

TOKENS = {"<|im_start|>": 1, "<|im_end|>": 2, "<|endoftext|>": 3, "</s>": 4, "<|return|>": 5}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WITH_TOOLS = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}{% for m in messages %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls %}<call>{{ call.function | tojson }}</call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
)
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.last %}<think>\n{{ m.reasoning_content }}\n</think>\n\n"
    "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
HARMONY = (
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% if m.thinking and loop.last %}<|start|>assistant<|channel|>analysis<|message|>"
    "{{ m.thinking }}<|end|>{% endif %}<|start|>assistant<|channel|>final<|message|>"
    "{{ m.content }}{% if loop.last %}<|return|>{% else %}<|end|>{% endif %}"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
SPOKEN = (
    "{% for m in messages %}{% if m.role == 'user' %}### User:\n{{ m.content }}\n\n"
    "{% else %}### Assistant:\n{{ m.content }}\n\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}### Assistant:\n{% endif %}"
)


def chat_of(source, own=(2,), tokens=TOKENS):
    return describe_chat(source, {"eos_token": "</s>"}, tokens, list(own)).chat


def test_a_plain_template_takes_a_system_prompt_and_does_not_think():
    chat = chat_of(CHATML)
    assert (chat.template, chat.system, chat.tools, chat.thinking) == (True, True, False, None)
    assert (chat.stops, chat.stop_texts) == ((2,), ())


def test_without_a_template_only_the_ends_are_known():
    chat = describe_chat(None, {}, TOKENS, [3, 2, 3]).chat
    assert (chat.template, chat.stops) == (False, (2, 3))


@pytest.mark.parametrize(
    "source",
    [
        "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + CHATML,
        CHATML.replace(
            "{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"
        ),
    ],
)
def test_a_template_that_refuses_or_omits_a_system_prompt_takes_none(source):
    assert not chat_of(source).system


def test_a_template_takes_tools_if_it_writes_tools_and_their_results():
    assert chat_of(WITH_TOOLS).tools


@pytest.mark.parametrize(
    "source",
    [
        WITH_TOOLS.replace("{{ tools | tojson }}", ""),
        "{% if messages[-1].role == 'tool' %}{{ raise_exception('no') }}{% endif %}"
        + WITH_TOOLS,
        WITH_TOOLS.replace("messages %}", "messages if m.role != 'tool' %}"),
    ],
)
def test_a_template_that_omits_tools_or_results_takes_no_tools(source):
    assert not chat_of(source).tools


def test_what_a_template_does_not_take_is_noted():
    refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    for source in (CHATML, refuses + WITH_TOOLS, refuses + CHATML):
        [remark] = describe_chat(source, {}, TOKENS, [2]).remarks
        says(remark)
    assert describe_chat(WITH_TOOLS, {}, TOKENS, [2]).remarks == ()


def test_the_marks_and_the_switch_of_thoughts_are_those_that_the_template_writes():
    chat = chat_of(THINKING)
    assert chat.thinking == Thinking("<think>", "</think>", "enable_thinking")
    assert chat.drops_thoughts


def test_marks_that_no_list_has_are_found_around_the_thoughts():
    source = THINKING.replace("think>", "ponder>").replace("enable_pondering", "x")
    assert chat_of(source).thinking == Thinking("<ponder>", "</ponder>", "enable_thinking")


def test_a_template_that_keeps_thoughts_is_known():
    chat = chat_of(THINKING.replace(" and loop.last", ""))
    assert chat.thinking is not None
    assert not chat.drops_thoughts


def test_a_template_that_only_begins_a_thought_thinks_without_a_switch():
    source = CHATML.replace("assistant\n", "assistant\n<think>\n")
    assert chat_of(source).thinking == Thinking("<think>", "</think>")


def test_a_template_that_removes_thoughts_from_earlier_replies_thinks():
    source = CHATML.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
    assert chat_of(source).thinking == Thinking("<think>", "</think>")


def test_a_template_that_tells_the_model_to_think_in_marks_thinks():
    source = "{% if thinking %}Write your thoughts between <think> and </think>.{% endif %}"
    assert chat_of(source + CHATML).thinking == Thinking("<think>", "</think>", "thinking")


def test_a_switch_that_only_writes_an_empty_thought_makes_a_model_think():
    off = "assistant\n{% if enable_thinking == false %}<think></think>{% endif %}"
    source = CHATML.replace("assistant\n", off)
    assert chat_of(source).thinking == Thinking("<think>", "</think>", "enable_thinking")


def test_a_word_for_thoughts_in_the_template_alone_does_not_make_a_model_think():
    assert chat_of("{# <think> enable_thinking #}" + CHATML).thinking is None


def test_the_end_of_a_thought_is_not_the_end_of_a_reply():
    chat = chat_of(HARMONY, own=(3,), tokens={**TOKENS, "<|end|>": 6})
    assert chat.thinking == Thinking("<|channel|>analysis<|message|>", "<|end|>")
    assert chat.stops == (3, 5)


def test_the_end_of_a_turn_that_no_file_names_becomes_a_stop_with_a_note():
    described = describe_chat(CHATML, {}, TOKENS, [3])
    assert described.chat.stops == (2, 3)
    says(described.remarks[0])


def test_a_turn_that_ends_with_plain_text_ends_replies_with_a_note():
    described = describe_chat(SPOKEN, {}, TOKENS, [3])
    assert (described.chat.stops, described.chat.stop_texts) == ((3,), ("\n### User:",))
    says(described.remarks[0])


def test_chat_ml_without_its_tokens_ends_with_their_text():
    chat = chat_of(CHATML, own=(3,), tokens={"<|endoftext|>": 3})
    assert (chat.stops, chat.stop_texts) == ((3,), ("<|im_end|>",))


def test_ends_are_collected_from_all_files():
    documents = ({"eos_token_id": [7, 8]}, {"eos_token_id": 9}, {"eos_token_id": None}, {})
    assert ids_of_ends(documents, TOKENS, {"content": "</s>"}) == [7, 8, 9, 4]
