"""Recall and nll of a policy on the samples that the evaluation makes."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from studies.policy.catalogue import ALL
from studies.policy.model import Model
from studies.policy.simulation import Integers, simulate

MODEL = Path(__file__).parents[2] / "bridge" / "h2o_pack" / "models" / "demo"
DEPTHS = (0.1, 0.2, 0.3, 0.6)
DECOYS = 12
KINDS = ("fact", "decoys")


@dataclasses.dataclass(frozen=True)
class Job:
    """One policy with so many rows, on so many samples of each seed."""

    policy: str
    rows: int
    length: int
    seeds: tuple[int, ...]
    samples: int


@dataclasses.dataclass(frozen=True)
class Batch:
    """Samples of one kind, with their answers after them.

    Args:
        tokens: [B, T].
        scored: [B, T]: text that the model can be expected to predict.
        answered: tokens of the answer, the last ones.

    """

    tokens: Integers
    scored: np.ndarray[Any, np.dtype[np.bool_]]
    answered: int


def run(job: Job) -> dict[str, dict[str, list[float]]]:
    """By kind of text: `recall` (0 or 1) and `nll` (nats per token) of each sample."""
    batches = [_batch(kind, job.length, job.seeds, job.samples) for kind in KINDS]
    tokens = np.concatenate([batch.tokens for batch in batches])
    outcome = simulate(_model(), tokens, ALL[job.policy], job.rows)
    found, begin = {}, 0
    for kind, batch in zip(KINDS, batches, strict=True):
        part = slice(begin, begin + len(batch.tokens))
        begin = part.stop
        right: Any = outcome.right[part, -batch.answered :].all(axis=1)
        losses = outcome.losses[part]
        found[kind] = {
            "recall": [float(each) for each in right],
            "nll": [
                float(line[scored].mean())
                for line, scored in zip(losses, batch.scored, strict=True)
            ],
        }
    return found


@lru_cache(maxsize=1)
def _model() -> Model:
    return Model.load(MODEL)


@lru_cache(maxsize=8)
def _batch(kind: str, length: int, seeds: tuple[int, ...], samples: int) -> Batch:
    from mlx_lm.utils import load_tokenizer

    from h2o_pack.measure.evaluation.samples import Shape, make_sample  # imports tokenizers
    from h2o_pack.measure.text import Tokens, held_out

    text = held_out()
    tokens = Tokens(load_tokenizer(MODEL), text.documents)
    ids, scored, answered = [], [], set()
    for seed in seeds:
        for number in range(samples):
            depth = DEPTHS[number % len(DEPTHS)]
            decoys = [(i + 0.5) / DECOYS for i in range(DECOYS)] if kind == "decoys" else []
            shape = Shape(length, (depth, *decoys), asked=(0,))
            sample = make_sample(tokens, text.words, shape, seed, number)
            question = sample.questions[0]
            answer = tokens.encode(" " + question.answer)
            ids.append([*sample.ids, *question.ids, *answer])
            rest = len(question.ids) + len(answer)
            scored.append([*sample.scored, *[False] * rest])
            answered.add(len(answer))
    return Batch(np.array(ids, np.int32), np.array(scored), answered.pop())
