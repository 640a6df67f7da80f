"""Lets all contenders read the same samples, token by token or as prompts.

Token by token, each contender is compared with the full cache at every position as soon as it
is read, so that only the logits of one position are in memory: the logits of a long text, with
the vocabulary of a large model, would not fit. The first contender must be the full cache.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache, RotatingKVCache

from h2o_pack.measure.evaluation.chat_tasks import Conversation
from h2o_pack.measure.evaluation.contenders import CacheFactory, Contender
from h2o_pack.measure.evaluation.tasks import Asking, Outcome, Way
from h2o_pack.measure.machine import usable_cores
from h2o_pack.measure.text import Tokens
from h2o_pack.progress import BarAdvance, no_progress
from h2o_py.families import why_unfit, why_without_scores
from h2o_py.routing import routed_attention

PREFILL = 32
"""Tokens that are read at once at the beginning, as in the paper; then one token at a time."""
PIECE = 512
"""Tokens of a prompt that are read at once."""


def log_probabilities(logits: mx.array) -> mx.array:
    """Return ln p of each token of the vocabulary from logits [..., V], in float32."""
    wide = logits.astype(mx.float32)
    return wide - mx.logsumexp(wide, axis=-1, keepdims=True)


def divergence(full: mx.array, predicted: mx.array) -> mx.array:
    """Return the KL divergence [...] of two arrays of ln p [..., V], in nats."""
    return (mx.exp(full) * (full - predicted)).sum(axis=-1)


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
        self._count = 0

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
            # As mlx_lm's generation does: nobody needs the logits, so they are not computed.
            mx.eval([layer.state for layer in self.caches])
        self.feed(ids[:, before:])

    def predict(self, ids: mx.array, full: list[mx.array]) -> None:
        """Read ids [B, L] one by one, and compare what is predicted before each.

        full: the full cache's ln p [1, V] before each id; if it is empty, the first row of this
        lane has the full cache and adds them.
        """
        compared = bool(full)
        for column in range(ids.shape[1]):
            if not compared:
                full.append(self.log_probabilities()[:1])
            token = ids[:, column : column + 1]
            self.compare(full[column], token)
            self.feed(token)

    @property
    def pending(self) -> tuple[mx.array, mx.array]:
        """The arrays that must be evaluated before the next token."""
        return self.logits, self._sums

    def log_probabilities(self) -> mx.array:
        """Return ln p of the next token, float32 [B, V]."""
        with mx.stream(self._stream):
            return log_probabilities(self.logits)

    def compare(self, full: mx.array, token: mx.array) -> None:
        """Add to the sums how well this lane predicts `token` [B, 1].

        full: the full cache's ln p [B, V] or [1, V].
        """
        with mx.stream(self._stream):
            logp = self.log_probabilities()
            nll = -mx.take_along_axis(logp, token, axis=-1)[:, 0]
            kl = divergence(full, logp)
            same = mx.equal(mx.argmax(full, axis=-1), mx.argmax(logp, axis=-1))
            self._sums = self._sums + mx.stack([nll, kl, same.astype(nll.dtype)])
            self._count += 1

    def means(self) -> list[dict[str, float]]:
        """Return each sample's nll, KL divergence and agreement (`Outcome.metrics`)."""
        means: Any = (self._sums / max(self._count, 1)).T.tolist()
        return [dict(zip(("nll", "kl", "agreement"), row, strict=True)) for row in means]


def run_text(
    model: Any,
    factory: CacheFactory,
    samples: Sequence[Sequence[int]],
    contenders: Sequence[Contender],
    advance: BarAdvance = no_progress,
) -> list[list[Outcome]]:
    """Let contenders read one batch of samples, of equally many ids, token by token.

    model: must be routed (`h2o_py.routing.routed`). contenders: the full cache, then others.
    advance: called with the number of tokens that all contenders have read. Returns outcomes by
    contender, then sample.
    """
    order = [0, *sorted(range(1, len(contenders)), key=lambda e: -contenders[e].rows)]
    lanes = [
        Lane(model, factory.caches(contenders[e]), stream)
        for e, stream in zip(order, _streams(len(contenders)), strict=True)
    ]
    ids = mx.array([list(sample) for sample in samples])
    for lane in lanes:
        lane.read(ids[:, :PREFILL])
        mx.eval(lane.logits)
    advance(min(PREFILL, ids.shape[1]))
    expected = lanes[0].log_probabilities()
    for position in range(PREFILL, ids.shape[1]):
        mx.eval(expected)
        token, following = ids[:, position : position + 1], expected
        for group in _together(lanes):
            for lane in group:
                lane.compare(expected, token)
                lane.read(token)
            if group[0] is lanes[0]:  # as early as possible, because all lanes wait for it
                following = lanes[0].log_probabilities()
            mx.async_eval(following, *(array for lane in group for array in lane.pending))
        expected = following
        advance(1)
    means = [lane.means() for lane in lanes]
    return [
        [Outcome(metrics) for metrics in means[lane]]
        for lane in map(order.index, range(len(contenders)))
    ]


def _together(lanes: Sequence[Lane]) -> Iterator[Sequence[Lane]]:
    """Yield groups of lanes whose work is given to MLX at once, one lane per stream.

    MLX queues only a few tasks ahead. With one lane at a time the other streams would be idle;
    with all lanes at once every stream would be idle while Python builds the tasks.
    """
    width = len(_POOL) or 1
    for i in range(0, len(lanes), width):
        yield lanes[i : i + width]


def _streams(count: int) -> list[Any]:
    """Return an MLX stream for each lane: the same one on a GPU, one of a few on a CPU."""
    if mx.default_device() != mx.Device(mx.cpu):
        return [mx.default_stream(mx.default_device())] * count
    while len(_POOL) < min(_MOST_STREAMS, usable_cores()):
        _POOL.append(mx.new_stream(mx.Device(mx.cpu)))
    return [_POOL[i % len(_POOL)] for i in range(count)]


