"""The ways in which a text is asked about after it was read.

A way asks once or several times, each on a copy of the caches, in turns as a user and a model
would take them: a prompt, then tokens that the model is made to say, then an answer of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from h2o_pack.files.text import usage_error
from h2o_pack.measure.evaluation.samples import ASKED_IN, QUESTION, Sample
from h2o_pack.measure.text import Tokens

Way = Literal["asked", "second_turn", "named", "middle", "late", "wording", "copy", "text"]

_FORECAST = ("copy", "text")
"""Ways in which what the model is made to say is predicted, and nothing is answered."""
METRICS = tuple(
    name
    for way in get_args(Way)
    for name in ((f"{way}_nll", f"{way}_kl") if way in _FORECAST else (way,))
)

OTHER_WORDING = "\nnumber for {key}:"
_PROMPT = 16
"""Tokens of a prompt that asks nothing."""
_NAMED, _NAMED_ASKED, _NAMED_IN = 8, (1, 6, 3, 0), 96
"""Facts named in one prompt, those of them asked for in turn, and the prompt's tokens."""
_LEADS = (24, 27, 30, 33)
"""Tokens, question included, until a fact is asked for in the middle of an answer: all
remainders of 4."""
_PAGE, _LATE_IN = 40, 24
"""Tokens that follow a question in its prompt, and that lead to the answer then."""
_PASSAGE, _FORECAST_TOKENS = 16, 48
"""Tokens of a passage that are given, and tokens that are predicted."""

LENGTHS = {
    "asked_in": ASKED_IN,
    "named": _NAMED,
    "of_them": len(_NAMED_ASKED),
    "given": _PASSAGE,
    "forecast": _FORECAST_TOKENS,
    "page": _PAGE,
}
"""What pages say of the ways."""


@dataclass(frozen=True)
class Turn:
    """A turn; the same lengths in all samples.

    Args:
        prompt: ids that are read as a prompt; none for no prompt.
        said: ids that the model is then made to say, one by one.
        predicted: whether `said` is compared with what the model predicts.
        answer: what a right answer contains that the model gives then; empty for none.
        counts: whether the answer does.

    """

    prompt: tuple[int, ...] = ()
    said: tuple[int, ...] = ()
    predicted: bool = False
    answer: str = ""
    counts: bool = True


Asking = tuple[Turn, ...]


def askings(way: Way, tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    """Return how a sample is asked in a way, each asking for a copy of the caches.

    Raises:
        UserError: the sample has too few facts for the way.

    """
    return _WAYS[way](tokens, sample)


def _asked(_tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    question = sample.questions[0]
    return ((Turn(question.ids, answer=question.answer),),)


def _second_turn(tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    """Another fact is asked for first; without one, a turn of text comes first."""
    if len(sample.questions) > 1:
        other = sample.questions[-1]
        first = Turn(other.ids, answer=other.answer, counts=False)
    else:
        text = _text(tokens, sample, "first", 2 * _PROMPT)
        first = Turn(text[:_PROMPT], said=text[_PROMPT:])
    return ((first, *_asked(tokens, sample)[0]),)


def _named(tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    facts = [question.fact for question in sample.questions[:_NAMED]]
    if len(facts) < _NAMED:
        raise usage_error(
            f"{len(facts)} facts cannot be named together with others: {_NAMED} are needed",
            "Give more decoys, or leave the way out.",
        )
    names = ", ".join(fact.key for fact in facts)
    prompt = _ending(tokens, sample, "names", f"\nthe codes of {names}:\n", _NAMED_IN)
    turns = [Turn(prompt)]
    for n in _NAMED_ASKED:
        said = _ending(tokens, sample, f"named {n}", _question(facts[n].key), ASKED_IN)
        turns.append(Turn(said=said, answer=facts[n].code))
    return (tuple(turns),)


def _middle(tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    found = []
    for n, lead in enumerate(_LEADS):
        fact = sample.questions[n % len(sample.questions)].fact
        prompt = _text(tokens, sample, f"prompt {n}", _PROMPT)
        said = _ending(tokens, sample, f"answer {n}", _question(fact.key), lead)
        found.append((Turn(prompt, said, answer=fact.code),))
    return tuple(found)


def _late(tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    """The prompt begins with the question, and other text follows, as a pasted page does."""
    question = sample.questions[0]
    prompt = question.ids + _text(tokens, sample, "page", _PAGE)
    said = _ending(tokens, sample, "late", _question(question.fact.key), _LATE_IN)
    return ((Turn(prompt, said, answer=question.answer),),)


def _wording(tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    fact = sample.questions[0].fact
    asked = OTHER_WORDING.format(key=fact.key)
    prompt = _ending(tokens, sample, "wording", asked, ASKED_IN)
    return ((Turn(prompt, answer=fact.code),),)


def _copy(_tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    """A passage of the first half, without a fact in it where there is one."""
    whole = _PASSAGE + _FORECAST_TOKENS
    draw = random.Random(f"copy {sample.seed}/{sample.number}")  # noqa: S311  not for secrets
    last = min(len(sample.ids) // 2, len(sample.ids) - whole)
    if last < 1:
        raise usage_error(
            f"a text of {len(sample.ids)} tokens has no passage of {whole} to copy",
            "Use longer samples (--lengths).",
        )
    starts = list(range(1, last + 1))
    draw.shuffle(starts)
    start = next((s for s in starts if all(sample.scored[s : s + whole])), starts[0])
    passage = sample.ids[start : start + whole]
    return ((Turn(passage[:_PASSAGE], passage[_PASSAGE:], predicted=True),),)


def _go_on(_tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    text = sample.after[: 2 * _PROMPT + _FORECAST_TOKENS]
    return ((Turn(text[: 2 * _PROMPT], text[2 * _PROMPT :], predicted=True),),)


_WAYS: dict[Way, Callable[[Tokens, Sample], tuple[Asking, ...]]] = {
    "asked": _asked,
    "second_turn": _second_turn,
    "named": _named,
    "middle": _middle,
    "late": _late,
    "wording": _wording,
    "copy": _copy,
    "text": _go_on,
}


def _question(key: str) -> str:
    return QUESTION.format(key=key)


def _text(tokens: Tokens, sample: Sample, purpose: str, length: int) -> tuple[int, ...]:
    """Draw a piece of other text."""
    draw = random.Random(f"{purpose} {sample.seed}/{sample.number}")  # noqa: S311
    return tuple(tokens.window(draw.randrange(len(tokens.ids)), length))


def _ending(
    tokens: Tokens, sample: Sample, purpose: str, end: str, length: int
) -> tuple[int, ...]:
    """Return other text that ends in `end`, its last `length` tokens."""
    ids: Sequence[int] = tokens.encode(end)
    before = _text(tokens, sample, purpose, length)
    return (*before[: max(0, length - len(ids))], *ids)[-length:]
