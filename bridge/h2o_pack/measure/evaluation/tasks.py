"""What is asked of a model: text with facts, ways of asking, and prompts in turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from h2o_pack.errors import usage_error
from h2o_pack.measure.text import Tokens

STATEMENT = "\nthe code of {key} is {code}.\n"
QUESTION = "\nthe code of {key} is"
ASKED_IN = 24
"""Tokens of text and question that are fed together when a fact is asked for."""

FOLLOWING = 128
"""Tokens of text after a sample that are known, besides those that questions stand among."""

_GOLDEN = (5**0.5 - 1) / 2

SPEED = ("tokens_per_second", "peak_bytes")
"""Metrics of a run whose speed is measured."""


@dataclass(frozen=True)
class Outcome:
    """What a contender did on one sample, or in one run whose speed was measured.

    metrics: by name. Where text is read token by token: nll, kl and agreement, means over the
    scored tokens of -ln p of the token that came, of the KL divergence of the full cache's
    prediction from this one (both in nats), and of whether both have the same most likely
    token; recall, the share of questions that were answered. answers: for each question in its
    turn, the depth of the fact and whether it was answered. kept: by layer, the share of each
    part of the text whose rows are still there, heads taken together; empty for caches without
    a ledger.
    """

    metrics: dict[str, float]
    answers: tuple[tuple[float, bool], ...] = ()
    kept: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Fact:
    """A name and its number; position and length, in tokens, of its statement in the sample."""

    key: str
    code: str
    depth: float
    position: int
    length: int


@dataclass(frozen=True)
class Question:
    """Asks for a fact.

    ids: text, then the question; of the same length in all samples. answer: what a right answer
    contains, and no wrong one. distance: tokens from the statement's end to the question's.
    """

    ids: tuple[int, ...]
    answer: str
    fact: Fact
    distance: int


@dataclass(frozen=True)
class Sample:
    """What is fed token by token, and what is asked then.

    number: among the samples of the seed. ids: as many in all samples of a kind. scored:
    whether the model can be expected to predict the id: not in facts and at the very beginning.
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

    length: tokens until the first question has been asked. depths: where facts stand, as shares
    of the text: 0 at its beginning. Facts whose depth is the same stand one after another.
    asked: which facts are asked for, by their number in `depths`, in this order. in_turns:
    whether each question comes after what was asked before, and the time between fills
    `ASKED_IN` tokens again; otherwise each is the first. digits: of each fact's number.
    """

    length: int
    depths: tuple[float, ...] = ()
    asked: tuple[int, ...] = ()
    in_turns: bool = False
    digits: int = 4


def make_sample(
    tokens: Tokens, words: Sequence[str], shape: Shape, seed: int, number: int
) -> Sample:
    """Make one sample; seed and number decide the window, the names and the codes.

    Raises UserError: the text is too short, or the facts leave no room for any.
    """
    draw = random.Random(f"{seed}/{number}")  # noqa: S311  not for secrets
    start = window_start(seed, number, len(tokens.ids))
    pairs = _names(draw, words, tokens, shape)
    statements = [tokens.encode(STATEMENT.format(key=k, code=c)) for k, c in pairs]
    room = shape.length - (ASKED_IN if shape.asked else 0) - len(tokens.first)
    filler = room - sum(map(len, statements))
    if filler < len(statements) + 1:
        raise usage_error(
            f"{shape.length} tokens leave no room for text among {len(statements)} facts",
            "Use longer samples (--lengths).",
        )
    after = max(FOLLOWING, ASKED_IN * len(shape.asked))
    window = tokens.window(start, filler + after)
    ids, scored = list(tokens.first), [False] * len(tokens.first)
    facts, begin = {}, 0
    order = sorted(range(len(statements)), key=lambda i: (shape.depths[i], i))
    for i in order:
        until = min(filler, round(shape.depths[i] * filler))
        ids += window[begin:until]
        scored += [True] * (until - begin)
        begin = until
        statement = statements[i]
        facts[i] = Fact(*pairs[i], shape.depths[i], position=len(ids), length=len(statement))
        ids += statement
        scored += [False] * len(statement)
    ids += window[begin:filler]
    scored += [True] * (filler - begin)
    scored[0] = False
    return Sample(
        seed=seed,
        number=number,
        ids=tuple(ids),
        scored=tuple(scored),
        questions=_questions(tokens, shape, facts, len(ids), window[filler:]),
        after=tuple(window[filler : filler + FOLLOWING]),
    )


def window_start(seed: int, number: int, total: int) -> int:
    """Return where the window of a sample begins; those of one seed are spread out."""
    first = random.Random(seed).random()  # noqa: S311  not for secrets
    return int((first + number * _GOLDEN) % 1.0 * total)


def _questions(
    tokens: Tokens, shape: Shape, facts: dict[int, Fact], length: int, text: list[int]
) -> tuple[Question, ...]:
    questions = []
    for turn, i in enumerate(shape.asked):
        fact = facts[i]
        question = tokens.encode(QUESTION.format(key=fact.key))
        before = text[turn * ASKED_IN : (turn + 1) * ASKED_IN - len(question)]
        passed = turn * ASKED_IN if shape.in_turns else 0
        ids = (*before, *question)
        distance = length + passed + len(ids) - (fact.position + fact.length)
        questions.append(Question(ids, fact.code, fact, distance))
    return tuple(questions)


def _names(
    draw: random.Random, words: Sequence[str], tokens: Tokens, shape: Shape
) -> list[tuple[str, str]]:
    """Draw names whose questions fit, and their codes, each of them once."""
    count, least = len(shape.depths), 10 ** (shape.digits - 1)
    pairs: list[tuple[str, str]] = []
    keys, codes = set(), set()
    for word in draw.sample(list(words), len(words)):
        if len(pairs) == count:
            break
        key, code = word.upper(), str(draw.randrange(least, 10 * least))
        fits = len(tokens.encode(QUESTION.format(key=key))) < ASKED_IN
        if fits and key not in keys and code not in codes:
            pairs.append((key, code))
            keys.add(key)
            codes.add(code)
    if len(pairs) < count:
        raise usage_error(
            f"{count} facts need as many words, and only {len(pairs)} can be used",
            "Ask for fewer facts.",
        )
    return pairs


Way = Literal[
    "asked", "second_turn", "named", "middle", "late", "wording", "copy", "text",
    "instruction", "earlier", "tool",
]  # fmt: skip

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

    prompt: ids that are read as a prompt; none for no prompt. forced: ids that the model is
    then made to say, one by one. predicted: whether `forced` is compared with what the model
    predicts. answer: what a right answer contains that the model gives then; empty for none.
    counts: whether the answer does.
    """

    prompt: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    predicted: bool = False
    answer: str = ""
    counts: bool = True


