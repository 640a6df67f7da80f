"""Thoughts, text and the end of a reply are found in any pieces."""

import pytest

from h2o_pack.chat.reply_parts import HarmonyParts, ReplyParts, parts_of_reply
from h2o_pack.resolved.chat import HARMONY, Chat, Thinking

MARKS = Thinking("<think>", "</think>")
REPLIES = [
    ("Just text < think", False, "", "Just text < think"),
    ("\n<think>\n a b \n</think>\n\nAnswer <think>", False, "a b", "Answer <think>"),
    ("a\n\nb</think>\n c", True, "a\n\nb", "c"),
    ("never ends", True, "never ends", ""),
    ("<think></think>x", False, "", "x"),
    ("<think>a</think>\n<think>b</think>c", False, "ab", "c"),
    ("<thin", False, "", "<thin"),
    (" \n", False, "", " \n"),
]


ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
HARMONY_REPLIES = [
    (f"{ANALYSIS}a <b>\n<|end|><|start|>assistant{FINAL}Answer", "a <b>\n", "Answer"),
    (f"{FINAL}x<|return|>", "", "x"),
    (f"{ANALYSIS}never ends <|en", "never ends <|en", ""),
    (f"<|channel|>commentary<|message|>First.<|end|><|start|>assistant{CALL}{{}}<|call|>",
     "", "First."),
    (f"{ANALYSIS}a<|end|><|start|>assistant to=f{FINAL}b", "a", "b"),
    (f"{ANALYSIS}a<|end|><|channel|>other<|message|>b<|end|>{ANALYSIS}c", "ac", ""),
    ("Just text < |", "", "Just text < |"),
]  # fmt: skip


def parts_of(reply, pieces, **options):
    parts = ReplyParts(MARKS, **options)
    return found_in(parts, pieces(reply))


def found_in(parts, pieces):
    found = [part for piece in pieces for part in parts.read(piece)] + parts.finish()
    return tuple(
        "".join(part.text for part in found if part.kind == kind)
        for kind in ("thought", "text")
    )


def in_pieces(size):
    return lambda text: [text[i : i + size] for i in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(("reply", "is_thinking", "thought", "text"), REPLIES)
def test_the_parts_do_not_depend_on_the_pieces(reply, is_thinking, thought, text, size):
    assert parts_of(reply, in_pieces(size), is_thinking=is_thinking) == (thought, text)


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(("reply", "thought", "text"), HARMONY_REPLIES)
def test_the_channels_of_gpt_oss_are_thoughts_and_text(reply, thought, text, size):
    parts = parts_of_reply(Chat(thinking=Thinking(*HARMONY)), is_thinking=False)
    assert found_in(parts, in_pieces(size)(reply)) == (thought, text)


def test_a_token_of_gpt_oss_belongs_to_a_thought_until_the_thought_ends():
    parts = HarmonyParts()
    states = [(parts.read(piece), parts.is_thinking)[1] for piece in (ANALYSIS, "a", "<|end|>")]
    assert states == [True, True, False]


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_text_that_ends_replies_ends_it(size):
    parts = ReplyParts(None, ["\n###", "END"])
    pieces = in_pieces(size)("a\n## b\n### c END d")
    found = [part.text for piece in pieces for part in parts.read(piece)] + [
        part.text for part in parts.finish()
    ]
    assert "".join(found) == "a\n## b"
    assert parts.is_ended


def test_what_may_end_a_reply_is_held_back_until_it_does_not():
    parts = ReplyParts(None, ["END"])
    assert [part.text for part in parts.read("a EN")] == ["a "]
    assert [part.text for part in parts.finish()] == ["EN"]
