"""Bytes that a cache of so many rows takes, and the rows that so many bytes buy.

Everything that the cache allocates counts: keys and values, scores, positions, novelty,
and what a head has once (the sum of its keys, the next victim).
"""

from __future__ import annotations

from dataclasses import dataclass

from h2o_py.config import H2OConfig
from h2o_py.row_format import MixedFormat, RowFormat

_LEDGER_ROW = 12
"""Score, position and novelty, four bytes each."""
_NUMBER = 4


@dataclass(frozen=True)
class Head:
    """One KV head of one layer.

    Args:
        key_dim: elements of a key (Dk).
        value_dim: elements of a value (Dv).
        itemsize: bytes of an element.

    """

    key_dim: int
    value_dim: int
    itemsize: int

    @property
    def plain_row(self) -> int:
        """Bytes of a key and a value as they come."""
        return (self.key_dim + self.value_dim) * self.itemsize

    def row(self, row_format: RowFormat) -> int:
        """Bytes of a key and a value as `row_format` stores them."""
        if row_format.is_dense:
            return self.plain_row
        each = 2 * self.itemsize / row_format.group_size
        key = self.key_dim * (row_format.key_bits / 8 + each)
        return round(key + self.value_dim * (row_format.value_bits / 8 + each))

    def h2o_bytes(self, config: H2OConfig, stored: RowFormat | MixedFormat) -> int:
        """Bytes of this head in a full H2O cache."""
        once = _NUMBER * self.key_dim + _NUMBER
        ledger = config.max_size * _LEDGER_ROW + once
        if isinstance(stored, RowFormat):
            return config.max_size * self.row(stored) + ledger
        ring = config.recent_budget
        pool = config.max_size - ring
        return ring * self.row(stored.ring) + pool * self.row(stored.pool) + ledger