Asking = tuple[Turn, ...]


def askings(way: Way, tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    """Return how a sample is asked in a way, each asking for a copy; UserError if it cannot."""
    if way not in _WAYS:
        raise usage_error(
            f'the way "{way}" belongs to conversations', 'Give it to the task "chat".'
        )
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
        first = Turn(text[:_PROMPT], forced=text[_PROMPT:])
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
        forced = _ending(tokens, sample, f"named {n}", _question(facts[n].key), ASKED_IN)
        turns.append(Turn(forced=forced, answer=facts[n].code))
    return (tuple(turns),)


def _middle(tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    askings = []
    for n, lead in enumerate(_LEADS):
        fact = sample.questions[n % len(sample.questions)].fact
        prompt = _text(tokens, sample, f"prompt {n}", _PROMPT)
        forced = _ending(tokens, sample, f"answer {n}", _question(fact.key), lead)
        askings.append((Turn(prompt, forced, answer=fact.code),))
    return tuple(askings)


def _late(tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    """The prompt begins with the question, and other text follows, as a pasted page does."""
    question = sample.questions[0]
    prompt = question.ids + _text(tokens, sample, "page", _PAGE)
    forced = _ending(tokens, sample, "late", _question(question.fact.key), _LATE_IN)
    return ((Turn(prompt, forced, answer=question.answer),),)


def _wording(tokens: Tokens, sample: Sample) -> tuple[Asking, ...]:
    fact = sample.questions[0].fact
    question = OTHER_WORDING.format(key=fact.key)
    prompt = _ending(tokens, sample, "wording", question, ASKED_IN)
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
