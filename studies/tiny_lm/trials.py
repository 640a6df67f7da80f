"""What recall is measured on: facts in held-out text, asked for later."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from h2o_pack.measure.evaluation.samples import ASKED_IN, Question, Shape, make_sample
from h2o_pack.measure.text import Tokens

LONGEST_STATEMENT = 24


@dataclass(frozen=True)
class Trial:
    """Facts asked for at one distance.

    Args:
        distance: least number of tokens between a statement and its question.
        others: facts of the same form between the two, never asked for.
        depth: where the fact stands, as a share of the text.
        window: rows of a RotatingKVCache(keep=4); 0 for the full cache.

    """

    distance: int
    others: int = 0
    depth: float = 0.1
    window: int = 0

    @property
    def shape(self) -> Shape:
        """How samples of the trial are built; the other facts keep equal distances."""
        length = math.ceil((self.distance + LONGEST_STATEMENT) / (1 - self.depth))
        gap = (1 - self.depth) / (self.others + 1)
        depths = tuple(self.depth + number * gap for number in range(self.others + 1))
        return Shape(length=length, depths=depths, asked=(0,))


DEMANDED = tuple(
    Trial(distance, others) for others in (0, 4) for distance in (256, 512, 1024, 1500)
)
"""The model must recall nearly everything in these."""

BEYOND = (Trial(1024, 12), Trial(1900, depth=0.02))
EVICTING = (Trial(256, window=512), Trial(1024, window=512))


def prompts(
    trial: Trial, tokens: Tokens, words: Sequence[str], seed: int, count: int
) -> list[tuple[tuple[int, ...], str]]:
    """Return `count` prompts as token ids, each with what a right answer contains."""
    made = []
    for number in range(count):
        sample = make_sample(tokens, words, trial.shape, seed, number)
        question: Question = sample.questions[0]
        if question.distance < trial.distance:
            raise ValueError(f"{question.distance} tokens between, not {trial.distance}")
        made.append(((*sample.ids, *question.ids), question.answer))
    return made


LONGEST_PROMPT = max(trial.shape.length for trial in (*DEMANDED, *BEYOND)) + ASKED_IN
