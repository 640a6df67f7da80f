"""The archive of a cache in plain MLX operations; see `h2o_py.fast.Archive`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from h2o_pack.parity.reference.policy import novelties
from h2o_pack.parity.reference.rotation import as_stored
from h2o_pack.parity.reference.rows import packed, wide
from h2o_py.config import H2OConfig
from h2o_py.policy_fields import SEGMENT_TOKENS
from h2o_py.recall import H2ORecall
from h2o_py.row_format import DENSE, DTYPES, RowFormat


class Block(NamedTuple):
    """Archived tokens in order of position."""

    rows: mx.array
    """[B, Hkv, n, R]: keys and values as `RowFormat` packs them."""
    novelty: mx.array
    """float32 [B, Hkv, n]."""

    def part(self, begin: int, end: int) -> Block:
        """The tokens from `begin` to before `end`."""
        return Block(self.rows[:, :, begin:end], self.novelty[:, :, begin:end])


class Archive:
    """Keys after RoPE, values and novelty of positions `first` to before `length`."""

    mark = None
    """Where it ends in files: it has none."""

    def __init__(self, recall: H2ORecall, group_size: int) -> None:
        self.recall = recall
        bits = recall.archive_bits
        self.row_format = RowFormat(bits, bits, group_size)
        self.length = 0
        """Tokens seen so far."""
        self.first = 0
        """The oldest position that is still here."""
        self._segments: list[Block] = []
        self._tail: list[Block] = []
        self._key_dim = 0

    def append(
        self,
        keys: mx.array,
        values: mx.array,
        key_sum: mx.array,
        config: H2OConfig,
        row_format: RowFormat = DENSE,
    ) -> None:
        """Add the next tokens, rotated if the rows of `row_format` are."""
        keys, values = as_stored(keys, row_format), as_stored(values, row_format)
        if self.length == 0:
            self._begin(keys)
        novelty, _ = novelties(keys, key_sum, self.length, config.novelty_margin)
        self.length += keys.shape[2]
        self._tail.append(Block(_hidden_or_packed(keys, values, self.row_format), novelty))
        self._cut_segments()
        self._keep_limit()

    @property
    def nbytes(self) -> int:
        """Bytes of all that is archived."""
        return sum(int(array.nbytes) for array in self.arrays)

    @property
    def arrays(self) -> list[mx.array]:
        """Rows and novelty of each segment, then of the tokens after the last one."""
        return [array for block in self._blocks() for array in block]

    @property
    def bits(self) -> int:
        """Bits of a key's or a value's element."""
        return self.row_format.key_bits

    @property
    def group_size(self) -> int:
        """Elements that share a scale and a bias."""
        return self.row_format.group_size

    @property
    def dtype(self) -> mx.Dtype:
        """Of the first keys."""
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
        """Make the archive that gave `arrays` and `saved`, with `length` tokens seen."""
        archive = cls(recall, saved["group_size"])
        bits = saved["bits"]
        archive.row_format = RowFormat(bits, bits, saved["group_size"], DTYPES[saved["dtype"]])
        archive.first, archive.length, archive._key_dim = saved["first"], length, key_dim
        pairs = zip(arrays[::2], arrays[1::2], strict=True)
        archive._tail = [Block(rows, novelty) for rows, novelty in pairs]
        archive._cut_segments()
        return archive

    def trim(self, n: int) -> None:
        """Remove the `n` newest tokens."""
        self.length -= n
        left = self.length - self.first
        whole, self._segments, self._tail = self._blocks(), [], []
        for block in whole:
            if left > 0:
                self._tail.append(block.part(0, left))
            left -= block.novelty.shape[2]
        self._cut_segments()

    def copy(self) -> Archive:
        """An archive of its own, which shares the segments."""
        twin = copy.copy(self)
        twin._segments, twin._tail = list(self._segments), list(self._tail)  # noqa: SLF001
        return twin

    def rows(self, begin: int, end: int) -> tuple[mx.array, mx.array, mx.array]:
        """Keys [B, Hkv, n, Dk] and values in float32, and novelty of these positions."""
        rows, novelty = (
            mx.concatenate(list(parts), axis=2)[:, :, begin - self.first : end - self.first]
            for parts in zip(*self._blocks(), strict=True)
        )
        keys, values = wide(rows, rows.shape[2], self._key_dim, self.row_format)
        return keys.astype(mx.float32), values.astype(mx.float32), novelty

    def _begin(self, keys: mx.array) -> None:
        bits, group_size = self.row_format.key_bits, self.row_format.group_size
        self.row_format = RowFormat(bits, bits, group_size, keys.dtype)
        self._key_dim = keys.shape[3]

    def _blocks(self) -> list[Block]:
        """The segments, and the tokens after them as one block."""
        return self._segments + ([_joined(self._tail)] if self._tail else [])

    def _cut_segments(self) -> None:
        """Make segments of the tokens after the last one as soon as there are enough."""
        count = sum(block.novelty.shape[2] for block in self._tail)
        if count < SEGMENT_TOKENS:
            return
        joined, whole = _joined(self._tail), count - count % SEGMENT_TOKENS
        self._segments += [
            joined.part(begin, begin + SEGMENT_TOKENS)
            for begin in range(0, whole, SEGMENT_TOKENS)
        ]
        self._tail = [joined.part(whole, count)] if whole < count else []

    def _keep_limit(self) -> None:
        """Drop the oldest segments while all of it takes more bytes than allowed."""
        limit = self.recall.limit
        row, novelty = (self._segments or self._tail)[0]
        token_bytes = int(row[:, :, :1].nbytes) + int(novelty[:, :, :1].nbytes)
        while (
            limit
            and (self.length - self.first) * token_bytes > limit
            and self.first + SEGMENT_TOKENS <= self.length
        ):
            del self._segments[0]
            self.first += SEGMENT_TOKENS


def _joined(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    rows, novelty = (mx.concatenate(list(parts), axis=2) for parts in zip(*blocks, strict=True))
    return Block(rows, novelty)


def _hidden_or_packed(keys: mx.array, values: mx.array, row_format: RowFormat) -> mx.array:
    """Rows, in which a key with NaN or infinity stays one that no query can ask for.

    Quantized, it is the zero key with biases that are not a number.
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
