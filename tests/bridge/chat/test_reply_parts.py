"""Thoughts, text and the end of a reply are found in any pieces."""

import pytest

from h2o_pack.chat.reply_parts import ReplyParts
from h2o_pack.resolved.chat import Thinking

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


def parts_of(reply, pieces, **options):
    parts = ReplyParts(MARKS, **options)
    found = [part for piece in pieces(reply) for part in parts.read(piece)] + parts.finish()
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