_MOST_STREAMS = 4
_POOL: list[Any] = []


def run_conversation(
    model: Any,
    factory: CacheFactory,
    tokens: Tokens,
    conversation: Conversation,
    contenders: Sequence[Contender],
    ways: Sequence[Way],
    advance: BarAdvance = no_progress,
) -> list[list[Outcome]]:
    """Let contenders read a conversation as prompts, then ask them in each way.

    Each way asks all contenders together, on copies of their caches. model, contenders,
    advance: as in `run_text`. Returns the outcome of each contender, in a list. A way's metric
    has the way's name; the way that predicts text has `text_nll` and `text_kl`.
    """
    ids = mx.array([conversation.ids])
    length, steps = len(conversation.ids), len(contenders) + len(ways)
    progress = iter(
        length * n // steps - length * (n - 1) // steps for n in range(1, steps + 1)
    )
    caches = []
    for contender in contenders:
        lane = Lane(model, factory.caches(contender))
        lane.read_prompt(ids)
        caches.append(lane.caches)
        advance(next(progress))
    numbers = range(len(contenders))
    groups = [[n] for n in numbers]
    if can_read_together(model, caches[0]):
        groups = [list(numbers)]
    metrics: list[dict[str, float]] = [{} for _ in contenders]
    for way in ways:
        turns = conversation.asked(way)
        full: list[mx.array] = []
        for group in groups:
            copies = [copy.deepcopy(caches[n]) for n in group]
            layers = copies[0]
            if len(group) > 1:
                layers = [Together(layer) for layer in zip(*copies, strict=True)]
            answers = _ask(Lane(model, layers), len(group), tokens, way, turns, full)
            for n, answered in zip(group, answers, strict=True):
                metrics[n] |= answered
        advance(next(progress))
    return [[Outcome(own)] for own in metrics]


def can_read_together(model: Any, caches: Sequence[Any]) -> bool:
    """Whether `Together` can take the place of the model's caches.

    Each layer must have a cache of keys and values, which no other layer reads, and its
    attention must pass through the cache.
    """
    return (
        len(caches) == len(model.layers)
        and all(type(cache) in (KVCache, RotatingKVCache) for cache in caches)
        and why_unfit(model) is None
        and why_without_scores(model) is None
    )


class Together:
    """The caches of one layer in several lanes, which read one batch: each reads a row of it.

    The model multiplies the whole batch with its weights at once. Reading the weights takes
    most of the time of a token. Routed attention asks each cache for the attention of its row.
    """

    def __init__(self, caches: Sequence[Any]) -> None:
        self._caches = caches
        self._fetched: list[Any] = []
        self.awaited: Any = None

    @property
    def offset(self) -> int:
        """The number of tokens that each cache has read."""
        offset: int = self._caches[0].offset
        return offset

    @property
    def state(self) -> list[Any]:
        """The arrays that must be evaluated after each piece of a prompt."""
        return [cache.state for cache in self._caches]

    def make_mask(self, *arguments: Any, **options: Any) -> list[Any]:
        """Return each cache's mask."""
        return [cache.make_mask(*arguments, **options) for cache in self._caches]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write each row of keys and values, [B, H, L, D], to its cache; return both."""
        self._fetched = [
            cache.update_and_fetch(keys[n : n + 1], values[n : n + 1])
            for n, cache in enumerate(self._caches)
        ]
        self.awaited = weakref.ref(keys), weakref.ref(values)
        return keys, values

    def attend(self, queries: mx.array, *, mask: Any, **options: Any) -> mx.array:
        """Return the attention [B, H, L, Dv] of each row of queries [B, H, L, Dk].

        mask: of `make_mask`, or one mask for all rows.
        """
        masks = mask if isinstance(mask, list) else [mask] * len(self._caches)
        rows = zip(self._caches, self._fetched, masks, strict=True)
        outputs = [
            routed_attention(queries[n : n + 1], keys, values, cache, mask=own, **options)
            for n, (cache, (keys, values), own) in enumerate(rows)
        ]
        return mx.concatenate(outputs)


def _ask(
    reader: Lane, count: int, tokens: Tokens, way: Way, turns: Asking, full: list[mx.array]
) -> list[dict[str, float]]:
    """Let `count` contenders read the turns of a way; return the metrics of each.

    full: of `Lane.predict`, for the turn whose forced ids are predicted.
    """

    def batch(ids: Sequence[int]) -> mx.array:
        return mx.broadcast_to(mx.array([ids]), (count, len(ids)))

    right = []
    for turn in turns:
        if turn.prompt:
            reader.read_prompt(batch(turn.prompt))
        if turn.predicted:
            reader.predict(batch(turn.forced), full)
            return [
                {f"{way}_nll": means["nll"], f"{way}_kl": means["kl"]}
                for means in reader.means()
            ]
        if turn.forced:
            reader.feed(batch(turn.forced))
        if turn.answer:
            right.append(_answers(reader, tokens, turn.answer))
    return [{way: sum(own) / len(own)} for own in zip(*right, strict=True)]


def _answers(reader: Lane, tokens: Tokens, answer: str) -> list[bool]:
    """Generate greedily; return whether each contender's text contains the right answer."""
    generated: list[Any] = []
    for _ in range(1 + len(tokens.encode(f" {answer}"))):
        token = mx.argmax(reader.logits, axis=-1, keepdims=True)
        reader.feed(token)
        generated.append(token[:, 0].tolist())
    return [answer in tokens.decode(list(own)) for own in zip(*generated, strict=True)]
