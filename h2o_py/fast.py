"""Attention that reports its logits, and the H2O cache: the compiled core.

Same functions and results as `h2o_py.reference`. B batch, Hq and Hkv query and KV heads,
L new tokens, N rows in use, C `max_size`, Dk and Dv head dims of keys and values. Wrong
shapes, dtypes and settings raise ValueError naming the argument and what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import mlx.core as mx

from h2o_py import archive_files
from h2o_py._compiled import ext
from h2o_py.config import H2OConfig
from h2o_py.ledger import Attended, Ledger, Recalled, Rows
from h2o_py.recall import H2ORecall
from h2o_py.row_format import DENSE, DTYPES, RowFormat


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
    rows: Rows, ledger: Ledger, length: int, config: H2OConfig, row_format: RowFormat = DENSE
) -> Ledger:
    """The ledger after all rows from `length` on were dropped.

    No row may be evicted yet, and there may be no ring.
    """
    native = _native(config, row_format)
    return Ledger(*ext.trim_ledger(rows, ledger, length, native))


def cache_fetch(
    rows: Rows,
    key_dim: int,
    offset: int,
    config: H2OConfig,
    *,
    tokens: int = 0,
    row_format: RowFormat = DENSE,
) -> tuple[mx.array, mx.array]:
    """Keys [B, Hkv, N, Dk] and values [B, Hkv, N, Dv] of the rows in use, pool first.

    Views of dense rows; dequantized vectors otherwise.

    Args:
        rows: as `cache_write` or `cache_attend` returned them.
        key_dim: Dk.
        offset: tokens seen before the last write.
        config: the policy.
        tokens: tokens just written, whose attention is outstanding.
        row_format: how the rows are stored.

    """
    return ext.cache_fetch(rows, key_dim, offset, tokens, _native(config, row_format))


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

    One token goes over `victim` once C rows are in use; otherwise tokens go after the rows
    in use, and the buffer grows in steps of 256 rows. With a ring one token takes the slot
    of the oldest recent one, which moves to the pool, over the victim if that is full;
    several tokens stand behind the ring until their attention.

    Args:
        rows: the cache's, or None while it is empty. The buffers are written in place unless
            they must grow or `copy` is true: nothing else may then read them or a view.
        keys: [B, Hkv, L, Dk], after RoPE.
        values: [B, Hkv, L, Dv].
        victim: int32 [B, Hkv], from the ledger.
        offset: tokens seen before.
        config: the policy.
        copy: write to copies.
        row_format: how rows are stored; quantized on the way in.

    Returns:
        The rows with the tokens in them.

    """
    native = _native(config, row_format)
    return Rows(*ext.cache_write(rows, keys, values, victim, offset, native, copy=copy))


