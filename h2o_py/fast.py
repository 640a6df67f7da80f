"""Attention that reports its logits, and the H2O cache: the compiled core.

Same functions and results as `h2o_py.reference`. B batch, Hq and Hkv query and KV heads,
L new tokens, N rows in use, C `max_size`, Dk and Dv head dims of keys and values. Wrong
shapes, dtypes and settings raise ValueError naming the argument and what is allowed.
"""

from __future__ import annotations

from functools import lru_cache

import mlx.core as mx

from h2o_py._compiled import ext
from h2o_py.config import H2OConfig
from h2o_py.ledger import Attended, Ledger
from h2o_py.row_format import DENSE, MixedFormat, RowFormat


def scaled_dot_product_attention_with_scores(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """Attention and its logits in one pass over keys and values.

    Args:
        queries: [B, Hq, L, Dk], float32, float16 or bfloat16.
        keys: [B, Hkv, N, Dk]; Hkv divides Hq.
        values: [B, Hkv, N, Dv].
        scale: factor of q.k.
        mask: None, "causal" (query l sees the first N - L + l + 1 rows), or an array that
            broadcasts to [B, Hq, L, N]: bool (true is seen) or added to the logits.
        sinks: [Hq], logits without a value.

    Returns:
        The output [B, Hq, L, Dv] in the dtype of `queries`, and the logits
        scale * q.k (+ additive mask), float32 [B * Hq * L, N], the lowest finite float32
        where a row is hidden.

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
    """Attention and its logits over keys and values as `mx.quantize` packs them.

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
        sinks: [Hq], logits without a value.

    Returns:
        As `scaled_dot_product_attention_with_scores`.

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


def make_ledger(batch: int, kv_heads: int, key_dim: int, config: H2OConfig) -> Ledger:
    """The ledger of an empty cache."""
    return Ledger(*ext.make_ledger(batch, kv_heads, key_dim, _native(config)))


def trim_ledger(
    rows: mx.array,
    ledger: Ledger,
    length: int,
    config: H2OConfig,
    row_format: RowFormat = DENSE,
) -> Ledger:
    """The ledger after all rows from `length` on were dropped; no row may be evicted yet."""
    return Ledger(*ext.trim_ledger(rows, tuple(ledger), length, _native(config, row_format)))


def fetch(
    rows: mx.array, length: int, key_dim: int, config: H2OConfig, row_format: RowFormat = DENSE
) -> tuple[mx.array, mx.array]:
    """Keys [B, Hkv, length, Dk] and values [B, Hkv, length, Dv] of the rows in use.

    Views of dense rows; of quantised ones the dequantised vectors.
    """
    return ext.unpacked_rows(rows, length, key_dim, _native(config, row_format))


def cache_write(
    rows: mx.array | None,
    keys: mx.array,
    values: mx.array,
    victim: mx.array,
    length: int,
    config: H2OConfig,
    *,
    copy: bool = False,
    row_format: RowFormat = DENSE,
) -> mx.array:
    """Put new tokens into the rows.

    One token goes over `victim` when `length` is C; otherwise tokens go after the
    `length` rows in use, and the buffer grows in steps of 256 rows.

    Args:
        rows: [B, Hkv, capacity, Dk + Dv], or None for an empty cache. Its buffer is
            written in place unless it must grow or `copy` is true: nothing else may then
            read it or a view of it.
        keys: [B, Hkv, L, Dk], after RoPE.
        values: [B, Hkv, L, Dv].
        victim: int32 [B, Hkv], from the ledger.
        length: rows in use before.
        config: the policy.
        copy: write to a copy.
        row_format: how rows are stored; quantised on the way in.

    Returns:
        The rows with the tokens in them.

    """
    native = _native(config, row_format)
    return ext.cache_write(rows, keys, values, victim, length, native, copy=copy)


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
    """Attention of the newest tokens and the ledger that follows from it.

    Enters the `tokens` just written with position and novelty, attends, observes the
    last `observation_window` queries, evicts what a chunk has too much (after its own
    attention), and chooses the next victim.

    Args:
        queries: [B, Hq, tokens, Dk], or None when attention was computed elsewhere: then
            no row is observed.
        rows: as `cache_write` returned them.
        ledger: from before the write.
        tokens: tokens just written.
        offset: tokens seen before them.
        length: rows in use before them.
        config: the policy.
        scale: factor of q.k.
        mask: as for `scaled_dot_product_attention_with_scores`, over the rows in use. An
            additive mask of -1e9 or less (float16: half its lowest) hides a row.
        sinks: [Hq], logits without a value.
        row_format: how the rows are stored.

    """
    out, kept, state = ext.cache_attend(
        queries,
        rows,
        tuple(ledger),
        tokens=tokens,
        offset=offset,
        length=length,
        config=_native(config, row_format),
        scale=scale,
        mask=mask,
        sinks=sinks,
    )
    return Attended(out, kept, Ledger(*state))


def mixed_cache_write(
    rows: tuple[mx.array, mx.array] | None,
    keys: mx.array,
    values: mx.array,
    victim: mx.array,
    offset: int,
    config: H2OConfig,
    mixed: MixedFormat,
    *,
    copy: bool = False,
) -> tuple[mx.array, mx.array]:
    """`cache_write` for a pool and a ring (`h2o_py.mixed_cache`).

    Args:
        rows: pool and ring, each [B, Hkv, capacity, its row], or None; written in place
            unless they must grow or `copy` is true.
        keys: [B, Hkv, L, Dk], after RoPE.
        values: [B, Hkv, L, Dv].
        victim: int32 [B, Hkv], from the ledger.
        offset: tokens seen before.
        config: the policy.
        mixed: the two precisions.
        copy: write to copies.

    """
    native = _native_mixed(config, mixed)
    return ext.mixed_cache_write(rows, keys, values, victim, offset, native, copy=copy)


def mixed_cache_attend(
    queries: mx.array | None,
    rows: tuple[mx.array, mx.array],
    ledger: Ledger,
    *,
    tokens: int,
    offset: int,
    key_dim: int,
    value_dim: int,
    config: H2OConfig,
    mixed: MixedFormat,
    scale: float = 1.0,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array | None, tuple[mx.array, mx.array], Ledger]:
    """`cache_attend` for a pool and a ring; the ledger's rows are the pool's, then slots."""
    out, kept, state = ext.mixed_cache_attend(
        queries,
        rows,
        tuple(ledger),
        tokens=tokens,
        offset=offset,
        key_dim=key_dim,
        value_dim=value_dim,
        config=_native_mixed(config, mixed),
        scale=scale,
        mask=mask,
        sinks=sinks,
    )
    return out, kept, Ledger(*state)


def mixed_fetch(
    rows: tuple[mx.array, mx.array],
    pooled: int,
    ringed: int,
    key_dim: int,
    config: H2OConfig,
    mixed: MixedFormat,
) -> tuple[mx.array, mx.array]:
    """Keys [B, Hkv, N, Dk] and values [B, Hkv, N, Dv] of all rows in use, pool first."""
    return ext.mixed_fetch(rows, pooled, ringed, key_dim, _native_mixed(config, mixed))


@lru_cache(maxsize=256)
def _native_mixed(config: H2OConfig, mixed: MixedFormat) -> ext.MixedConfig:
    return ext.MixedConfig(_native(config), **vars(mixed))


@lru_cache(maxsize=256)
def _native(config: H2OConfig, row_format: RowFormat = DENSE) -> ext.CacheConfig:
    return ext.CacheConfig(config, **vars(row_format))
