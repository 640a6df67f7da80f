"""The archive of a cache; see cexport/h2o/archive.h."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from h2o_pack.parity.reference.rows import packed, unpacked
from h2o_py.config import H2ORecall
from h2o_py.policy_fields import ARCHIVE_GROUP, SEGMENT_TOKENS, SKETCH_BITS, SKETCH_GROUP
from h2o_py.rows import RowFormat


class Archive:
    """Keys after RoPE and values of the positions from `first` to `length` - 1.

    Whole segments are packed. The newest tokens, which are not a segment yet, stay as they are.
    """

    def __init__(self, recall: H2ORecall, key_dim: int, dtype: mx.Dtype) -> None:
        self.recall, self._key_dim = recall, key_dim
        self._row_format = RowFormat(
            recall.archive_bits, recall.archive_bits, ARCHIVE_GROUP, dtype
        )
        self._dense = RowFormat(dtype=dtype)
        self.length = 0
        """Tokens seen so far."""
        self.first = 0
        """The oldest position that is still in the archive."""
        self._segments: tuple[mx.array, ...] = ()
        """[B, Hkv, 256, R] each: keys and values as `RowFormat` packs them."""
        self._tail: mx.array | None = None
        """[B, Hkv, n, Dk + Dv] of the newest tokens."""
        self._token_bytes = 0

    def append(self, keys: mx.array, values: mx.array) -> None:
        """Add the next tokens; keys and values are rotated if the cache rotates them."""
        dense = packed(keys, values, self._dense)
        rows = dense if self._tail is None else mx.concatenate([self._tail, dense], axis=2)
        self.length += keys.shape[2]
        while rows.shape[2] >= SEGMENT_TOKENS:
            whole = unpacked(rows[:, :, :SEGMENT_TOKENS], self._key_dim, self._dense)
            cut_keys, cut_values = (part.astype(self.dtype) for part in whole)
            segment = _hidden_or_packed(cut_keys, cut_values, self._row_format)
            self._segments = (*self._segments, segment)
            rows = rows[:, :, SEGMENT_TOKENS:]
        self._tail = rows
        heads = int(keys.shape[0] * keys.shape[1])
        self._token_bytes = heads * _row_bytes(
            keys.shape[3] + values.shape[3], self._row_format
        )
        while self.recall.limit and self.nbytes > self.recall.limit and self._segments:
            self._segments = self._segments[1:]
            self.first += SEGMENT_TOKENS

    @property
    def arrays(self) -> list[mx.array]:
        """The segments, then the newest tokens if there are any."""
        tail = [] if self._tail is None or not self._tail.shape[2] else [self._tail]
        return [*self._segments, *tail]

    @property
    def nbytes(self) -> int:
        """Bytes of all archived tokens, as if all were packed."""
        return (self.length - self.first) * self._token_bytes

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
        whole = (length - first) // SEGMENT_TOKENS
        self._segments = tuple(arrays[:whole])
        self._tail = arrays[whole] if len(arrays) > whole else None

    def trim(self, n: int) -> None:
        """Remove the `n` newest tokens. A segment that is cut becomes the newest tokens."""
        self.length -= n
        whole, rest = divmod(self.length - self.first, SEGMENT_TOKENS)
        if whole < len(self._segments):
            cut = unpacked(self._segments[whole], self._key_dim, self._row_format)
            keys, values = (part.astype(self.dtype) for part in cut)
            self._tail = packed(keys, values, self._dense)
            self._segments = self._segments[:whole]
        if self._tail is not None:
            self._tail = self._tail[:, :, :rest]

    def rows(self, begin: int, end: int) -> tuple[mx.array, mx.array]:
        """Keys [B, Hkv, n, Dk] and values of positions begin..end-1, in float32."""
        parts = [unpacked(a, self._key_dim, self._row_format) for a in self._segments]
        if self._tail is not None:
            parts.append(unpacked(self._tail, self._key_dim, self._dense))
        asked = slice(begin - self.first, end - self.first)
        keys = mx.concatenate([keys for keys, _ in parts], axis=2)
        values = mx.concatenate([values for _, values in parts], axis=2)
        return keys[:, :, asked], values[:, :, asked]

    def sketched(self, keys: mx.array) -> mx.array:
        """Keys that were read from the archive, as the sketch has them, in float32."""
        group = SKETCH_GROUP if self._key_dim % SKETCH_GROUP == 0 else 32
        if self._key_dim % group:
            return keys
        triple = mx.quantize(keys.astype(self.dtype), group, SKETCH_BITS)
        words, scales, biases = triple
        wide = (scales.astype(mx.float32), biases.astype(mx.float32))
        return mx.dequantize(words, *wide, group, SKETCH_BITS)


def _row_bytes(elements: int, row_format: RowFormat) -> int:
    if row_format.is_dense:
        return elements * row_format.dtype.size
    groups = elements // row_format.group_size
    return elements * row_format.key_bits // 8 + 2 * groups * row_format.dtype.size


def _hidden_or_packed(keys: mx.array, values: mx.array, row_format: RowFormat) -> mx.array:
    """Return packed rows; no query sees a key that contains NaN or infinity.

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
