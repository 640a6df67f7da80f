"""Figures of attention rows: what one query's probabilities over the tokens look like."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mlx.core as mx

TOP = 32
FAINT = 0.01
HIDDEN = -32000.0
"""Logits at or below this belong to hidden rows: masks use half of float16's lowest, -32752,
or less (docs/decisions.md)."""


@dataclass(frozen=True)
class Rows:
    """Of the G query heads of one KV head, for L queries over N tokens.

    visible, entropy (nats), top (probability in the 32 largest), variance (of the logits)
    and faint (how many visible entries are under 1% of their row's largest): [G, L].
    received: [N], probability that each token got, summed over queries and averaged over
    heads; expected: [N], the same if every query looked at all visible tokens alike.
    probabilities: [G, L, N], 0 where hidden.
    """

    visible: mx.array
    entropy: mx.array
    top: mx.array
    variance: mx.array
    faint: mx.array
    received: mx.array
    expected: mx.array
    probabilities: mx.array


def figures(logits: mx.array, sinks: mx.array | None = None) -> Rows:
    """Return figures of logits [G, L, N]; every query sees at least one token.

    sinks: [G], logits that take probability but belong to no token. They lessen what
    tokens receive; the other figures are of the distribution over tokens.
    """
    seen = logits > HIDDEN
    count = seen.sum(axis=-1, keepdims=True)
    known = mx.where(seen, logits, 0)
    mean = known.sum(axis=-1, keepdims=True) / count
    variance = mx.where(seen, (logits - mean) ** 2, 0).sum(axis=-1) / count[..., 0]
    largest = mx.where(seen, logits, -math.inf).max(axis=-1, keepdims=True)
    below = mx.where(seen, logits - largest, 0)
    weights = mx.where(seen, mx.exp(below), 0)
    total = weights.sum(axis=-1, keepdims=True)
    probabilities = weights / total
    taken = probabilities
    if sinks is not None:
        over = mx.log(total) + largest - sinks.astype(mx.float32)[:, None, None]
        taken = probabilities * mx.sigmoid(over)
    return Rows(
        visible=count[..., 0],
        entropy=(mx.log(total) - (probabilities * below).sum(axis=-1, keepdims=True))[..., 0],
        top=mx.topk(probabilities, min(TOP, logits.shape[-1]), axis=-1).sum(axis=-1),
        variance=variance,
        faint=(seen & (below < math.log(FAINT))).sum(axis=-1),
        received=taken.sum(axis=1).mean(axis=0),
        expected=(seen[0] / count[0]).sum(axis=0),
        probabilities=probabilities,
    )


def working_bytes(heads: int, kv_heads: int, chunk: int, tokens: int) -> int:
    """Return how much attention is held at once at most, in bytes.

    One layer's logits for a chunk, and the arrays that `figures` makes for one KV head.
    Caches and the model's own activations come on top.
    """
    made_by_figures = 9
    entries = chunk * tokens * 4
    return heads * entries + made_by_figures * heads // kv_heads * entries
