"""Lets all contenders read the same samples, token by token or as prompts.

Token by token, each contender is compared with the full cache at every position as soon as it
is read, so that only the logits of one position are in memory: the logits of a long text, with
the vocabulary of a large model, would not fit. The first contender must be the full cache.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from h2o_pack.measure.evaluation.chat_tasks import Conversation
from h2o_pack.measure.evaluation.contenders import CacheFactory, Contender
from h2o_pack.measure.evaluation.tasks import Asking, Outcome, Sample, Turn, Way
from h2o_pack.measure.machine import usable_cores
from h2o_pack.measure.text import Tokens
from h2o_pack.progress import BarAdvance, no_progress

PREFILL = 32
"""Tokens that are read at once at the beginning, as in the paper; then one token at a time."""
PIECE = 512
"""Tokens of a prompt that are read at once."""
BINS = 64
"""Number of equal parts of the text in which kept positions are counted."""

Kept = tuple[tuple[float, ...], ...]


class Lane:
    """One contender's caches while it reads a batch of samples.

    logits: of the last position, [B, V]. A lane also has sums over the scored tokens, [3, B].
    stream: the MLX stream on which the lane computes; None for the default stream.
    """

    def __init__(self, model: Any, caches: list[Any], stream: Any = None) -> None:
        self._model = model
        self._stream = stream or mx.default_stream(mx.default_device())
        self.caches = caches
        self.logits = mx.zeros((1, 1))
        self._sums = mx.zeros((3, 1))
        self._count = mx.zeros((1,))

    def copy(self) -> Lane:
        """Return a lane with copies of the caches, without logits and sums."""
        return Lane(self._model, copy.deepcopy(self.caches), self._stream)

    def read(self, ids: mx.array) -> None:
        """Read tokens [B, L] at once, without evaluating the result."""
        with mx.stream(self._stream):
            self.logits = self._model(ids, cache=self.caches)[:, -1]

    def feed(self, ids: mx.array) -> None:
        """Read tokens [B, L] one by one."""
        for column in range(ids.shape[1]):
            self.read(ids[:, column : column + 1])
            mx.eval(self.logits)

    def read_prompt(self, ids: mx.array) -> None:
        """Read a prompt [B, L] in pieces of `PIECE` tokens, and its last token alone."""
        before = ids.shape[1] - 1
        for start in range(0, before, PIECE):
            self.read(ids[:, start : min(start + PIECE, before)])
            mx.eval(self.logits)
        self.feed(ids[:, before:])

    def predict(self, ids: mx.array, full: list[mx.array]) -> None:
        """Read ids [B, L] one by one, and compare what is predicted before each.

        full: the full cache's ln p [B, V] before each id; if it is empty, this lane has the
        full cache and adds them.
        """
        counts = mx.ones(ids.shape[:1], mx.bool_)
        compared = bool(full)
        for column in range(ids.shape[1]):
            if not compared:
                full.append(self.log_probabilities())
            token = ids[:, column : column + 1]
            self.compare(full[column], token, counts)
            self.feed(token)

    @property
    def pending(self) -> tuple[mx.array, mx.array]:
        """The arrays that must be evaluated before the next token."""
        return self.logits, self._sums

    def log_probabilities(self) -> mx.array:
        """Return ln p of the next token, float32 [B, V]."""
        with mx.stream(self._stream):
            wide = self.logits.astype(mx.float32)
            return wide - mx.logsumexp(wide, axis=-1, keepdims=True)

    def compare(self, full: mx.array, token: mx.array, counts: mx.array) -> None:
        """Add to the sums how well this lane predicts `token` [B, 1].

        full: the full cache's ln p [B, V]. counts: [B], whether a sample's token is scored.
        """
        with mx.stream(self._stream):
            logp = self.log_probabilities()
            nll = -mx.take_along_axis(logp, token, axis=-1)[:, 0]
            kl = (mx.exp(full) * (full - logp)).sum(axis=-1)
            same = mx.equal(mx.argmax(full, axis=-1), mx.argmax(logp, axis=-1))
            terms = mx.where(counts, mx.stack([nll, kl, same.astype(nll.dtype)]), 0.0)
            self._sums = self._sums + terms
            self._count = self._count + counts

    def means(self) -> list[dict[str, float]]:
        """Return each sample's nll, KL divergence and agreement (`Outcome.metrics`)."""
        means: Any = (self._sums / mx.maximum(self._count, 1)).T.tolist()
        return [dict(zip(("nll", "kl", "agreement"), row, strict=True)) for row in means]


