"""Attention: logits, probabilities and outputs."""

from __future__ import annotations

import mlx.core as mx

LOWEST = mx.finfo(mx.float32).min
Mask = mx.array | str | None


def scaled_dot_product_attention_with_scores(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: Mask = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """Attention [B, Hq, L, Dv] and its logits, float32 [B * Hq * L, N]."""
    logits = logits_of(queries, keys, scale, mask)
    out = weighted_sum(probabilities(logits, sinks), values)
    return out.astype(queries.dtype), logits.reshape(-1, keys.shape[2])


def logits_of(
    queries: mx.array,
    keys: mx.array,
    scale: float,
    mask: Mask,
    *,
    low_bias_hides: bool = False,
) -> mx.array:
    """Logits, float32 [B, Hq, L, N]; the lowest finite float for hidden rows."""
    group = queries.shape[1] // keys.shape[1]
    wide = mx.repeat(keys.astype(mx.float32), group, axis=1)
    logits = (scale * queries.astype(mx.float32)) @ wide.swapaxes(2, 3)
    if mask is None:
        return logits
    if isinstance(mask, str):
        count, rows = logits.shape[2:]
        mask = mx.arange(rows - count, rows)[:, None] >= mx.arange(rows)
    if mask.dtype == mx.bool_:
        return mx.where(mask, logits, LOWEST)
    bias = mask.astype(mx.float32)
    hidden = logits + bias <= LOWEST
    if low_bias_hides:
        hidden = hidden | (bias <= (-32752.0 if mask.dtype == mx.float16 else -1e9))
    return mx.where(hidden, LOWEST, logits + bias)


def probabilities(logits: mx.array, sinks: mx.array | None) -> mx.array:
    """Softmax over the rows that a query sees; all 0 for a query that sees none."""
    most = logits.max(axis=-1, keepdims=True)
    if sinks is not None:
        sinks = sinks.astype(mx.float32).reshape(1, -1, 1, 1)
        most = mx.maximum(most, sinks)
    weights = mx.where(logits == LOWEST, 0.0, mx.exp(logits - most))
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + mx.exp(sinks - most)
    return mx.where(total == 0, 0.0, weights / total)


def weighted_sum(shares: mx.array, values: mx.array) -> mx.array:
    """Sum of values [B, Hkv, N, Dv], each with its share [B, Hq, L, N]."""
    group = shares.shape[1] // values.shape[1]
    return shares @ mx.repeat(values.astype(mx.float32), group, axis=1)
