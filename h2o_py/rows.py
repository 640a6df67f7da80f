"""The rows of a cache, how they are stored, and the ledger that describes them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import mlx.core as mx

from h2o_py.errors import H2OConfigError
from h2o_py.storages import GROUP_SIZES

BITS = (4, 8)
_OWN_DTYPE = 16


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """Bits of keys and values; 16 keeps their dtype.

    Quantized rows hold MLX's affine triples: words, scales and biases of the key, then
    of the value, as 32-bit words. With `recent_bits` the newest `recent_budget` tokens
    are in a ring at that precision, and all others in a pool at `key_bits` and `value_bits`.

    Args:
        key_bits: 4, 8 or 16.
        value_bits: 4, 8 or 16; 16 only if `key_bits` is 16 too.
        group_size: 32, 64 or 128 elements share a scale and a bias.
        dtype: the dtype of keys, values, scales and biases.
        recent_bits: 4, 8 or 16 for a ring of the newest tokens, `None` for no ring; with a ring
            `key_bits` and `value_bits` are equal.
        rotated: whether keys and values are rotated before they are quantized, which makes the
            error of 4 bits smaller. The cache takes and returns them unrotated.

    Raises:
        H2OConfigError: a value is not allowed.

    """

    key_bits: int = 16
    value_bits: int = 16
    group_size: int = 64
    dtype: mx.Dtype = mx.float32
    recent_bits: int | None = None
    rotated: bool = False

    def __post_init__(self) -> None:
        check_choice("key_bits", self.key_bits, (*BITS, _OWN_DTYPE))
        check_choice("value_bits", self.value_bits, (*BITS, _OWN_DTYPE))
        check_choice("group_size", self.group_size, tuple(sorted(GROUP_SIZES)))
        both: dict[str, Any] = {"key_bits": self.key_bits, "value_bits": self.value_bits}
        if (self.key_bits == _OWN_DTYPE) != (self.value_bits == _OWN_DTYPE):
            raise H2OConfigError("mixed_dense_and_quantized", **both)
        if self.recent_bits is not None:
            check_choice("recent_bits", self.recent_bits, (*BITS, _OWN_DTYPE))
            if self.key_bits != self.value_bits:
                raise H2OConfigError("ring_with_unequal_bits", **both)

    @property
    def is_dense(self) -> bool:
        """Whether rows of the pool are not quantized; without a ring, these are all rows."""
        return self.key_bits == _OWN_DTYPE

    @property
    def has_ring(self) -> bool:
        """Whether the newest tokens have their own precision."""
        return self.recent_bits is not None

    @property
    def pool(self) -> RowFormat:
        """The format of the pool's rows."""
        return dataclasses.replace(self, recent_bits=None)

    @property
    def ring(self) -> RowFormat:
        """The format of the ring's rows."""
        assert self.recent_bits is not None  # noqa: S101  the format has a ring
        bits = self.recent_bits
        return dataclasses.replace(self.pool, key_bits=bits, value_bits=bits)


def check_choice(name: str, value: object, choices: tuple[int, ...]) -> None:
    """Raise H2OConfigError unless `value` is one of `choices`."""
    if value not in choices:
        raise H2OConfigError.unknown_choice(name, value, choices)


DENSE = RowFormat()


class Ledger(NamedTuple):
    """The data with which eviction chooses rows.

    B is the batch, Hkv the number of KV heads, C `max_size`.
    """

    scores: mx.array
    """float32 [B, Hkv, C]; -1 for rows that no query has observed yet."""
    positions: mx.array
    """int32 [B, Hkv, C]; index of the row's token in the sequence, -1 for unused rows."""
    victim: mx.array
    """int32 [B, Hkv]; the row that the next token overwrites; -1 before C rows are in use."""


class Rows(NamedTuple):
    """The buffers with the rows of a cache."""

    pool: mx.array
    """[B, Hkv, capacity, row]: all rows; with a ring, all but the newest."""
    ring: mx.array | None = None
    """[B, Hkv, capacity, row]: slot p % recent_budget holds position p; None without a ring."""

    @property
    def buffers(self) -> list[mx.array]:
        """The pool and, if there is one, the ring."""
        return [self.pool] if self.ring is None else [self.pool, self.ring]


class Attended(NamedTuple):
    """The result of attention over a cache."""

    out: mx.array | None
    """[B, Hq, L, Dv] in the dtype of the queries; None without queries."""
    rows: Rows
    """The rows; new buffers if a chunk overflowed the cache or was divided into ring and
    pool."""
    ledger: Ledger