def cache_attend(
    queries: mx.array | None,
    rows: Rows,
    ledger: Ledger,
    *,
    tokens: int,
    offset: int,
    config: H2OConfig,
    scale: float = 1.0,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    row_format: RowFormat = DENSE,
) -> Attended:
    """Attention of the newest tokens and the ledger that follows from it.

    Enters the `tokens` just written with position and novelty, attends, observes the
    last `observation_window` queries, evicts the rows beyond C (after the chunk's own
    attention), and chooses the next victim. With a ring the ledger's rows are the pool's,
    then the ring's slots.

    Args:
        queries: [B, Hq, tokens, Dk], or None when attention was computed elsewhere: then
            no row is observed.
        rows: as `cache_write` returned them.
        ledger: from before the write.
        tokens: tokens just written.
        offset: tokens seen before them.
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
        ledger,
        tokens=tokens,
        offset=offset,
        config=_native(config, row_format),
        scale=scale,
        mask=mask,
        sinks=sinks,
    )
    return Attended(out, Rows(*kept), Ledger(*state))


class Archive:
    """Keys after RoPE, values and novelty of all tokens of one layer, to recall from.

    Tokens are packed in segments of 256, which never change and which copies share. A single
    token costs nothing until 64 of them are packed together; what an archive says does not
    depend on that.

    Args:
        recall: its `archive_bits`, `limit` and `store`, the folder of this layer.
        group_size: elements that share a scale and a bias; divides the head dims.

    Raises:
        H2OFileError: the folder cannot be used.

    """

    def __init__(self, recall: H2ORecall, group_size: int) -> None:
        self.recall = recall
        folder = None if recall.store is None else archive_files.open_folder(recall.store)
        self._native = ext.Archive(recall, group_size, folder)

    @property
    def failure(self) -> tuple[str, dict[str, Any]] | None:
        """What makes recall impossible from now on; memory never fails."""
        failure = self._native.failure
        return None if failure is None else archive_files.values_of(failure)

    def append(
        self,
        keys: mx.array,
        values: mx.array,
        key_sum: mx.array,
        config: H2OConfig,
        row_format: RowFormat = DENSE,
    ) -> None:
        """Add the next tokens, without evaluating them.

        Args:
            keys: [B, Hkv, L, Dk], after RoPE.
            values: [B, Hkv, L, Dv].
            key_sum: float32 [B, Hkv, Dk], the ledger's before these tokens.
            config: the policy, for `novelty_margin`.
            row_format: of the cache's rows; tokens are rotated here as they are there.

        """
        self._native.append(keys, values, key_sum, _native(config, row_format))

    @property
    def length(self) -> int:
        """Tokens seen so far."""
        return self._native.length

    @property
    def first(self) -> int:
        """The oldest position that is still here."""
        return self._native.first

    @property
    def nbytes(self) -> int:
        """Bytes of all that is archived."""
        return self._native.nbytes

    @property
    def arrays(self) -> list[mx.array]:
        """Rows and novelty of each segment, then of the tokens after the last one.

        Those that are in files are left out.
        """
        return self._native.arrays()

    @property
    def saved(self) -> dict[str, Any]:
        """What must be known beside `arrays`, as plain values."""
        return {
            "bits": self.recall.archive_bits,
            "dtype": str(self._native.dtype),
            "first": self.first,
            "group_size": self._native.group_size,
            **archive_files.saved_mark(self._native.mark),
        }

    @classmethod
    def restored(
        cls,
        arrays: Sequence[mx.array],
        saved: dict[str, Any],
        recall: H2ORecall,
        *,
        key_dim: int,
        length: int,
    ) -> Archive:
        """Make the archive that gave `arrays` and `saved`, with `length` tokens seen.

        Raises:
            ValueError: they do not fit each other.
            H2OFileError: the folder is not the one that they go on from.

        """
        native = ext.restored_archive(
            list(arrays),
            recall,
            bits=saved["bits"],
            group_size=saved["group_size"],
            dtype=DTYPES[saved["dtype"]],
            key_dim=key_dim,
            first=saved["first"],
            length=length,
            folder=archive_files.continued(recall.store, saved),
        )
        return cls._of(recall, archive_files.unless_failed(native))

    def trim(self, n: int) -> None:
        """Remove the `n` newest tokens."""
        self._native.trim(n)

    def copy(self) -> Archive:
        """An archive of its own, which shares the segments."""
        return self._of(self.recall, self._native.copy())

    @classmethod
    def _of(cls, recall: H2ORecall, native: ext.Archive) -> Archive:
        archive = cls.__new__(cls)
        archive.recall, archive._native = recall, native  # noqa: SLF001
        return archive

    def rows(self, begin: int, end: int) -> tuple[mx.array, mx.array, mx.array]:
        """Keys [B, Hkv, n, Dk] and values in float32, and novelty of these positions.

        Keys and values are rotated if the cache's rows are.
        """
        return self._native.tokens(begin, end)


def recall(
    queries: mx.array,
    keys: mx.array,
    rows: Rows,
    ledger: Ledger,
    archive: Archive,
    *,
    offset: int,
    config: H2OConfig,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    row_format: RowFormat = DENSE,
) -> Recalled:
    """The rows and the ledger once archived tokens that these queries ask for came back.

    Evaluates its arguments. The rows are new buffers if any came, else the given ones.

    Args:
        queries: [B, Hq, L, Dk] of the tokens that ask.
        keys: [B, Hkv, L, Dk], theirs.
        rows: the cache's before these tokens are written, C in use.
        ledger: from before the write.
        archive: all tokens before these.
        offset: tokens seen before them.
        config: the policy.
        scale: factor of q.k.
        mask: which of each other they see: None or "causal", or an array that broadcasts to
            [B, Hq, L, L].
        sinks: [Hq], logits without a value.
        row_format: how the rows are stored.

    """
    kept, state, came = ext.recall(
        queries,
        keys,
        rows,
        ledger,
        archive._native,  # noqa: SLF001
        offset=offset,
        config=_native(config, row_format),
        scale=scale,
        mask=mask,
        sinks=sinks,
    )
    return Recalled(Rows(*kept), Ledger(*state), came)


@lru_cache(maxsize=256)
def _native(config: H2OConfig, row_format: RowFormat = DENSE) -> ext.CacheConfig:
    settings = {**vars(row_format), "recent_bits": row_format.recent_bits or 0}
    return ext.CacheConfig(config, **settings)
