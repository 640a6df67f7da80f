"""Runs all contenders through the same samples, token by token and side by side.

At each position every contender predicts the same token and is compared with the full cache
there and then, so that nothing but a position's logits is ever held: the vocabulary of a
large model times a long text would not fit. The first contender must be the full cache.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from h2o_pack.measure.evaluation.contenders import CacheFactory, Contender, ledger_positions
from h2o_pack.measure.evaluation.tasks import Sample
from h2o_pack.measure.machine import usable_cores
from h2o_pack.measure.text import Tokens
from h2o_pack.progress import BarAdvance

PREFILL = 32
"""Tokens that are read at once, as in the paper; each one after that by itself."""
BINS = 64
"""Equal parts of the text over which kept positions are counted."""

Prediction = tuple[mx.array, mx.array, mx.array]


@dataclass(frozen=True)
class Outcome:
    """What a contender did on one sample.

    nll, kl, agreement: means over the scored tokens: -ln p of the token that came, KL
    divergence of the full cache's prediction from this one (both in nats), and how often
    both have the same most likely token. recalled: whether each question was answered.
    kept: by layer, the share of each part of the text whose rows are still there, heads
    taken together; empty for caches without a ledger.
    """

    nll: float
    kl: float
    agreement: float
    recalled: tuple[bool, ...]
    kept: tuple[tuple[float, ...], ...]


def run(
    model: Any,
    factory: CacheFactory,
    tokens: Tokens,
    samples: Sequence[Sample],
    contenders: Sequence[Contender],
    *,
    in_turns: bool,
    advance: BarAdvance = lambda _amount: None,
) -> list[list[Outcome]]:
    """Read and ask.

    Args:
        model: of mlx_lm, routed.
        factory: makes the caches.
        tokens: for the answers.
        samples: one batch, all of the same length.
        contenders: the full cache, then others.
        in_turns: whether questions follow one another; else each is asked on a copy.
        advance: told how many tokens each contender has read.

    Returns:
        Outcomes by contender, then sample.

    """
    seed = samples[0].seed * 1_000_003 + samples[0].number
    first = [sample.questions[-1].fact for sample in samples if sample.questions]
    pinned = ((0, max(fact.position + fact.length for fact in first)),) if first else ()
    order = _order_by_rows(contenders)
    lanes = [
        _Lane(model, factory.caches(contenders[e], seed, pinned), stream)
        for e, stream in zip(order, _streams(len(contenders)), strict=True)
    ]
    ids = mx.array([sample.ids for sample in samples])
    scored = mx.array([sample.scored for sample in samples])
    for lane in lanes:
        lane.read(ids[:, :PREFILL])
        mx.eval(lane.logits)
    advance(min(PREFILL, ids.shape[1]))
    expected = lanes[0].prediction()
    for position in range(PREFILL, ids.shape[1]):
        mx.eval(expected)
        token, counts = ids[:, position : position + 1], scored[:, position]
        now, then = expected, None
        for some in _together(lanes):
            for lane in some:
                lane.compare(now, token, counts)
                lane.read(token)
            then = then or lanes[0].prediction()  # with the first lane, as all wait for it
            _start(some, then)
        expected = then or now
        advance(1)
    totals = [lane.totals() for lane in lanes]
    length = ids.shape[1]
    kept = [_kept(lane.caches, length, len(samples)) for lane in lanes]
    recalled = _ask(lanes, tokens, samples, in_turns=in_turns, advance=advance)
    return [
        [
            Outcome(*totals[lane][s], recalled=tuple(recalled[lane][s]), kept=kept[lane][s])
            for s in range(len(samples))
        ]
        for lane in map(order.index, range(len(contenders)))
    ]


def _order_by_rows(contenders: Sequence[Contender]) -> list[int]:
    """Return the contenders' numbers: the full cache, then the others from many rows to few.

    Lanes that are computed side by side then take about the same time.
    """
    return [0, *sorted(range(1, len(contenders)), key=lambda e: -contenders[e].rows)]


class _Lane:
    """One contender's caches, its last logits [B, V] and sums [3, B]."""

    def __init__(self, model: Any, caches: list[Any], stream: Any) -> None:
        self._model = model
        self._stream = stream
        self.caches = caches
        self.logits = mx.zeros((1, 1))
        self._sums = mx.zeros((3, 1))
        self._count = mx.zeros((1,))

    def read(self, ids: mx.array) -> None:
        """Feed tokens [B, L], lazily."""
        with mx.stream(self._stream):
            self.logits = self._model(ids, cache=self.caches)[:, -1]

    @property
    def pending(self) -> tuple[mx.array, mx.array]:
        """What is to be computed before the next token."""
        return self.logits, self._sums

    def log_probabilities(self) -> mx.array:
        """Return ln p of the next token, float32 [B, V]."""
        with mx.stream(self._stream):
            wide = self.logits.astype(mx.float32)
            return wide - mx.logsumexp(wide, axis=-1, keepdims=True)

    def prediction(self) -> Prediction:
        """Return ln p and p of the next token, float32 [B, V], and the most likely one [B]."""
        with mx.stream(self._stream):
            found = self.log_probabilities()
            return found, mx.exp(found), mx.argmax(found, axis=-1)

    def compare(self, expected: Prediction, token: mx.array, counts: mx.array) -> None:
        """Add up how this lane predicts `token` [B, 1] where `counts` [B] says so."""
        full, probabilities, most_likely = expected
        with mx.stream(self._stream):
            found = self.log_probabilities()
            nll = -mx.take_along_axis(found, token, axis=-1)[:, 0]
            kl = (probabilities * (full - found)).sum(axis=-1)
            same = mx.equal(most_likely, mx.argmax(found, axis=-1))
            now = mx.where(counts, mx.stack([nll, kl, same.astype(nll.dtype)]), 0.0)
            self._sums = self._sums + now
            self._count = self._count + counts

    def totals(self) -> list[tuple[float, float, float]]:
        """Means by sample: nll, KL, agreement."""
        means = self._sums / mx.maximum(self._count, 1)
        nll, kl, same = means.tolist()  # type: ignore[misc]
        return list(zip(nll, kl, same, strict=True))  # type: ignore[arg-type]


