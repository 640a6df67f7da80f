"""Makes the tasks for a model: text with facts in it, and ways of asking for the facts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from h2o_pack.errors import usage_error
from h2o_pack.measure.text import Tokens, words_for_names

STATEMENT = "\nthe code of {key} is {code}.\n"
QUESTION = "\nthe code of {key} is"
ASKED_IN = 24
"""Tokens of a question for a fact, with the text before it."""

FOLLOWING = 128
"""Tokens of the text's continuation that a sample remembers."""

Way = Literal[
    "asked", "second_turn", "named", "middle", "late", "wording", "copy", "text",
    "instruction", "earlier", "tool",
]  # fmt: skip

_GOLDEN = (5**0.5 - 1) / 2

SPEED = ("tokens_per_second", "peak_bytes")
"""Metrics of a run whose speed is measured."""


@dataclass(frozen=True)
class Outcome:
    """The result of a contender on one sample, or in one run whose speed was measured.

    metrics: by name. Text that is read token by token has these means over the scored tokens:
    nll, -ln p of the text's next token, in nats; kl, the KL divergence of the contender's
    prediction from the full cache's, in nats; agreement, how often both predict the same token.
    recall is the share of questions that were answered right. answers: for each question, in
    order, the fact's depth and whether the answer was right. kept: by layer, the share of each
    part of the text whose rows are kept, over all heads; empty for caches without a ledger.
    """

    metrics: dict[str, float]
    answers: tuple[tuple[float, bool], ...] = ()
    kept: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Question:
    """A fact in a sample, and the question for it.

    key: the fact's name. answer: its number, which only a right answer contains. depth: the
    place of the fact's statement, from 0, the text's beginning, to 1, its end. position,
    length: of the statement, in tokens. ids: some text, then the question; all samples have
    equally many ids.
    """

    key: str
    answer: str
    depth: float
    position: int
    length: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Turn:
    """A turn: a prompt and an answer. All samples' prompts and forced ids are equally long.

    prompt: ids that are read as a prompt; empty for no prompt. forced: ids that the model must
    then generate, one by one. predicted: whether to score how well the model predicts `forced`.
    answer: a text that the model's following answer contains if it is right; "" to generate no
    answer. counts: whether the answer counts in the results.
    """

    prompt: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    predicted: bool = False
    answer: str = ""
    counts: bool = True


Asking = tuple[Turn, ...]
"""The turns that one copy of the caches reads."""


@dataclass(frozen=True)
class Sample:
    """A text that the model reads, and the questions that are asked after it.

    number: the sample's number among all samples of the seed. ids: of the text; all samples of
    a kind have equally many ids. scored: whether the prediction of each id counts: False in
    facts and for the first id. after: ids of the text's continuation.
    """

    tokens: Tokens
    seed: int
    number: int
    ids: tuple[int, ...]
    scored: tuple[bool, ...]
    questions: tuple[Question, ...]
    after: tuple[int, ...] = ()

    def asked(self, way: Way) -> tuple[Asking, ...]:
        """Return the turns that ask for the facts.

        Raises UserError: `way` is only for conversations, or the sample is too small for it.
        """
        if way not in _WAYS:
            raise usage_error(
                f'the way "{way}" belongs to conversations', 'Give it to the task "chat".'
            )
        return _WAYS[way](self)

    def other_text(self, purpose: str, length: int) -> tuple[int, ...]:
        """Draw `length` ids of other text."""
        draw = random.Random(f"{purpose} {self.seed}/{self.number}")  # noqa: S311
        return tuple(self.tokens.window(draw.randrange(len(self.tokens.ids)), length))

    def ending(self, purpose: str, end: str, length: int) -> tuple[int, ...]:
        """Return `length` ids of other text that ends with the text `end`."""
        ids = self.tokens.encode(end)
        before = self.other_text(purpose, length)
        return (*before[: max(0, length - len(ids))], *ids)[-length:]


@dataclass(frozen=True)
class Shape:
    """How to build a sample.

    length: tokens up to the end of the first question. depths: places of the facts, from 0, the
    beginning of the text, to 1, its end; facts with equal depths follow one another. asked:
    indices in `depths` of the facts to ask for, in this order. digits: how many digits each
    fact's number has.
    """

    length: int
    depths: tuple[float, ...] = ()
    asked: tuple[int, ...] = ()
    digits: int = 4


def make_sample(tokens: Tokens, shape: Shape, seed: int, number: int) -> Sample:
    """Make one sample.

    seed, number: decide the window of text, the names and the codes. Raises UserError: the text
    is too short, or the facts leave no room for text.
    """
    draw = random.Random(f"{seed}/{number}")  # noqa: S311  not for secrets
    start = window_start(seed, number, len(tokens.ids))
    pairs = _names(draw, tokens, shape)
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
    text, following = window[:filler], window[filler:]
    ids, scored = list(tokens.first), [False] * len(tokens.first)
    positions, begin = {}, 0
    for i in sorted(range(len(statements)), key=lambda i: (shape.depths[i], i)):
        until = min(filler, round(shape.depths[i] * filler))
        ids += text[begin:until]
        scored += [True] * (until - begin)
        begin = until
        positions[i] = len(ids)
        ids += statements[i]
        scored += [False] * len(statements[i])
    ids += text[begin:]
    scored += [True] * (filler - begin)
    scored[0] = False
    questions = []
    for turn, i in enumerate(shape.asked):
        question = tokens.encode(QUESTION.format(key=pairs[i][0]))
        before = following[turn * ASKED_IN : (turn + 1) * ASKED_IN - len(question)]
        length, with_text = len(statements[i]), (*before, *question)
        questions.append(Question(*pairs[i], shape.depths[i], positions[i], length, with_text))
    return Sample(
        tokens,
        seed,
        number,
        tuple(ids),
        tuple(scored),
        tuple(questions),
        after=tuple(following[:FOLLOWING]),
    )


