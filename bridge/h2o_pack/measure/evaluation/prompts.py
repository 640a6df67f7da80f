"""Reads samples as prompts and asks in several ways, as a user of mlx-lm would.

A prompt is read in pieces of `PIECE` tokens and its last token by itself, as mlx-lm does.
Every question gets a copy of the caches that read the text.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from h2o_pack.measure.evaluation.cache_factory import CacheFactory
from h2o_pack.measure.evaluation.contenders import Contender
from h2o_pack.measure.evaluation.samples import Sample
from h2o_pack.measure.evaluation.ways import Asking, Turn, Way, askings
from h2o_pack.measure.text import Tokens
from h2o_pack.progress import BarAdvance

PIECE = 512

Forecast = dict[tuple[int, int, int], mx.array]
"""Of the full cache: ln p [B, L, V] of what it was made to say, by way, asking and turn."""


def run(
    model: Any,
    factory: CacheFactory,
    tokens: Tokens,
    samples: Sequence[Sample],
    contenders: Sequence[Contender],
    ways: Sequence[Way],
    advance: BarAdvance = lambda _amount: None,
) -> list[list[dict[str, dict[str, float]]]]:
    """Read and ask.

    Args:
        model: of mlx_lm, routed.
        factory: makes the caches.
        tokens: for the answers.
        samples: one batch, all of the same length.
        contenders: the full cache, then others.
        ways: of asking.
        advance: told how many tokens each contender has read.

    Returns:
        By contender, then sample: {"ways": values by metric (`ways.METRICS`)}.

    """
    asked = [[askings(way, tokens, sample) for sample in samples] for way in ways]
    ids = mx.array([sample.ids for sample in samples])
    full: Forecast = {}
    found = []
    for n, contender in enumerate(contenders):
        reader = _Reader(model, factory.caches(contender), tokens)
        reader.read(ids)
        values: list[dict[str, float]] = [{} for _ in samples]
        for w, way in enumerate(ways):
            answers = reader.ask(way, w, asked[w], full)
            values = [known | new for known, new in zip(values, answers, strict=True)]
        found.append([{"ways": each} for each in values])
        advance(ids.shape[1] * (n + 1) // len(contenders) - ids.shape[1] * n // len(contenders))
    return found


class _Reader:
    """Caches that read."""

    def __init__(self, model: Any, caches: list[Any], tokens: Tokens) -> None:
        self._model = model
        self._caches = caches
        self._tokens = tokens
        self._logits = mx.zeros((1, 1))

    def read(self, ids: mx.array) -> None:
        """Read a prompt [B, L]."""
        before = ids.shape[1] - 1
        for start in range(0, before, PIECE):
            self._feed(ids[:, start : min(start + PIECE, before)])
        self._feed(ids[:, before:])

    def ask(
        self,
        way: Way,
        number: int,
        samples: Sequence[tuple[Asking, ...]],
        full: Forecast,
    ) -> list[dict[str, float]]:
        """Ask all samples in one way; fills `full` if it is empty there, else compares."""
        right: list[list[bool]] = [[] for _ in samples]
        sums, count = mx.zeros((2, len(samples))), 0
        for a in range(len(samples[0])):
            reader = _Reader(self._model, copy.deepcopy(self._caches), self._tokens)
            for t in range(len(samples[0][a])):
                turns = [each[a][t] for each in samples]
                if turns[0].prompt:
                    reader.read(mx.array([turn.prompt for turn in turns]))
                if turns[0].said:
                    said = mx.array([turn.said for turn in turns])
                    own = reader.say(said)
                    if turns[0].predicted:
                        expected = full.setdefault((number, a, t), own)
                        sums = sums + _compared(own, expected, said)
                        count += said.shape[1]
                if turns[0].answer:
                    answers = reader.answer(turns)
                    if turns[0].counts:
                        for mine, ok in zip(right, answers, strict=True):
                            mine.append(ok)
        if count:
            nll, kl = (sums / count).tolist()  # type: ignore[misc]
            return [
                {f"{way}_nll": n, f"{way}_kl": k}
                for n, k in zip(nll, kl, strict=True)  # type: ignore[arg-type]
            ]
        return [{way: sum(mine) / len(mine)} for mine in right]

    def say(self, ids: mx.array) -> mx.array:
        """Feed ids [B, L] one by one; returns ln p of each before it came, [B, L, V]."""
        found = []
        for column in range(ids.shape[1]):
            wide = self._logits.astype(mx.float32)
            found.append(wide - mx.logsumexp(wide, axis=-1, keepdims=True))
            self._feed(ids[:, column : column + 1])
        return mx.stack(found, axis=1)

    def answer(self, turns: Sequence[Turn]) -> list[bool]:
        """Let the model go on greedily, one token past the longest answer."""
        longest = max(len(self._tokens.encode(f" {turn.answer}")) for turn in turns)
        said = []
        for _ in range(longest + 1):
            said.append(mx.argmax(self._logits, axis=-1, keepdims=True))
            self._feed(said[-1])
        spoken: Any = mx.concatenate(said, axis=1).tolist()
        return [
            turn.answer in self._tokens.decode(words)
            for turn, words in zip(turns, spoken, strict=True)
        ]

    def _feed(self, ids: mx.array) -> None:
        self._logits = self._model(ids, cache=self._caches)[:, -1]
        mx.eval(self._logits)


def _compared(own: mx.array, full: mx.array, said: mx.array) -> mx.array:
    """Return sums [2, B] over the tokens said: -ln p, and KL from the full cache."""
    nll = -mx.take_along_axis(own, said[..., None], axis=-1)[..., 0]
    kl = (mx.exp(full) * (full - own)).sum(axis=-1)
    return mx.stack([nll.sum(axis=1), kl.sum(axis=1)])
