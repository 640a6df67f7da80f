"""What both sides read and are asked, decided by seeds alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from h2o_pack.measure.evaluation.samples import Sample, Shape, make_sample
from h2o_pack.measure.text import Tokens

SEEDS = (1, 2, 3)
SAMPLES = 8  # a seed; a batch has the samples of one seed
CONTEXT = 1024  # tokens before the question, or before the text that is predicted
BUDGETS = (512, 256, 128)  # rows kept: 1/2, 1/4, 1/8
CONTINUATION = 128  # tokens predicted after the context
EARLY = (0.1, 0.2, 0.3, 0.4)  # where the fact stands: before any window of half the rows
DECOYS = 12


@dataclass(frozen=True)
class Task:
    """A kind of sample; `decoys` other facts stand evenly in the text."""

    name: str
    title: str
    asks: bool
    decoys: int = 0

    def shape(self, number: int) -> Shape:
        """How the sample of a number is built."""
        if not self.asks:
            return Shape(length=CONTEXT + CONTINUATION)
        depth = EARLY[number % len(EARLY)]
        decoys = ((place + 0.5) / self.decoys for place in range(self.decoys))
        return Shape(length=CONTEXT, depths=(depth, *decoys), asked=(0,))


TASKS = (
    Task("fact", "recall, one fact", asks=True),
    Task("decoys", f"recall, {DECOYS} decoys", asks=True, decoys=DECOYS),
    Task("text", f"nll of the next {CONTINUATION} tokens", asks=False),
)


@dataclass(frozen=True)
class Batch:
    """Samples of one seed, of equal lengths.

    Args:
        context: [B][T] ids that are read and evicted from.
        after: [B][L] ids that follow: a question, or the text that is predicted.
        answers: [B] what is right; empty where nothing is asked.

    """

    context: list[list[int]]
    after: list[list[int]]
    answers: list[str]


def batches(task: Task, tokens: Tokens, words: Sequence[str]) -> list[Batch]:
    """Return the task's batches, one per seed."""
    return [
        batch(
            task,
            [make_sample(tokens, words, task.shape(n), seed, n) for n in range(SAMPLES)],
        )
        for seed in SEEDS
    ]


def batch(task: Task, samples: list[Sample]) -> Batch:
    """Split samples into what is read and what follows."""
    if task.asks:
        return Batch(
            [list(each.ids) for each in samples],
            [list(each.questions[0].ids) for each in samples],
            [each.questions[0].answer for each in samples],
        )
    return Batch(
        [list(each.ids[:CONTEXT]) for each in samples],
        [list(each.ids[CONTEXT:]) for each in samples],
        [],
    )
