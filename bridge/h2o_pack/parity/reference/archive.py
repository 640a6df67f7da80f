"""The archive of a cache; see cexport/h2o/archive.h."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from h2o_pack.parity.reference.rows import packed, unpacked
from h2o_py.config import H2ORecall
from h2o_py.policy_fields import ARCHIVE_GROUP, SEGMENT_TOKENS
from h2o_py.rows import RowFormat


class Archive:
    """Keys after RoPE, values and novelty of the positions from `first` to `length` - 1."""

    def __init__(self, recall: H2ORecall, key_dim: int, dtype: mx.Dtype) -> None:
        self.recall, self._key_dim = recall, key_dim
        self._row_format = RowFormat(
            recall.archive_bits, recall.archive_bits, ARCHIVE_GROUP, dtype
        )
        self.length = 0
        """Tokens seen so far."""
        self.first = 0
        """The oldest position that is still in the archive."""
        self._rows: mx.array | None = None
        """[B, Hkv, n, R]: keys and values as `RowFormat` packs them."""
        self._novelty = mx.zeros((1, 1, 0))
        """float32 [B, Hkv, n]."""

    def append(self, keys: mx.array, values: mx.array, novelty: mx.array) -> None:
        """Add the next tokens; keys and values are rotated if the cache rotates them."""
        rows = _hidden_or_packed(keys, values, self._row_format)
        if self._rows is None:
            self._rows, self._novelty = rows, novelty
        else:
            self._rows = mx.concatenate([self._rows, rows], axis=2)
            self._novelty = mx.concatenate([self._novelty, novelty], axis=2)
        self.length += keys.shape[2]
        token_bytes = int(self._rows[:, :, :1].nbytes) + int(self._novelty[:, :, :1].nbytes)
        while (
            self.recall.limit
            and (self.length - self.first) * token_bytes > self.recall.limit
            and self.first + SEGMENT_TOKENS <= self.length
        ):  # drop the oldest segment
            self._rows = self._rows[:, :, SEGMENT_TOKENS:]
            self._novelty = self._novelty[:, :, SEGMENT_TOKENS:]
            self.first += SEGMENT_TOKENS

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
        return self._row_format.key_bits

    @property
    def group_size(self) -> int:
        """Elements that share a scale and a bias."""
        return self._row_format.group_size

    @property
    def dtype(self) -> mx.Dtype:
        """The dtype of the first keys."""
        return self._row_format.dtype

    def restore(self, arrays: Sequence[mx.array], first: int, length: int) -> None:
        """Take over saved `arrays`, from position `first` to `length`."""
        self.first, self.length = first, length
        if arrays:
            self._rows = mx.concatenate(list(arrays[::2]), axis=2)
            self._novelty = mx.concatenate(list(arrays[1::2]), axis=2)

    def trim(self, n: int) -> None:
        """Remove the `n` newest tokens."""
        self.length -= n
        length = self.length - self.first
        if self._rows is not None:
            self._rows, self._novelty = self._rows[:, :, :length], self._novelty[:, :, :length]

    def rows(self, begin: int, end: int) -> tuple[mx.array, mx.array, mx.array]:
        """Keys [B, Hkv, n, Dk], values and novelty of positions begin..end-1, in float32."""
        assert self._rows is not None  # noqa: S101  the archive has tokens
        part = slice(begin - self.first, end - self.first)
        keys, values = unpacked(self._rows[:, :, part], self._key_dim, self._row_format)
        return keys, values, self._novelty[:, :, part]


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
