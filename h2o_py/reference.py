"""The cache's semantics in plain MLX operations: slow, readable, the oracle of the tests.

Mirrors `h2o_py.fast` function by function; see there for shapes. Nothing is written in
place. Queries are observed one after another, as the definition says, where the compiled
core may use a closed form.
"""

from __future__ import annotations

import mlx.core as mx

from h2o_py.config import H2OConfig
from h2o_py.ledger import Attended, Ledger
from h2o_py.row_format import DENSE, RowFormat

LOWEST = mx.finfo(mx.float32).min
_GROWTH_STEP = 256


def scaled_dot_product_attention_with_scores(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """Attention [B, Hq, L, Dv] and its logits, float32 [B * Hq * L, N]."""
    logits = _logits(queries, keys, scale, mask)
    out = _mixed(_probabilities(logits, sinks), values)
    return out.astype(queries.dtype), logits.reshape(-1, keys.shape[2])


def make_ledger(batch: int, kv_heads: int, key_dim: int, config: H2OConfig) -> Ledger:
    """The ledger of an empty cache."""
    rows = (batch, kv_heads, config.max_size)
    return Ledger(
        scores=mx.full(rows, -1.0, mx.float32),
        positions=mx.full(rows, -1, mx.int32),
        novelty=mx.zeros(rows, mx.float32),
        key_sum=mx.zeros((batch, kv_heads, key_dim), mx.float32),
        victim=mx.full((batch, kv_heads), -1, mx.int32),
    )


def trim_ledger(
    rows: mx.array,
    ledger: Ledger,
    length: int,
    config: H2OConfig,  # noqa: ARG001  as in h2o_py.fast
    row_format: RowFormat = DENSE,
) -> Ledger:
    """The ledger after all rows from `length` on were dropped; no row may be evicted yet."""
    stays = mx.arange(ledger.scores.shape[2]) < length
    keys, _ = _wide(rows, length, ledger.key_sum.shape[2], row_format)
    return Ledger(
        scores=mx.where(stays, ledger.scores, -1.0),
        positions=mx.where(stays, ledger.positions, -1),
        novelty=mx.where(stays, ledger.novelty, 0.0),
        key_sum=_unit(keys).sum(axis=2),
        victim=mx.full(ledger.victim.shape, -1, mx.int32),
    )


def cache_write(
    rows: mx.array | None,
    keys: mx.array,
    values: mx.array,
    victim: mx.array,
    length: int,
    config: H2OConfig,
    *,
    copy: bool = False,  # noqa: ARG001  nothing is ever written in place here
    row_format: RowFormat = DENSE,
) -> mx.array:
    """The rows [B, Hkv, capacity, R] with the new tokens in them."""
    tokens = _packed(keys, values, row_format)
    dtype = tokens.dtype if rows is None else rows.dtype
    tokens = tokens.astype(dtype)
    count = tokens.shape[2]
    if rows is not None and count == 1 and length == config.max_size:
        taken = mx.equal(mx.arange(rows.shape[2]), victim[:, :, None])
        return mx.where(taken[..., None], tokens, rows)
    needed = length + count
    capacity = 0 if rows is None else rows.shape[2]
    if needed > capacity:
        rounded = -(-needed // _GROWTH_STEP) * _GROWTH_STEP
        capacity = min(rounded, config.max_size) if needed <= config.max_size else needed
    batch, heads, _, width = tokens.shape
    spare = mx.zeros((batch, heads, capacity - needed, width), dtype)
    used = tokens[:, :, :0] if rows is None else rows[:, :, :length]
    return mx.concatenate([used, tokens, spare], axis=2)


def cache_attend(
    queries: mx.array | None,
    rows: mx.array,
    ledger: Ledger,
    *,
    tokens: int,
    offset: int,
    length: int,
    config: H2OConfig,
    scale: float = 1.0,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    row_format: RowFormat = DENSE,
) -> Attended:
    """Attention of the newest tokens over the rows, then scores, eviction, next victim."""
    overwrote = tokens == 1 and length == config.max_size
    count = length if overwrote else length + tokens
    keys, values = _wide(rows, count, ledger.key_sum.shape[2], row_format)

    entries, key_sum = _entered(
        keys, ledger, tokens, offset, length, config.novelty_margin, overwrote=overwrote
    )
    out = None
    if queries is not None:
        logits = _logits(queries, keys, scale, mask, hide_faint=True)
        out = _mixed(_probabilities(logits, sinks), values).astype(queries.dtype)
        entries["scores"] = _observed(entries["scores"], logits, sinks, config)

    seen = offset + tokens
    if count > config.max_size:
        importance = _importance(entries, config, recent_from=seen - config.recent_budget)
        order = _eviction_order(importance, entries["positions"])
        stay = mx.sort(order[:, :, count - config.max_size :], axis=-1)
        entries = {name: mx.take_along_axis(a, stay, axis=2) for name, a in entries.items()}
        rows = mx.take_along_axis(rows[:, :, :count], stay[..., None], axis=2)
        count = config.max_size
    victim = mx.full(ledger.victim.shape, -1, mx.int32)
    if count == config.max_size:
        importance = _importance(entries, config, recent_from=seen + 1 - config.recent_budget)
        victim = _eviction_order(importance, entries["positions"])[:, :, 0].astype(mx.int32)
    state = Ledger(
        scores=_padded(entries["scores"], config.max_size, -1.0),
        positions=_padded(entries["positions"], config.max_size, -1),
        novelty=_padded(entries["novelty"], config.max_size, 0.0),
        key_sum=key_sum,
        victim=victim,
    )
    return Attended(out, rows, state)


def fetch(
    rows: mx.array,
    length: int,
    key_dim: int,
    config: H2OConfig,  # noqa: ARG001  as in h2o_py.fast
    row_format: RowFormat = DENSE,
) -> tuple[mx.array, mx.array]:
    """Keys [B, Hkv, length, Dk] and values [B, Hkv, length, Dv] of the rows in use."""
    keys, values = _wide(rows, length, key_dim, row_format)
    dtype = rows.dtype if row_format.is_dense else row_format.dtype
    return keys.astype(dtype), values.astype(dtype)


def _wide(
    rows: mx.array, length: int, key_dim: int, row_format: RowFormat
) -> tuple[mx.array, mx.array]:
    """Keys and values of the rows in use; quantised ones in float32."""
    rows = rows[:, :, :length]
    if row_format.is_dense:
        return rows[..., :key_dim], rows[..., key_dim:]
    key_words = key_dim * row_format.key_bits // 32
    key_end = key_words + 2 * key_dim // row_format.group_size * row_format.dtype.size // 4
    group_words = row_format.group_size * row_format.value_bits // 32
    groups = (rows.shape[3] - key_end) // (group_words + 2 * row_format.dtype.size // 4)
    value_words = key_end + groups * group_words
    return (
        _unpacked(rows, 0, key_words, key_end, row_format, row_format.key_bits),
        _unpacked(rows, key_end, value_words, rows.shape[3], row_format, row_format.value_bits),
    )


def _packed(keys: mx.array, values: mx.array, row_format: RowFormat) -> mx.array:
    """Rows: key and value side by side; quantised, words, scales, biases of each."""
    if row_format.is_dense:
        return mx.concatenate([keys, values], axis=3)
    parts = []
    for vectors, bits in ((keys, row_format.key_bits), (values, row_format.value_bits)):
        words, scales, biases = mx.quantize(
            vectors.astype(row_format.dtype), group_size=row_format.group_size, bits=bits
        )
        both = mx.contiguous(mx.concatenate([scales, biases], axis=3))
        parts += [words, both.view(mx.uint32)]
    return mx.concatenate(parts, axis=3)


def _unpacked(
    rows: mx.array, begin: int, scales_at: int, end: int, row_format: RowFormat, bits: int
) -> mx.array:
    if rows.shape[2] == 0:  # which MLX's own functions refuse
        return mx.zeros((*rows.shape[:3], (scales_at - begin) * 32 // bits), mx.float32)
    both = mx.contiguous(rows[..., scales_at:end]).view(row_format.dtype)
    scales, biases = mx.split(both.astype(mx.float32), 2, axis=3)
    return mx.dequantize(
        rows[..., begin:scales_at], scales, biases, group_size=row_format.group_size, bits=bits
    )


def _logits(
    queries: mx.array,
    keys: mx.array,
    scale: float,
    mask: mx.array | str | None,
    *,
    hide_faint: bool = False,
) -> mx.array:
    """Float32 [B, Hq, L, N]; the lowest finite float where a row is hidden."""
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
    if hide_faint:
        hidden = hidden | (bias <= (-32752.0 if mask.dtype == mx.float16 else -1e9))
    return mx.where(hidden, LOWEST, logits + bias)


def _probabilities(logits: mx.array, sinks: mx.array | None) -> mx.array:
    """Softmax over the rows that a query sees; all 0 where it sees none."""
    most = logits.max(axis=-1, keepdims=True)
    if sinks is not None:
        sinks = sinks.astype(mx.float32).reshape(1, -1, 1, 1)
        most = mx.maximum(most, sinks)
    weights = mx.where(logits == LOWEST, 0.0, mx.exp(logits - most))
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + mx.exp(sinks - most)
    return mx.where(total == 0, 0.0, weights / total)


def _mixed(probabilities: mx.array, values: mx.array) -> mx.array:
    group = probabilities.shape[1] // values.shape[1]
    return probabilities @ mx.repeat(values.astype(mx.float32), group, axis=1)


def _norm(vectors: mx.array) -> mx.array:
    return mx.sqrt(mx.square(vectors).sum(axis=-1, keepdims=True))


def _unit(keys: mx.array) -> mx.array:
    """k/|k| in float32; zero where |k| is zero or not finite."""
    keys = keys.astype(mx.float32)
    norm = _norm(keys)
    return mx.where(mx.isfinite(norm) & (norm > 0), keys / norm, 0.0)


def _novelty(
    keys: mx.array, key_sum: mx.array, offset: int, margin: float
) -> tuple[mx.array, mx.array]:
    """Novelty [B, Hkv, L] of new keys [B, Hkv, L, Dk], and the sum with them.

    Without a margin it is 1 - the cosine with the sum. With one, what the cosine is below a
    typical key's and the margin: the squared length of a sum of n unit keys is
    n + n (n - 1) c^2, where c^2 is their mean cosine, own pairs aside, and c how closely a
    typical key follows the mean of all.
    """
    novelties = []
    for t in range(keys.shape[2]):
        unit = _unit(keys[:, :, t])
        key_sum = key_sum + unit
        sum_norm = _norm(key_sum)[..., 0]
        along = mx.where(sum_norm > 0, (unit * key_sum).sum(axis=-1) / sum_norm, 0.0)
        seen = offset + t + 1
        excess = mx.maximum(mx.square(key_sum).sum(axis=-1) - seen, 0.0)
        typical = mx.sqrt(excess / max(1.0, seen * (seen - 1.0)))
        novelty = mx.maximum(typical - along - margin, 0.0) if margin > 0 else 1.0 - along
        finite = mx.isfinite(_norm(keys[:, :, t].astype(mx.float32)))[..., 0]
        novelties.append(mx.where(finite, novelty, 0.0))
    return mx.stack(novelties, axis=2), key_sum


def _entered(
    keys: mx.array,
    ledger: Ledger,
    tokens: int,
    offset: int,
    length: int,
    margin: float,
    *,
    overwrote: bool,
) -> tuple[dict[str, mx.array], mx.array]:
    """Scores, positions and novelty [B, Hkv, N] with the new tokens, and the key sum."""
    if overwrote:
        fresh = mx.take_along_axis(keys, ledger.victim[:, :, None, None], axis=2)
    else:
        fresh = keys[:, :, length:]
    novelty, key_sum = _novelty(fresh, ledger.key_sum, offset, margin)
    new = {
        "scores": mx.full(fresh.shape[:3], -1.0, mx.float32),
        "positions": mx.broadcast_to(mx.arange(offset, offset + tokens), fresh.shape[:3]),
        "novelty": novelty,
    }
    entries = {}
    for name, added in new.items():
        old = getattr(ledger, name)
        if overwrote:
            taken = mx.arange(old.shape[2]) == ledger.victim[:, :, None]
            entries[name] = mx.where(taken, added, old)
        else:
            entries[name] = mx.concatenate([old[:, :, :length], added], axis=2)
    return entries, key_sum


def _observed(
    scores: mx.array, logits: mx.array, sinks: mx.array | None, config: H2OConfig
) -> mx.array:
    """Scores [B, Hkv, N] after the last `observation_window` of the queries, in order."""
    batch, heads, count, rows = logits.shape
    kv_heads = scores.shape[1]
    grouped = (batch, kv_heads, heads // kv_heads, count, rows)
    seen_by_head = mx.not_equal(logits, LOWEST)
    if config.score == "abs_logit":
        looked_at = mx.where(seen_by_head, mx.abs(logits), 0.0)
    else:
        looked_at = _probabilities(logits, sinks)
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


def _importance(
    entries: dict[str, mx.array], config: H2OConfig, *, recent_from: int
) -> mx.array:
    """What decides eviction, [B, Hkv, N]; infinite for protected rows."""
    importance = entries["scores"]
    if config.novelty != 0:
        positive = mx.maximum(importance, 0.0)
        most = positive.max(axis=-1, keepdims=True)
        share = mx.where(most > 0, positive / most, 0.0)
        importance = share + config.novelty * entries["novelty"]
    positions = entries["positions"]
    protected = (positions < config.sink_size) | (positions >= recent_from)
    for begin, end in config.pinned:
        protected = protected | ((positions >= begin) & (positions < end))
    return mx.where(protected, float("inf"), importance)


def _eviction_order(importance: mx.array, positions: mx.array) -> mx.array:
    """Row indices from the first to go on: by importance, equal ones by position."""
    by_position = mx.argsort(positions, axis=-1)
    by_importance = mx.argsort(mx.take_along_axis(importance, by_position, axis=-1), axis=-1)
    return mx.take_along_axis(by_position, by_importance, axis=-1)


def _padded(entries: mx.array, size: int, empty: float) -> mx.array:
    batch, heads, count = entries.shape
    spare = mx.full((batch, heads, size - count), empty, entries.dtype)
    return mx.concatenate([entries, spare], axis=2)
