"""What is read and asked: windows of text with facts in them, the same for every cache.

A fact is a line such as "the code of LANTERN is 4821." among the text, in the form that the
demo model was trained on, and asked for later by "the code of LANTERN is". A sample is
decided by its seed and number alone, so that any process makes the same one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from h2o_pack.files.text import usage_error
from h2o_pack.measure.text import Tokens

STATEMENT = "\nthe code of {key} is {code}.\n"
QUESTION = "\nthe code of {key} is"
ASKED_IN = 24
"""Tokens of text and question that are fed together when a fact is asked for."""

FOLLOWING = 128
"""Tokens of text after a sample that are known, besides those that questions stand among."""

_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Fact:
    """A name and its number.

    Args:
        key: in capitals.
        code: so many digits as the shape says.
        depth: as the shape has it.
        position: of its statement's first token in the sample.
        length: tokens of the statement.

    """

    key: str
    code: str
    depth: float
    position: int
    length: int


@dataclass(frozen=True)
class Question:
    """Asks for a fact.

    Args:
        ids: what is fed: text, then the question; of the same length in all samples.
        answer: what a right answer contains, and no wrong one.
        fact: what is asked for.
        distance: tokens from the statement's end to the question's.

    """

    ids: tuple[int, ...]
    answer: str
    fact: Fact
    distance: int


@dataclass(frozen=True)
class Sample:
    """What is fed token by token, and what is asked then.

    Args:
        seed: of the sample.
        number: among the samples of the seed.
        ids: all samples of a kind have the same length.
        scored: whether the model can be expected to predict the id: false in facts and
            at the very beginning.
        questions: asked after the last id.
        after: how the text goes on after the last id.

    """

    seed: int
    number: int
    ids: tuple[int, ...]
    scored: tuple[bool, ...]
    questions: tuple[Question, ...]
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Shape:
    """How a sample is built.

    Args:
        length: tokens until the first question has been asked.
        depths: where facts stand, as shares of the text: 0 at its beginning. Facts whose
            depth is the same stand one after another.
        asked: which facts are asked for, by their number in `depths`, in this order.
        in_turns: whether each question comes after what was asked before, and the time
            between fills `ASKED_IN` tokens again; otherwise each is the first.
        digits: of each fact's number.

    """

    length: int
    depths: tuple[float, ...] = ()
    asked: tuple[int, ...] = ()
    in_turns: bool = False
    digits: int = 4


def make_sample(
    tokens: Tokens, words: Sequence[str], shape: Shape, seed: int, number: int
) -> Sample:
    """Make one sample.

    Args:
        tokens: the text.
        words: for the names in facts.
        shape: how it is built.
        seed: decides, with `number`, the window, the names and the codes.
        number: counts the samples of a seed.

    Raises:
        UserError: the text is too short, or the facts leave no room for any.

    """
    draw = random.Random(f"{seed}/{number}")  # noqa: S311  not for secrets
    start = _start(seed, number, len(tokens.ids))
    named = _names(draw, words, tokens, shape)
    stated = [tokens.encode(STATEMENT.format(key=k, code=c)) for k, c in named]
    room = shape.length - (ASKED_IN if shape.asked else 0) - len(tokens.first)
    filler = room - sum(map(len, stated))
    if filler < len(stated) + 1:
        raise usage_error(
            f"{shape.length} tokens leave no room for text among {len(stated)} facts",
            "Use longer samples (--lengths).",
        )
    after = max(FOLLOWING, ASKED_IN * len(shape.asked))
    window = tokens.window(start, filler + after)
    ids, scored = list(tokens.first), [False] * len(tokens.first)
    facts, taken = {}, 0
    order = sorted(range(len(stated)), key=lambda i: (shape.depths[i], i))
    for i in order:
        until = min(filler, round(shape.depths[i] * filler))
        ids += window[taken:until]
        scored += [True] * (until - taken)
        taken = until
        facts[i] = Fact(*named[i], shape.depths[i], position=len(ids), length=len(stated[i]))
        ids += stated[i]
        scored += [False] * len(stated[i])
    ids += window[taken:filler]
    scored += [True] * (filler - taken)
    scored[0] = False
    return Sample(
        seed=seed,
        number=number,
        ids=tuple(ids),
        scored=tuple(scored),
        questions=_questions(tokens, shape, facts, len(ids), window[filler:]),
        after=tuple(window[filler : filler + FOLLOWING]),
    )


def _start(seed: int, number: int, total: int) -> int:
    """Return where the window of a sample begins; those of one seed are spread out."""
    first = random.Random(seed).random()  # noqa: S311  not for secrets
    return int((first + number * _GOLDEN) % 1.0 * total)


def _questions(
    tokens: Tokens, shape: Shape, facts: dict[int, Fact], length: int, text: list[int]
) -> tuple[Question, ...]:
    asked = []
    for turn, i in enumerate(shape.asked):
        fact = facts[i]
        question = tokens.encode(QUESTION.format(key=fact.key))
        before = text[turn * ASKED_IN : (turn + 1) * ASKED_IN - len(question)]
        passed = turn * ASKED_IN if shape.in_turns else 0
        ids = (*before, *question)
        distance = length + passed + len(ids) - (fact.position + fact.length)
        asked.append(Question(ids, fact.code, fact, distance))
    return tuple(asked)


def _names(
    draw: random.Random, words: Sequence[str], tokens: Tokens, shape: Shape
) -> list[tuple[str, str]]:
    """Draw names whose questions fit, and their codes, each of them once."""
    count, least = len(shape.depths), 10 ** (shape.digits - 1)
    named: list[tuple[str, str]] = []
    keys, codes = set(), set()
    for word in draw.sample(list(words), len(words)):
        if len(named) == count:
            break
        key, code = word.upper(), str(draw.randrange(least, 10 * least))
        fits = len(tokens.encode(QUESTION.format(key=key))) < ASKED_IN
        if fits and key not in keys and code not in codes:
            named.append((key, code))
            keys.add(key)
            codes.add(code)
    if len(named) < count:
        raise usage_error(
            f"{count} facts need as many words, and only {len(named)} can be used",
            "Ask for fewer facts.",
        )
    return named
