"""What decides eviction: the score of rows, and which rows are protected."""

from __future__ import annotations

import mlx.core as mx

from h2o_pack.parity.reference.attention import LOWEST
from h2o_py.config import H2OConfig
from h2o_py.policy_fields import OBSERVATION_WINDOW, SCORE_DECAYS


def observed(
    scores: mx.array, logits: mx.array, shares: mx.array, config: H2OConfig
) -> mx.array:
    """Scores [B, Hkv, N], updated by the last `OBSERVATION_WINDOW` queries one by one.

    logits, shares: of the rows, [B, Hq, L, N]; shares are probabilities.
    """
    batch, heads, count, rows = logits.shape
    kv_heads = scores.shape[1]
    grouped = (batch, kv_heads, heads // kv_heads, count, rows)
    seen_by_head = mx.not_equal(logits, LOWEST)
    if config.score == "abs_logit":
        looked_at = mx.where(seen_by_head, mx.abs(logits), 0.0)
    else:
        looked_at = shares
    means = looked_at.reshape(grouped).mean(axis=2)
    seen = seen_by_head.reshape(grouped).any(axis=2) & mx.isfinite(means)
    decay = SCORE_DECAYS[config.score]
    for query in range(max(0, count - OBSERVATION_WINDOW), count):
        m = means[:, :, query]
        if config.score == "peak":
            updated = mx.maximum(decay * scores, m)
        else:
            updated = decay * scores + (1 - decay) * m
        updated = mx.where(scores < 0, m, updated)
        scores = mx.where(seen[:, :, query], updated, scores)
    return scores


def importance_of(
    entries: dict[str, mx.array], config: H2OConfig, *, recent_from: int
) -> mx.array:
    """The importance of rows, [B, Hkv, N]: the least is evicted; infinite if protected."""
    stays = protected(entries["positions"], config, recent_from)
    return mx.where(stays, float("inf"), entries["scores"])


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