def _together(lanes: Sequence[_Lane]) -> Iterator[Sequence[_Lane]]:
    """Yield lanes to be given to MLX at once, one of each stream.

    MLX queues only a few tasks ahead: those of one lane would leave the other streams idle, and
    while the tasks of all lanes are built all of them would be.
    """
    width = len(_POOL) or 1
    for i in range(0, len(lanes), width):
        yield lanes[i : i + width]


def _start(lanes: Sequence[_Lane], first: Sequence[mx.array] = ()) -> None:
    """Begin to compute, and return before it is done."""
    mx.async_eval(*first, *(each for lane in lanes for each in lane.pending))


def _read(lanes: Sequence[_Lane], words: Sequence[mx.array]) -> None:
    """Feed each lane its tokens [B, 1]; returns before they are computed."""
    waiting = iter(words)
    for some in _together(lanes):
        for lane in some:
            lane.read(next(waiting))
        _start(some)


def _ask(
    lanes: Sequence[_Lane],
    tokens: Tokens,
    samples: Sequence[Sample],
    *,
    in_turns: bool,
    advance: BarAdvance,
) -> list[list[list[bool]]]:
    """Return whether each question was answered, by lane, sample and question."""
    answers: list[list[list[bool]]] = [[[] for _ in samples] for _ in lanes]
    asked = len(samples[0].questions)
    for number in range(asked):
        questions = [sample.questions[number] for sample in samples]
        fed = mx.array([question.ids for question in questions])
        longest = max(len(tokens.encode(f" {question.answer}")) for question in questions)
        saved = [lane.caches for lane in lanes]
        for lane in lanes:
            if not in_turns and number < asked - 1:
                lane.caches = copy.deepcopy(lane.caches)
        for column in range(fed.shape[1]):
            _read(lanes, [fed[:, column : column + 1]] * len(lanes))
        said: list[list[mx.array]] = [[] for _ in lanes]
        for _ in range(longest + 1):
            words = [mx.argmax(lane.logits, axis=-1, keepdims=True) for lane in lanes]
            for mine, word in zip(said, words, strict=True):
                mine.append(word)
            _read(lanes, words)
        for e, words in enumerate(said):
            spoken: Any = mx.concatenate(words, axis=1).tolist()
            for s, question in enumerate(questions):
                answers[e][s].append(question.answer in tokens.decode(spoken[s]))
        if not in_turns:
            for lane, caches in zip(lanes, saved, strict=True):
                lane.caches = caches
        advance(fed.shape[1] + longest + 1)
    return answers


def _kept(
    caches: Sequence[Any], length: int, batch: int
) -> list[tuple[tuple[float, ...], ...]]:
    """Return by sample and layer the share of kept positions in each of `BINS` parts."""
    layers: list[Any] = []
    bins = min(BINS, length)
    edges = [length * i // bins for i in range(bins + 1)]
    for positions in ledger_positions(caches):
        heads = positions.shape[1]
        shares = []
        for begin, end in itertools.pairwise(edges):
            inside = (positions >= begin) & (positions < end)
            shares.append(inside.sum(axis=(1, 2)) / (heads * (end - begin)))
        layers.append(mx.stack(shares, axis=1).tolist())
    return [
        tuple(tuple(round(x, 4) for x in layer[s]) for layer in layers) for s in range(batch)
    ]


def _streams(count: int) -> list[Any]:
    """Return where each lane computes: a GPU's own stream, or a few threads of the CPU.

    On the CPU a stream is one thread; lanes are spread over as many as there are cores.
    """
    if mx.default_device() != mx.Device(mx.cpu):
        return [mx.default_stream(mx.default_device())] * count
    pool = _cpu_streams()
    return [pool[i % len(pool)] for i in range(count)]


_MOST_STREAMS = 4
_POOL: list[Any] = []


def _cpu_streams() -> list[Any]:
    if not _POOL:
        _POOL.extend(
            mx.new_stream(mx.Device(mx.cpu)) for _ in range(min(_MOST_STREAMS, usable_cores()))
        )
    return _POOL