def run_text(
    model: Any,
    factory: CacheFactory,
    tokens: Tokens,
    samples: Sequence[Sample],
    contenders: Sequence[Contender],
    *,
    in_turns: bool,
    advance: BarAdvance = no_progress,
) -> list[list[Outcome]]:
    """Let contenders read one batch of samples token by token, then ask the questions.

    model: must be routed (`h2o_py.routing.routed`). contenders: the full cache, then others.
    in_turns: whether each question is asked after all earlier questions; otherwise each is
    asked on its own copy of the caches. advance: called with the number of tokens that all
    contenders have read. Returns outcomes by contender, then sample.
    """
    facts = [sample.questions[-1] for sample in samples if sample.questions]
    pinned = ((0, max(fact.position + fact.length for fact in facts)),) if facts else ()
    order = [0, *sorted(range(1, len(contenders)), key=lambda e: -contenders[e].rows)]
    lanes = [
        Lane(model, factory.caches(contenders[e], pinned), stream)
        for e, stream in zip(order, _streams(len(contenders)), strict=True)
    ]
    ids = mx.array([sample.ids for sample in samples])
    scored = mx.array([sample.scored for sample in samples])
    for lane in lanes:
        lane.read(ids[:, :PREFILL])
        mx.eval(lane.logits)
    advance(min(PREFILL, ids.shape[1]))
    expected = lanes[0].log_probabilities()
    for position in range(PREFILL, ids.shape[1]):
        mx.eval(expected)
        token, counts = ids[:, position : position + 1], scored[:, position]
        following = expected
        for group in _together(lanes):
            for lane in group:
                lane.compare(expected, token, counts)
                lane.read(token)
            if group[0] is lanes[0]:  # as early as possible, because all lanes wait for it
                following = lanes[0].log_probabilities()
            mx.async_eval(following, *(array for lane in group for array in lane.pending))
        expected = following
        advance(1)
    means = [lane.means() for lane in lanes]
    kept = [_kept(lane.caches, ids.shape[1], len(samples)) for lane in lanes]
    askings = [_askings(sample, in_turns=in_turns) for sample in samples]
    answers = [_ask(lane, tokens, askings, [])[0] for lane in lanes]
    advance(sum(len(question.ids) for question in samples[0].questions))
    return [
        [
            _outcome(sample, means[lane][s], answers[lane][s], kept[lane][s])
            for s, sample in enumerate(samples)
        ]
        for lane in map(order.index, range(len(contenders)))
    ]


def _askings(sample: Sample, *, in_turns: bool) -> tuple[Asking, ...]:
    turns = tuple(Turn(forced=q.ids, answer=q.answer) for q in sample.questions)
    return (turns,) if in_turns else tuple((turn,) for turn in turns)


def _outcome(
    sample: Sample, metrics: dict[str, float], answers: Sequence[bool], kept_shares: Kept
) -> Outcome:
    if answers:
        metrics = {**metrics, "recall": sum(answers) / len(answers)}
    depths = (question.depth for question in sample.questions)
    return Outcome(metrics, tuple(zip(depths, answers, strict=True)), kept_shares)


def _together(lanes: Sequence[Lane]) -> Iterator[Sequence[Lane]]:
    """Yield groups of lanes whose work is given to MLX at once, one lane per stream.

    MLX queues only a few tasks ahead. With one lane at a time the other streams would be idle;
    with all lanes at once every stream would be idle while Python builds the tasks.
    """
    width = len(_POOL) or 1
    for i in range(0, len(lanes), width):
        yield lanes[i : i + width]


