"""The archive of a cache in plain MLX operations; see cexport/h2o/archive.h."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from h2o_pack.parity.reference.policy import novelties
from h2o_pack.parity.reference.rows import as_stored, packed, wide
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.policy_fields import ARCHIVE_GROUP, SEGMENT_TOKENS
from h2o_py.rows import DENSE, DTYPES, RowFormat


class Archive:
    """Keys after RoPE, values and novelty of the positions from `first` to `length` - 1."""

    mark = None
    """Where the files of an archive end; None, because this archive has no files."""

    def __init__(self, recall: H2ORecall) -> None:
        self.recall = recall
        bits = recall.archive_bits
        self.row_format = RowFormat(bits, bits, ARCHIVE_GROUP)
        self.length = 0
        """Tokens seen so far."""
        self.first = 0
        """The oldest position that is still in the archive."""
        self._rows: mx.array | None = None
        """[B, Hkv, n, R]: keys and values as `RowFormat` packs them."""
        self._novelty = mx.zeros((1, 1, 0))
        """float32 [B, Hkv, n]."""
        self._key_dim = 0

    def append(
        self,
        keys: mx.array,
        values: mx.array,
        key_sum: mx.array,
        config: H2OConfig,
        row_format: RowFormat = DENSE,
    ) -> None:
        """Add the next tokens, with rotated keys if `row_format` rotates them."""
        keys, values = as_stored(keys, row_format), as_stored(values, row_format)
        if self.length == 0:
            bits, group_size = self.bits, self.group_size
            self.row_format = RowFormat(bits, bits, group_size, keys.dtype)
            self._key_dim = keys.shape[3]
        novelty, _ = novelties(keys, key_sum, self.length, config.novelty_margin)
        rows = _hidden_or_packed(keys, values, self.row_format)
        if self._rows is None:
            self._rows, self._novelty = rows, novelty
        else:
            self._rows = mx.concatenate([self._rows, rows], axis=2)
            self._novelty = mx.concatenate([self._novelty, novelty], axis=2)
        self.length += keys.shape[2]
        self._keep_limit()

    @property
    def nbytes(self) -> int:
        """Bytes of all archived arrays."""
        return sum(int(array.nbytes) for array in self.arrays)

    @property
    def arrays(self) -> list[mx.array]:
        """Rows and novelty of each segment, then of the tokens after the last one."""
        if self._rows is None:
            return []
        starts = range(0, self._rows.shape[2], SEGMENT_TOKENS)
        parts = [slice(start, start + SEGMENT_TOKENS) for start in starts]
        return [array[:, :, part] for part in parts for array in (self._rows, self._novelty)]

    @property
    def bits(self) -> int:
        """Bits of an element of a key or a value."""
        return self.row_format.key_bits

    @property
    def group_size(self) -> int:
        """Elements that share a scale and a bias."""
        return self.row_format.group_size

    @property
    def dtype(self) -> mx.Dtype:
        """The dtype of the first keys."""
        return self.row_format.dtype

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
        """Make an archive from saved `arrays` and settings, after `length` tokens."""
        archive = cls(recall)
        bits = saved["bits"]
        archive.row_format = RowFormat(bits, bits, saved["group_size"], DTYPES[saved["dtype"]])
        archive.first, archive.length, archive._key_dim = saved["first"], length, key_dim
        if arrays:
            archive._rows = mx.concatenate(list(arrays[::2]), axis=2)
            archive._novelty = mx.concatenate(list(arrays[1::2]), axis=2)
        return archive

    def trim(self, n: int) -> None:
        """Remove the `n` newest tokens."""
        self.length -= n
        length = self.length - self.first
        if self._rows is not None:
            self._rows, self._novelty = self._rows[:, :, :length], self._novelty[:, :, :length]

    def copy(self) -> Archive:
        """A copy; later changes to either archive do not change the other."""
        return copy.copy(self)

    def rows(self, begin: int, end: int) -> tuple[mx.array, mx.array, mx.array]:
        """Keys [B, Hkv, n, Dk], values and novelty of positions begin..end-1, in float32."""
        assert self._rows is not None  # noqa: S101  the archive has tokens
        part = slice(begin - self.first, end - self.first)
        keys, values = wide(self._rows[:, :, part], end - begin, self._key_dim, self.row_format)
        return keys.astype(mx.float32), values.astype(mx.float32), self._novelty[:, :, part]

    def _keep_limit(self) -> None:
        """Drop the oldest segments while the archive is larger than its limit."""
        assert self._rows is not None  # noqa: S101  tokens were appended
        token_bytes = int(self._rows[:, :, :1].nbytes) + int(self._novelty[:, :, :1].nbytes)
        while (
            self.recall.limit
            and (self.length - self.first) * token_bytes > self.recall.limit
            and self.first + SEGMENT_TOKENS <= self.length
        ):
            self._rows = self._rows[:, :, SEGMENT_TOKENS:]
            self._novelty = self._novelty[:, :, SEGMENT_TOKENS:]
            self.first += SEGMENT_TOKENS


def _hidden_or_packed(keys: mx.array, values: mx.array, row_format: RowFormat) -> mx.array:
    """Return packed rows; recall still skips every key that contains NaN or infinity.

    If rows are quantized, such a key becomes a zero key whose biases are NaN.
    """
    if row_format.is_dense:
        return packed(keys, values, row_format)
    finite = mx.isfinite(keys).all(axis=-1, keepdims=True)
    rows = packed(mx.where(finite, keys, mx.zeros_like(keys)), values, row_format)
    words = keys.shape[3] * row_format.key_bits // 32
    groups = keys.shape[3] // row_format.group_size
    end = words + 2 * groups * row_format.dtype.size // 4
    both = mx.contiguous(rows[..., words:end]).view(row_format.dtype)
    hidden = mx.logical_not(finite) & (mx.arange(2 * groups) >= groups)
    both = mx.contiguous(mx.where(hidden, mx.array(float("nan"), both.dtype), both))
    return mx.concatenate([rows[..., :words], both.view(mx.uint32), rows[..., end:]], axis=3)
