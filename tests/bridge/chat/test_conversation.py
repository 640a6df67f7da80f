"""A conversation reads only what is new, and goes as the libraries' own generation does."""

from dataclasses import replace

import mlx_lm
import pytest

import h2o_py
from h2o_pack.chat.conversation import Conversation
from h2o_pack.errors import UserError
from tests.messages import says

QUESTION, NEXT = "Hello there, how are you?", "And you"


def answer(talk, message=NEXT, stopped=lambda: False):
    """The text, the thoughts and the usage of a reply."""
    events = list(talk.reply(message, stopped))
    texts = {
        kind: "".join(event.text for event in events if event.event == kind)
        for kind in ("text", "thought")
    }
    return texts["text"], texts["thought"], events[-1]


@pytest.mark.parametrize("kind", ["full", "bounded"])
def test_the_first_reply_is_that_of_the_libraries(kind, request):
    model = request.getfixturevalue(kind)
    text, _, _ = answer(Conversation(model, temperature=0, max_tokens=16), QUESTION)
    if kind == "full":
        expected = mlx_lm.generate(model.model, model.tokenizer, QUESTION, max_tokens=16)
    else:
        expected = h2o_py.generate(
            model.model, model.tokenizer, QUESTION, h2o_config=model.plan.cache, max_tokens=16
        )
    assert text == expected


@pytest.mark.parametrize("kind", ["full", "bounded"])
def test_the_second_turn_reads_only_new_tokens(kind, request):
    model = request.getfixturevalue(kind)
    talk = Conversation(model, seed=1, max_tokens=16)
    _, _, first = answer(talk, QUESTION)
    _, _, second = answer(talk)
    assert first.cached_tokens == 0
    assert second.cached_tokens == first.tokens == first.read_tokens + 16
    new = model.tokenizer.encode("\n" + NEXT, add_special_tokens=False)
    assert second.read_tokens == len(new)
    assert second.tokens == first.tokens + len(new) + 16
    assert second.rows == (24 if kind == "bounded" else second.tokens)
    assert (second.archive_bytes is not None) == (kind == "bounded")
    assert bool(second.archive_reads) == (kind == "bounded")


def test_the_same_seed_gives_the_same_conversation_and_another_one_another(full):
    def conversation(seed):
        talk = Conversation(full, seed=seed, max_tokens=12)
        return [answer(talk, text)[0] for text in (QUESTION, NEXT)]

    assert conversation(3) == conversation(3)
    assert conversation(3) != conversation(4)


@pytest.mark.parametrize("kind", ["full", "bounded"])
def test_repeated_steps_make_the_same_caches(kind, request):
    talk = Conversation(request.getfixturevalue(kind), seed=2, max_tokens=8)
    again = Conversation(talk.model, seed=2, max_tokens=8)
    for each in (talk, again):
        answer(each, QUESTION)
        answer(each)
    again.repeat()
    assert answer(talk)[0] == answer(again)[0]


def test_a_stopped_reply_stays_and_the_conversation_goes_on(full):
    talk = Conversation(full, seed=1, max_tokens=12)
    asked = []
    text, _, usage = answer(talk, QUESTION, lambda: len(asked) > 5 or asked.append(1))
    assert usage.stop == "stopped"
    assert 0 < usage.generated_tokens < 12
    assert talk.messages[-1] == {"role": "assistant", "content": text}
    assert len(talk.state.ids) == usage.tokens == talk.caches[0].offset
    _, _, following = answer(talk)
    assert following.cached_tokens == usage.tokens


def test_what_was_not_read_before_ctrl_c_is_read_with_the_next_message(full):
    talk = Conversation(full, seed=1, max_tokens=5)
    text, _, usage = answer(talk, QUESTION, lambda: True)
    assert (text, usage.read_tokens, usage.generated_tokens) == ("", 0, 0)
    answer(talk)
    ids = talk.state.ids[:-5]
    assert talk.model.tokenizer.decode(ids) == f"{QUESTION}\n{NEXT}"


def test_thoughts_are_apart_and_later_turns_are_without_them(thinking):
    talk = Conversation(thinking, seed=1, max_tokens=10)
    text, thoughts, usage = answer(talk, QUESTION)
    assert (text, bool(thoughts)) == ("", True)
    assert usage.thought_tokens == 10
    prompt = f"user:{QUESTION}<|endoftext|>assistant:"
    assert thinking.tokenizer.decode(talk.state.ids) == prompt
    assert talk.caches[0].offset == len(talk.state.ids)
    _, _, following = answer(talk)
    assert following.cached_tokens == usage.read_tokens - talk.format.reply_begin()
    read = f"{prompt}<|endoftext|>user:{NEXT}<|endoftext|>assistant:"
    assert thinking.tokenizer.decode(talk.state.ids) == read


def test_thinking_is_turned_off_and_on_between_replies(thinking):
    talk = Conversation(thinking, seed=1, max_tokens=10)
    assert answer(talk, QUESTION)[1]
    talk.think(thinking=False)
    text, thoughts, usage = answer(talk)
    assert (bool(text), thoughts, usage.thought_tokens) == (True, "", 0)
    first = f"user:{QUESTION}<|endoftext|>assistant:<|endoftext|>user:{NEXT}<|endoftext|>"
    read = f"{first}assistant:<think></think>{text}"
    assert thinking.tokenizer.decode(talk.state.ids) == read
    talk.think(thinking=True)
    assert answer(talk)[:2] != (text, "")
    read += f"<|endoftext|>user:{NEXT}<|endoftext|>assistant:"
    assert thinking.tokenizer.decode(talk.state.ids) == read


def test_only_a_template_with_a_switch_turns_thinking_on_or_off(full, thinking):
    Conversation(full, thinking=False)
    with pytest.raises(UserError) as refusal:
        Conversation(full, thinking=True)
    says(refusal.value)
    marks = replace(thinking.chat.thinking, variable=None)
    always = replace(thinking, chat=replace(thinking.chat, thinking=marks))
    with pytest.raises(UserError) as refusal:
        Conversation(always, thinking=False)
    says(refusal.value)


def test_a_system_prompt_is_pinned_and_begins_a_new_conversation(bounded):
    talk = Conversation(bounded, system_prompt="Be brief and kind.", max_tokens=24, seed=1)
    answer(talk, QUESTION)
    pinned = talk.state.pinned
    assert bounded.tokenizer.decode(talk.state.ids[:pinned]) == "Be brief and kind.\n"
    for cache in talk.caches:
        kept = cache.positions[0, 0].tolist()
        assert set(range(pinned)) <= set(kept)
    talk.begin_again("")
    assert (talk.messages, talk.state.ids, talk.system_prompt) == ([], [], "")


def test_a_message_that_is_too_long_is_refused_and_changes_nothing(full):
    talk = Conversation(full, seed=1, max_tokens=5)
    answer(talk, QUESTION)
    before = list(talk.messages), list(talk.state.ids)
    with pytest.raises(UserError) as refusal:
        answer(talk, "word " * 3000)
    says(refusal.value)
    assert (talk.messages, talk.state.ids) == before