def _answered(lane: Lane, tokens: Tokens, answers: Sequence[str]) -> list[bool]:
    """Generate greedily; return by sample whether the text contains the right answer."""
    tokens_by_step = []
    for _ in range(1 + max(len(tokens.encode(f" {answer}")) for answer in answers)):
        tokens_by_step.append(mx.argmax(lane.logits, axis=-1, keepdims=True))
        lane.feed(tokens_by_step[-1])
    generated: Any = mx.concatenate(tokens_by_step, axis=1).tolist()
    pairs = zip(answers, generated, strict=True)
    return [answer in tokens.decode(ids) for answer, ids in pairs]


def _kept(caches: Sequence[Any], length: int, batch: int) -> list[Kept]:
    """Return by sample and layer the share of kept positions in each of `BINS` parts."""
    layers: list[Any] = []
    bins = min(BINS, length)
    edges = [length * i // bins for i in range(bins + 1)]
    for cache in caches:
        positions = getattr(cache, "positions", None)  # [B, Hkv, C] of an H2O cache
        if positions is None:
            continue
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
    """Return an MLX stream for each lane: the same one on a GPU, one of a few on a CPU."""
    if mx.default_device() != mx.Device(mx.cpu):
        return [mx.default_stream(mx.default_device())] * count
    while len(_POOL) < min(_MOST_STREAMS, usable_cores()):
        _POOL.append(mx.new_stream(mx.Device(mx.cpu)))
    return [_POOL[i % len(_POOL)] for i in range(count)]


_MOST_STREAMS = 4
_POOL: list[Any] = []


def run_prompts(
    model: Any,
    factory: CacheFactory,
    tokens: Tokens,
    samples: Sequence[Sample | Conversation],
    contenders: Sequence[Contender],
    ways: Sequence[Way],
    advance: BarAdvance = no_progress,
) -> list[list[Outcome]]:
    """Let contenders read one batch of samples as prompts, then ask in each way.

    Each way asks on copies of the caches. model, contenders, advance: as in `run_text`. Returns
    outcomes by contender, then sample. A way's metric has the way's name; a way that predicts
    text has `<way>_nll` and `<way>_kl`.
    """
    askings_by_way = {way: [sample.asked(way) for sample in samples] for way in ways}
    ids = mx.array([sample.ids for sample in samples])
    full: dict[Way, list[mx.array]] = {way: [] for way in ways}
    outcomes = []
    for n, contender in enumerate(contenders):
        lane = Lane(model, factory.caches(contender))
        lane.read_prompt(ids)
        metrics: list[dict[str, float]] = [{} for _ in samples]
        for way in ways:
            right, means = _ask(lane, tokens, askings_by_way[way], full[way])
            for metric, answers, mean in zip(metrics, right, means, strict=True):
                if full[way]:
                    metric |= {f"{way}_nll": mean["nll"], f"{way}_kl": mean["kl"]}
                else:
                    metric[way] = sum(answers) / len(answers)
        outcomes.append([Outcome(metric) for metric in metrics])
        advance(ids.shape[1] * (n + 1) // len(contenders) - ids.shape[1] * n // len(contenders))
    return outcomes


def _ask(
    lane: Lane, tokens: Tokens, samples: Sequence[tuple[Asking, ...]], full: list[mx.array]
) -> tuple[list[list[bool]], list[dict[str, float]]]:
    """Ask all samples; each asking is on a copy of the caches.

    full: of `Lane.predict`, for the turn whose forced ids are predicted; there is at most one.
    Returns by sample whether each answer that counts was right, and how well that turn was
    predicted (`Lane.means`).
    """
    right: list[list[bool]] = [[] for _ in samples]
    means: list[dict[str, float]] = [{} for _ in samples]
    for askings in zip(*samples, strict=True):
        reader = lane.copy()
        for turns in zip(*askings, strict=True):
            forced = mx.array([turn.forced for turn in turns])
            if turns[0].prompt:
                reader.read_prompt(mx.array([turn.prompt for turn in turns]))
            if turns[0].predicted:
                reader.predict(forced, full)
                means = reader.means()
            elif turns[0].forced:
                reader.feed(forced)
            if turns[0].answer:
                answers = _answered(reader, tokens, [turn.answer for turn in turns])
                if turns[0].counts:
                    for sample, is_right in zip(right, answers, strict=True):
                        sample.append(is_right)
    return right, means