def window_start(seed: int, number: int, total: int) -> int:
    """Return the index, below `total`, at which a sample's window of text begins.

    The windows of one seed are spread over the text.
    """
    first = random.Random(seed).random()  # noqa: S311  not for secrets
    return int((first + number * _GOLDEN) % 1.0 * total)


def _names(draw: random.Random, tokens: Tokens, shape: Shape) -> list[tuple[str, str]]:
    """Draw different names, whose questions fit into `ASKED_IN` tokens, and different codes."""
    count, least = len(shape.depths), 10 ** (shape.digits - 1)
    pairs: dict[str, str] = {}
    words = words_for_names()
    for word in draw.sample(words, len(words)):
        if len(pairs) == count:
            break
        key, code = word.upper(), str(draw.randrange(least, 10 * least))
        fits = len(tokens.encode(QUESTION.format(key=key))) < ASKED_IN
        if fits and key not in pairs and code not in pairs.values():
            pairs[key] = code
    if len(pairs) < count:
        raise usage_error(
            f"{count} facts need as many words, and only {len(pairs)} can be used",
            "Ask for fewer facts.",
        )
    return list(pairs.items())


OTHER_WORDING = "\nnumber for {key}:"
_PROMPT = 16
"""Tokens of a prompt without a question."""
_NAMED, _NAMED_ASKED, _NAMED_IN = 8, (1, 6, 3, 0), 96
"""Number of facts named in one prompt, indices of those asked for, and the prompt's tokens."""
_LEADS = (24, 27, 30, 33)
"""Tokens of an answer up to the end of a question in it. Divided by 4, they leave every
remainder, because recall can run every 4 steps."""
_PAGE, _LATE_IN = 40, 24
"""Tokens after the question in a prompt, and forced tokens at the beginning of the answer."""
_PASSAGE, _FORECAST_TOKENS = 16, 48
"""Tokens of a passage that the model reads, and tokens that it then predicts."""

LENGTHS = {
    "asked_in": ASKED_IN,
    "named": _NAMED,
    "of_them": len(_NAMED_ASKED),
    "given": _PASSAGE,
    "forecast": _FORECAST_TOKENS,
    "page": _PAGE,
}
"""Numbers for the description of the ways in page.toml."""


def _asked(sample: Sample) -> tuple[Asking, ...]:
    question = sample.questions[0]
    return ((Turn(question.ids, answer=question.answer),),)


def _second_turn(sample: Sample) -> tuple[Asking, ...]:
    """Ask for a fact after a turn about another fact, or after a turn of other text."""
    if len(sample.questions) > 1:
        other = sample.questions[-1]
        first = Turn(other.ids, answer=other.answer, counts=False)
    else:
        text = sample.other_text("first", 2 * _PROMPT)
        first = Turn(text[:_PROMPT], forced=text[_PROMPT:])
    return ((first, *_asked(sample)[0]),)


def _named(sample: Sample) -> tuple[Asking, ...]:
    facts = sample.questions[:_NAMED]
    if len(facts) < _NAMED:
        raise usage_error(
            f"a question that names {_NAMED} facts cannot be asked about {len(facts)}",
            "Give more decoys, or leave the way out.",
        )
    names = ", ".join(fact.key for fact in facts)
    turns = [Turn(sample.ending("names", f"\nthe codes of {names}:\n", _NAMED_IN))]
    for n in _NAMED_ASKED:
        forced = sample.ending(f"named {n}", QUESTION.format(key=facts[n].key), ASKED_IN)
        turns.append(Turn(forced=forced, answer=facts[n].answer))
    return (tuple(turns),)


def _middle(sample: Sample) -> tuple[Asking, ...]:
    askings = []
    for n, lead in enumerate(_LEADS):
        fact = sample.questions[n % len(sample.questions)]
        prompt = sample.other_text(f"prompt {n}", _PROMPT)
        forced = sample.ending(f"answer {n}", QUESTION.format(key=fact.key), lead)
        askings.append((Turn(prompt, forced, answer=fact.answer),))
    return tuple(askings)


def _late(sample: Sample) -> tuple[Asking, ...]:
    """Put the question at the beginning of the prompt, with other text after it."""
    fact = sample.questions[0]
    prompt = fact.ids + sample.other_text("page", _PAGE)
    forced = sample.ending("late", QUESTION.format(key=fact.key), _LATE_IN)
    return ((Turn(prompt, forced, answer=fact.answer),),)


def _wording(sample: Sample) -> tuple[Asking, ...]:
    fact = sample.questions[0]
    prompt = sample.ending("wording", OTHER_WORDING.format(key=fact.key), ASKED_IN)
    return ((Turn(prompt, answer=fact.answer),),)


def _copy(sample: Sample) -> tuple[Asking, ...]:
    """Ask for the rest of a passage from the text's first half, if possible without facts."""
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


def _go_on(sample: Sample) -> tuple[Asking, ...]:
    text = sample.after[: 2 * _PROMPT + _FORECAST_TOKENS]
    return ((Turn(text[: 2 * _PROMPT], text[2 * _PROMPT :], predicted=True),),)


_WAYS: dict[Way, Callable[[Sample], tuple[Asking, ...]]] = {
    "asked": _asked,
    "second_turn": _second_turn,
    "named": _named,
    "middle": _middle,
    "late": _late,
    "wording": _wording,
    "copy": _copy,
    "text": _go_on,
}
