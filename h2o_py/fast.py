"""The functions of the compiled core: attention that reports its logits, and the H2O cache.

`h2o_pack.parity.reference` states the same cache in plain operations. Shapes use B for the
batch, Hq and Hkv for query and KV heads, L for new tokens, N for rows in use, C for `max_size`,
Dk and Dv for head dims of keys and values. A wrong shape, dtype or setting raises a ValueError
that names the argument and what it must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import mlx.core as mx

from h2o_py._compiled import ext
from h2o_py.config import H2OConfig
from h2o_py.rows import DENSE, Attended, Ledger, RowFormat, Rows


def scaled_dot_product_attention_with_scores(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """Compute attention and its logits in one pass over keys and values.

    Args:
        queries: [B, Hq, L, Dk], float32, float16 or bfloat16.
        keys: [B, Hkv, N, Dk]; Hkv divides Hq.
        values: [B, Hkv, N, Dv].
        scale: factor of q.k.
        mask: None, "causal" (query l sees the first N - L + l + 1 rows), or an array that
            broadcasts to [B, Hq, L, N]: bool (true is seen) or added to the logits.
        sinks: [Hq], logits that take probability but have no value.

    Returns:
        The output [B, Hq, L, Dv] in the dtype of `queries`, and the logits
        scale * q.k (+ additive mask), float32 [B * Hq * L, N], the lowest finite float32
        for hidden rows.

    """
    out, scores = ext.scaled_dot_product_attention_with_scores(
        queries, keys, values, scale=scale, mask=mask, sinks=sinks
    )
    return out, scores


def scaled_dot_product_attention_quantized_with_scores(
    queries: mx.array,
    key_words: mx.array,
    key_scales: mx.array,
    key_biases: mx.array,
    value_words: mx.array,
    value_scales: mx.array,
    value_biases: mx.array,
    *,
    scale: float,
    bits: int | tuple[int, int],
    group_size: int = 64,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """Compute attention and its logits over keys and values that `mx.quantize` has quantized.

    Args:
        queries: [B, Hq, L, Dk], float32, float16 or bfloat16.
        key_words: uint32 [B, Hkv, N, Dk * bits / 32].
        key_scales: [B, Hkv, N, Dk / group_size].
        key_biases: like `key_scales`.
        value_words: uint32 [B, Hkv, N, Dv * bits / 32].
        value_scales: [B, Hkv, N, Dv / group_size].
        value_biases: like `value_scales`.
        scale: factor of q.k.
        bits: 4 or 8, or a pair for keys and values.
        group_size: 32, 64 or 128.
        mask: as for `scaled_dot_product_attention_with_scores`.
        sinks: [Hq], logits that take probability but have no value.

    Returns:
        The same as `scaled_dot_product_attention_with_scores`.

    """
    key_bits, value_bits = (bits, bits) if isinstance(bits, int) else bits
    out, scores = ext.scaled_dot_product_attention_quantized_with_scores(
        queries,
        [key_words, key_scales, key_biases],
        [value_words, value_scales, value_biases],
        scale=scale,
        key_bits=key_bits,
        value_bits=value_bits,
        group_size=group_size,
        mask=mask,
        sinks=sinks,
    )
    return out, scores


def make_ledger(batch: int, kv_heads: int, config: H2OConfig) -> Ledger:
    """The ledger of an empty cache."""
    return Ledger(*ext.make_ledger(batch, kv_heads, _native(config)))


def cache_write(
    rows: Rows | None,
    keys: mx.array,
    values: mx.array,
    victim: mx.array,
    offset: int,
    config: H2OConfig,
    *,
    copy: bool = False,
    row_format: RowFormat = DENSE,
) -> Rows:
    """Put new tokens into the rows.

    If C rows are in use, a single token overwrites the row `victim`. Otherwise tokens are
    written behind the rows in use, and the buffer grows in steps of 256 rows. With a ring, a
    single token takes the slot of the oldest recent token, which moves to the pool; in a full
    pool, the moved token overwrites the victim. Several tokens are written behind the ring
    until their attention is computed.

    Args:
        rows: the rows of the cache, or None while it is empty. Buffers are written in place
            unless they must grow or `copy` is true, so nothing else may read them or a
            view of them.
        keys: [B, Hkv, L, Dk], after RoPE.
        values: [B, Hkv, L, Dv].
        victim: int32 [B, Hkv], from the ledger.
        offset: tokens seen before.
        config: the policy.
        copy: whether to write to copies of the buffers.
        row_format: how rows are stored.

    Returns:
        The rows with the tokens in them.

    """
    native = _native(config, row_format)
    buffers = None if rows is None else rows.buffers
    return Rows(*ext.cache_write(buffers, keys, values, victim, offset, native, copy=copy))


def cache_attend(
    queries: mx.array | None,
    rows: Rows,
    ledger: Ledger,
    *,
    key_dim: int,
    tokens: int,
    offset: int,
    config: H2OConfig,
    scale: float = 1.0,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    row_format: RowFormat = DENSE,
) -> Attended:
    """Compute the attention of the newest tokens and the next ledger.

    This adds the `tokens` just written to the ledger; computes their attention; updates scores
    by the last 64 queries; evicts the rows beyond C; and chooses the next victim. With a ring,
    the ledger lists the rows of the pool and then the slots of the ring.

    Args:
        queries: [B, Hq, tokens, Dk], or None if attention was computed elsewhere; scores
            then stay as they are.
        rows: as `cache_write` returned them.
        ledger: the ledger before the write.
        key_dim: Dk.
        tokens: tokens just written.
        offset: tokens seen before them.
        config: the policy.
        scale: factor of q.k.
        mask: as for `scaled_dot_product_attention_with_scores`, over the rows in use. An
            additive mask of -1e9 or less (float16: half its lowest) hides a row.
        sinks: [Hq], logits that take probability but have no value.
        row_format: how the rows are stored.

    """
    out, rows_after, state = ext.cache_attend(
        queries,
        rows.buffers,
        ledger,
        key_dim=key_dim,
        tokens=tokens,
        offset=offset,
        config=_native(config, row_format),
        scale=scale,
        mask=mask,
        sinks=sinks,
    )
    return Attended(out, Rows(*rows_after), Ledger(*state))


def layer_cache(config: H2OConfig, row_format: RowFormat) -> ext.LayerCache:
    """Make an empty cache of one layer; see `h2o::LayerCache`."""
    return ext.LayerCache(_native(config, row_format), config.recall)


def restored_layer_cache(saved: ext.SavedCache, arrays: Sequence[mx.array]) -> ext.LayerCache:
    """Make the cache of one layer from the header and the arrays of a saved cache.

    Raises:
        H2OStateError: arrays and header contradict each other.
        H2OFileError: the archive's folder is not the one that the cache was saved with.

    """
    return ext.LayerCache.restored(saved, list(arrays))


@lru_cache(maxsize=256)
def _native(config: H2OConfig, row_format: RowFormat = DENSE) -> ext.CacheConfig:
    settings = {**vars(row_format), "recent_bits": row_format.recent_bits or 0}
    return ext.CacheConfig(config, **settings)
