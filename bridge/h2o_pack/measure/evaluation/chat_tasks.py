"""Makes tasks in a conversation, written with the model's own chat template.

One conversation contains the answers to all tasks: notes of real text with facts of one form
among them, a rule in its first turn, a fact in an answer of the model, and a fact in a tool's
output. The questions of each task are asked on a copy of the caches.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources

from msgspec import Struct

from h2o_pack.errors import usage_error
from h2o_pack.files.toml import parse_toml
from h2o_pack.measure.evaluation.tasks import Asking, Turn, Way
from h2o_pack.measure.text import Messages, Tokens, window_start

PASSAGE, FORECAST = 16, 32
"""Tokens of the notes' continuation that the model reads, and tokens that it then predicts."""
_SENTENCE = range(40, 400)
"""Characters of a sentence that is taken from the text."""
_END = "\N{REFERENCE MARK}"
"""Marks the end of the notes, where text is cut so that a conversation is not too long."""


class Form(Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of fact; its texts contain placeholders.

    statement: with {name} and {value}. question, wording: two questions, with {name}. begin:
    the answer's text before the value, with {name}. together: a question about several facts,
    with {names}. words: whether the value is a word; otherwise it is a number of four digits.
    """

    statement: str
    question: str
    wording: str
    begin: str
    together: str
    words: bool = False


class Phrases(Struct, frozen=True, forbid_unknown_fields=True):
    """The texts of conversations.toml; a question comes with the beginning of its answer."""

    names: str
    words: str
    rule: str
    rule_asked: tuple[str, str]
    earlier: str
    earlier_asked: tuple[str, str]
    tool_asked: tuple[str, str]
    on: str
    form: tuple[Form, ...]


@cache
def phrases() -> Phrases:
    """Return the texts of conversations.toml."""
    file = resources.files(__package__) / "conversations.toml"
    return parse_toml(file.read_text("utf-8"), Phrases, "conversations.toml")


@dataclass(frozen=True)
class Conversation:
    """A conversation before any question is asked.

    messages: its turns; the notes in them are longer than those in `ids`. ids: of all turns,
    with the notes cut. following: ids of the notes' continuation after the cut. facts: (name,
    value) pairs, in the order of the questions. rule: the word that the first turn tells the
    model to answer with. earlier: the (name, value) pair in the model's answer. tool: the
    (name, value) pair in the tool's output.
    """

    tokens: Tokens
    messages: Messages
    ids: tuple[int, ...]
    following: tuple[int, ...]
    form: Form
    facts: tuple[tuple[str, str], ...]
    rule: str
    earlier: tuple[str, str]
    tool: tuple[str, str]

    def asked(self, way: Way) -> Asking:
        """Return the turns in which the facts are asked for."""
        return _TASKS[way](self)

    def added(self, turns: Messages, earlier: Messages = (), *, reply: bool = False) -> str:
        """Return the text that turns add after the conversation and `earlier` turns.

        reply: whether the model's turn begins at the end. Raises UserError: the template writes
        earlier turns differently after a new turn.
        """
        messages = (*self.messages, *earlier)
        before = self.tokens.chat(messages)
        after = self.tokens.chat((*messages, *turns), reply=reply)
        if not after.startswith(before):
            raise usage_error(
                "the chat template changes earlier turns when a new one comes",
                "Choose a model whose template only appends turns.",
            )
        return after[len(before) :]

    def question(self, question: str, begin: str, earlier: Messages = ()) -> tuple[int, ...]:
        """Return the ids of a question, as a turn of the user, and of the answer's beginning.

        earlier: turns between the conversation and the question.
        """
        turn = {"role": "user", "content": question}
        return tuple(self.tokens.encode(self.added((turn,), earlier, reply=True) + begin))

    def fact(self, number: int, *, wording: bool = False) -> tuple[str, str, str]:
        """Return a fact's question, its answer's beginning, and its value."""
        name, value = self.facts[number]
        question = self.form.wording if wording else self.form.question
        return question.format(name=name), self.form.begin.format(name=name), value


def make_conversation(
    tokens: Tokens, length: int, facts: int, seed: int, number: int
) -> Conversation:
    """Make a conversation of `length` tokens, without a question, with `facts` facts.

    seed, number: decide the text, the names and the values; the forms of facts take turns
    from one number to the next. Raises UserError: the model has no chat template, or the facts
    do not fit.
    """
    draw = random.Random(f"chat {seed}/{number}")  # noqa: S311  not for secrets
    texts = phrases()
    form = texts.form[(seed + number) % len(texts.form)]
    names = draw.sample(texts.names.split(), facts + 2)
    codes = [str(code) for code in draw.sample(range(1000, 10000), facts + 2)]
    words = draw.sample(texts.words.split(), len(texts.words.split()))
    values = words if form.words and facts < len(words) else codes
    pairs = list(zip(names[:facts], values, strict=False))
    notes = _notes(tokens, window_start(seed, number, 1000) / 1000, length)
    reach = _within(tokens, notes, length - 300 - 20 * facts)
    slots = sorted(draw.sample(range(1, max(reach, facts + 2)), facts), reverse=True)
    for slot, (name, value) in zip(slots, pairs, strict=True):
        notes.insert(slot, form.statement.format(name=name, value=value))
    draw.shuffle(pairs)
    rule = words[-1]
    earlier, tool = (names[-1], codes[-1]), (names[-2], codes[-2])
    part = reach // 3
    messages = _messages(notes[:part], notes[part:], rule, earlier, tool)
    head, _, tail = tokens.chat(messages).partition(_END)
    before, after = tokens.encode(head), tokens.encode(tail)
    cut = length - len(after)
    ids = (*before[:cut], *after)
    text = tokens.decode(ids)
    if len(ids) != length or any(f" {value}" not in text for _, value in pairs):
        raise usage_error(
            f"{length} tokens leave no room for {facts} facts in a conversation",
            "Use longer samples (--lengths), or fewer decoys.",
        )
    following = tuple(before[cut : cut + PASSAGE + FORECAST])
    return Conversation(
        tokens, messages, ids, following, form, tuple(pairs), rule, earlier, tool
    )


def _notes(tokens: Tokens, share: float, length: int) -> list[str]:
    """Return more sentences than a conversation of `length` tokens needs.

    share: where in the text the sentences begin, 0 to 1.
    """
    whole = re.sub(r"\s+", " ", " ".join(tokens.documents))
    sentences = [s for s in re.split(r"(?<=[.!?]) ", whole) if len(s) in _SENTENCE]
    first, notes, characters = int(share * len(sentences)), list[str](), 0
    while sentences and characters < 8 * length:
        notes.append(sentences[(first + len(notes)) % len(sentences)])
        characters += len(notes[-1])
    return notes


def _within(tokens: Tokens, notes: list[str], room: int) -> int:
    """Return how many sentences fit into `room` tokens."""
    for count, sentence in enumerate(notes):
        room -= len(tokens.encode(f" {sentence}"))
        if room < 0:
            return count
    return len(notes)


def _messages(
    first: list[str],
    second: list[str],
    rule: str,
    earlier: tuple[str, str],
    tool: tuple[str, str],
) -> Messages:
    order = json.dumps({"customer": tool[0], "order": int(tool[1])})
    begin = phrases().rule.format(value=rule)
    turns = (
        ("system", "You are a helpful assistant. Answer questions about the notes."),
        ("user", f"{begin}\n\nHere are my notes.\n\n{' '.join(first)}"),
        ("assistant", phrases().earlier.format(name=earlier[0], value=earlier[1])),
        ("user", f"Look up the order of {tool[0]}."),
        ("assistant", "I am looking it up."),
        ("tool", order),
        ("assistant", "I have found it."),
        ("user", f"Here are more of my notes.\n\n{' '.join(second)}{_END}"),
        ("assistant", "Thank you. I have read your notes."),
    )
    return tuple({"role": role, "content": content} for role, content in turns)


def _asked(talk: Conversation, *, wording: bool = False) -> Asking:
    question, begin, value = talk.fact(0, wording=wording)
    return (Turn(talk.question(question, begin), answer=value),)


def _second_turn(talk: Conversation) -> Asking:
    """Ask for a fact after a turn in which another fact was asked for and answered."""
    question, begin, value = talk.fact(1)
    turns = (
        {"role": "user", "content": question},
        {"role": "assistant", "content": f"{begin} {value}."},
    )
    question, begin, value = talk.fact(0)
    before = tuple(talk.tokens.encode(talk.added(turns)))
    return Turn(before), Turn(talk.question(question, begin, turns), answer=value)


def _middle(talk: Conversation) -> Asking:
    """Name no one in the question; the answer must state one fact and then begin another."""
    _, first, second = talk.fact(1)
    _, begin, value = talk.fact(0)
    prompt = talk.question("Please tell me what you know from my notes.", "Here it is.")
    forced = tuple(talk.tokens.encode(f" {first} {second}. {begin}"))
    return (Turn(prompt, forced, answer=value),)


def _named(talk: Conversation) -> Asking:
    """Ask for three facts at once; the answer must give one of them, and then another."""
    names = [name for name, _ in talk.facts[:3]]
    together = talk.form.together.format(names=f"{names[2]}, {names[1]} and {names[0]}")
    _, first, second = talk.fact(1)
    _, begin, value = talk.fact(0)
    forced = tuple(talk.tokens.encode(f"\n{begin}"))
    return (
        Turn(talk.question(together, first), answer=second),
        Turn(forced=forced, answer=value),
    )


def _single(pair: tuple[str, str], wording: tuple[str, str], talk: Conversation) -> Asking:
    question, begin = (part.format(name=pair[0]) for part in wording)
    return (Turn(talk.question(question, begin), answer=pair[1]),)


def _text(talk: Conversation) -> Asking:
    prompt = (*talk.question(phrases().on, ""), *talk.following[:PASSAGE])
    return (Turn(prompt, talk.following[PASSAGE:], predicted=True),)


_TASKS: dict[Way, Callable[[Conversation], Asking]] = {
    "asked": _asked,
    "wording": partial(_asked, wording=True),
    "second_turn": _second_turn,
    "middle": _middle,
    "named": _named,
    "instruction": lambda talk: _single(("", talk.rule), phrases().rule_asked, talk),
    "earlier": lambda talk: _single(talk.earlier, phrases().earlier_asked, talk),
    "tool": lambda talk: _single(talk.tool, phrases().tool_asked, talk),
    "text": _text,
}
