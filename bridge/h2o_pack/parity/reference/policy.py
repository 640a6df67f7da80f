"""What decides eviction: the novelty, the score and the importance of rows."""

from __future__ import annotations

import mlx.core as mx

from h2o_pack.parity.reference.attention import LOWEST, probabilities
from h2o_py.config import H2OConfig


def _norm(vectors: mx.array) -> mx.array:
    return mx.sqrt(mx.square(vectors).sum(axis=-1, keepdims=True))


def unit(keys: mx.array) -> mx.array:
    """k/|k| in float32; a zero vector if |k| is zero or not finite."""
    keys = keys.astype(mx.float32)
    norm = _norm(keys)
    return mx.where(mx.isfinite(norm) & (norm > 0), keys / norm, 0.0)


def novelties(
    keys: mx.array, key_sum: mx.array, offset: int, margin: float
) -> tuple[mx.array, mx.array]:
    """Novelty [B, Hkv, L] of new keys [B, Hkv, L, Dk], and the key sum that includes them.

    Without a margin, novelty is 1 - cos, with the cosine between the key and the sum of all
    unit keys up to it. With a margin, it is how much that cosine is below c - margin, where c
    is a typical key's cosine: a sum of n unit keys has the squared length n + n (n - 1) c^2,
    where c^2 is the mean cosine of two different keys.
    """
    novelties = []
    for t in range(keys.shape[2]):
        direction = unit(keys[:, :, t])
        key_sum = key_sum + direction
        sum_norm = _norm(key_sum)[..., 0]
        along = mx.where(sum_norm > 0, (direction * key_sum).sum(axis=-1) / sum_norm, 0.0)
        seen = offset + t + 1
        excess = mx.maximum(mx.square(key_sum).sum(axis=-1) - seen, 0.0)
        typical = mx.sqrt(excess / max(1.0, seen * (seen - 1.0)))
        novelty = mx.maximum(typical - along - margin, 0.0) if margin > 0 else 1.0 - along
        finite = mx.isfinite(_norm(keys[:, :, t].astype(mx.float32)))[..., 0]
        novelties.append(mx.where(finite, novelty, 0.0))
    return mx.stack(novelties, axis=2), key_sum


def observed(
    scores: mx.array, logits: mx.array, sinks: mx.array | None, config: H2OConfig
) -> mx.array:
    """Scores [B, Hkv, N], updated by the last `observation_window` queries one by one."""
    batch, heads, count, rows = logits.shape
    kv_heads = scores.shape[1]
    grouped = (batch, kv_heads, heads // kv_heads, count, rows)
    seen_by_head = mx.not_equal(logits, LOWEST)
    if config.score == "abs_logit":
        looked_at = mx.where(seen_by_head, mx.abs(logits), 0.0)
    else:
        looked_at = probabilities(logits, sinks)
    means = looked_at.reshape(grouped).mean(axis=2)
    seen = seen_by_head.reshape(grouped).any(axis=2) & mx.isfinite(means)
    decay = config.decay
    for query in range(max(0, count - config.observation_window), count):
        m = means[:, :, query]
        if config.score == "peak":
            updated = mx.maximum(decay * scores, m)
        else:
            updated = decay * scores + (1 - decay) * m
        updated = mx.where(scores < 0, m, updated)
        scores = mx.where(seen[:, :, query], updated, scores)
    return scores


def importance(scores: mx.array, novelty: mx.array, config: H2OConfig) -> mx.array:
    """The importance of rows [B, Hkv, N] that no rule protects."""
    if config.novelty == 0:
        return scores
    positive = mx.maximum(scores, 0.0)
    most = positive.max(axis=-1, keepdims=True)
    return mx.where(most > 0, positive / most, 0.0) + config.novelty * novelty


def importance_of(
    entries: dict[str, mx.array], config: H2OConfig, *, recent_from: int
) -> mx.array:
    """The importance of rows, [B, Hkv, N]: the least is evicted; infinite if protected."""
    stays = protected(entries["positions"], config, recent_from) | entries["held"]
    worth = importance(entries["scores"], entries["novelty"], config)
    return mx.where(stays, float("inf"), worth)


def protected(positions: mx.array, config: H2OConfig, recent_from: int) -> mx.array:
    """Whether positions are protected from eviction: sinks, recent and pinned tokens."""
    stays = (positions < config.sink_size) | (positions >= recent_from)
    for begin, end in config.pinned:
        stays = stays | ((positions >= begin) & (positions < end))
    return stays


def eviction_order(importance: mx.array, positions: mx.array) -> mx.array:
    """Row indices in the order of eviction: least important first, ties by position."""
    by_position = mx.argsort(positions, axis=-1)
    by_importance = mx.argsort(mx.take_along_axis(importance, by_position, axis=-1), axis=-1)
    return mx.take_along_axis(by_position, by_importance, axis=-1)
