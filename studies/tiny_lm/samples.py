"""What the model is trained on: text, facts stated and asked again in text, copies."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from studies.tiny_lm.recipe import Recipe

FORM = "the code of {} is"  # the form that evaluations use, and half of all samples
FORMS = (
    FORM,
    "The code for {} is",
    "the value of {} is",
    "secret number of {} is",
    "{} =",
    "{}:",
    "the {} code is",
    "remember that {} has the number",
)
LEADS = ("\n", " ", "\n", ". ")
ENDS = (".\n", ".", "\n", ". ", ".\n\n")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SPACING = (40, 80, 80, 160, 320)  # tokens between events, one chosen per sample
MOST_EVENTS = 32
FIRST_STATEMENTS_WITHIN = 0.75  # of the text; what follows leaves room to ask
LATE_QUESTIONS = 0.5  # share of questions that come near the end
LATE = 0.85
USUAL_FORM = 0.5  # share of samples in the form that evaluations use
MIXED_FORMS = 0.1
LEAST_TEXT = 16
LONGEST_COPY = 200


@dataclass(frozen=True)
class Sample:
    """A sequence and each token's weight in the loss, both [length + 1]."""

    tokens: NDArray[np.int32]
    weights: NDArray[np.float32]


@dataclass(frozen=True)
class Fact:
    """A name and its number or word as tokens; the answer is tokens[start:end]."""

    tokens: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Event:
    """A fact stated or asked, `place` (0 to 1) through the text."""

    place: float
    fact: int


class SampleMaker:
    """Makes training sequences; the same random numbers give the same sequences."""

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: Tokenizer,
        words: Sequence[str],
        source: NDArray[np.int32],
        prose: NDArray[np.int32],
        random: random.Random,
    ) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.words = words
        self.source = source
        self.prose = prose
        self.random = random

    def batch(self, length: int, count: int, copy_share: float) -> list[Sample]:
        """Make `count` sequences of `length` + 1 tokens."""
        return [self.sample(length + 1, copy_share) for _ in range(count)]

    def sample(self, length: int, copy_share: float) -> Sample:
        """Make a sequence of `length` tokens of one of the three kinds."""
        shares = (copy_share, self.recipe.recall_share)
        kinds = (self.copies, self.recall, self.plain)
        (kind,) = self.random.choices(kinds, (*shares, 1 - sum(shares)))
        return kind(length)

    def plain(self, length: int) -> Sample:
        """Text alone."""
        return Sample(self.text(length), np.ones(length, np.float32))

    def text(self, length: int) -> NDArray[np.int32]:
        """Cut a stretch of `length` tokens out of source or prose."""
        prose = self.random.random() < self.recipe.prose_share
        tokens = self.prose if prose else self.source
        start = self.random.randint(0, len(tokens) - length)
        return tokens[start : start + length]

    def copies(self, length: int) -> Sample:
        """Random tokens, each stretch twice: the second time can be predicted."""
        vocabulary = self.tokenizer.get_vocab_size()
        tokens: list[int] = []
        weights: list[float] = []
        while len(tokens) < length:
            size = self.random.randint(8, min(LONGEST_COPY, length // 2))
            stretch = [self.random.randrange(1, vocabulary) for _ in range(size)]
            tokens += stretch * 2
            weights += [0.0] * (size + 1) + [1.0] * (size - 1)
        return sample(tokens[:length], weights[:length])

    def recall(self, length: int) -> Sample:
        """Text in which facts are stated once and asked for once or more often.

        A fact's first statement has weight 0: nobody could predict it. Its later
        answers weigh `answer_weight`.
        """
        spacing = self.random.choice(SPACING)
        wanted = int(length / spacing * self.random.uniform(0.5, 1.2))
        wanted = max(1, min(MOST_EVENTS, wanted))
        names = max(1, int(wanted * self.random.uniform(0.25, 0.75)))
        facts = self.facts(names)
        events = self.events(names, max(wanted - names, 1))
        while sum(len(facts[event.fact].tokens) for event in events) > length - LEAST_TEXT:
            events.pop()
        return self.weave(length, facts, events)

    def events(self, names: int, questions: int) -> list[Event]:
        """Place first statements anywhere early, questions after them or near the end."""
        stated = [self.random.random() * FIRST_STATEMENTS_WITHIN for _ in range(names)]
        events = [Event(place, fact) for fact, place in enumerate(stated)]
        for _ in range(questions):
            fact = self.random.randrange(names)
            late = self.random.random() < LATE_QUESTIONS
            earliest = max(stated[fact], LATE) if late else stated[fact]
            place = earliest + (1 - earliest) * self.random.random()
            events.append(Event(place, fact))
        return sorted(events, key=lambda event: event.place)

    def weave(self, length: int, facts: list[Fact], events: list[Event]) -> Sample:
        """Put the events into a stretch of text that fills the sequence."""
        room = length - sum(len(facts[event.fact].tokens) for event in events)
        text = self.text(room).tolist()
        tokens: list[int] = []
        weights: list[float] = []
        stated: set[int] = set()
        reached = 0
        for event in events:
            place = int(event.place * room)
            tokens += text[reached:place]
            weights += [1.0] * (place - reached)
            reached = place
            fact = facts[event.fact]
            tokens += fact.tokens
            after = [1.0] * (len(fact.tokens) - fact.end)
            if event.fact in stated:
                answer = [self.recipe.answer_weight] * (fact.end - fact.start)
                weights += [1.0] * fact.start + answer + after
            else:
                weights += [0.0] * fact.end + after
            stated.add(event.fact)
        return sample(tokens + text[reached:], weights + [1.0] * (room - reached))

    def facts(self, count: int) -> list[Fact]:
        """Make facts with different names, mostly all of one form."""
        names: list[str] = []
        while len(names) < count:
            name = self.name()
            if name not in names:
                names.append(name)
        form = FORM if self.random.random() < USUAL_FORM else self.random.choice(FORMS)
        mixed = self.random.random() < MIXED_FORMS
        return [self.fact(self.random.choice(FORMS) if mixed else form, name) for name in names]

    def fact(self, form: str, name: str) -> Fact:
        """Write a fact as tokens."""
        before = self.random.choice(LEADS) + form.format(name)
        end = self.random.choice(ENDS)
        tokens = self.tokenizer.encode(f"{before} {self.value()}{end}").ids
        start = len(self.tokenizer.encode(before).ids)
        return Fact(tuple(tokens), start, len(tokens) - len(self.tokenizer.encode(end).ids))

    def name(self) -> str:
        """Choose a word in capitals, as a title or small, or a few random letters."""
        (writing,) = self.random.choices(
            (str.upper, str.title, str.lower, None), (60, 15, 15, 10)
        )
        if writing is None:
            return "".join(self.random.choices(LETTERS, k=self.random.randint(3, 6)))
        return writing(self.random.choice(self.words))

    def value(self) -> str:
        """Choose a number, mostly of four digits, or a word."""
        (bounds,) = self.random.choices(((1000, 9999), (10, 999_999), None), (70, 15, 15))
        return str(self.random.randint(*bounds)) if bounds else self.random.choice(self.words)


def sample(tokens: list[int], weights: list[float]) -> Sample:
    """Pack lists of equal length."""
    return Sample(np.array(tokens, np.int32), np.array(weights, np.float32))
