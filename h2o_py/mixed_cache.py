"""The H2O cache of two precisions: a ring of recent tokens and a pool of all others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from types import ModuleType

import mlx.core as mx

from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.row_format import RowFormat, check_choice
from h2o_py.saved_state import read_row_format


class MixedH2OKVCache(H2OKVCache):
    """`H2OKVCache` that stores its newest tokens at one precision and the rest at another.

    The token of position p lies in ring slot p % recent_budget at `recent_bits`. When as
    many newer ones have come it moves into the pool of max_size - recent_budget rows at
    `heavy_bits`, over the least important row if the pool is full. Policy and kept
    positions are those of the other caches. Tokens cannot be taken back (`trim`).

    Args:
        config: the policy, or just its `max_size`.
        heavy_bits: 4, 8 or 16 for the pool.
        recent_bits: 4, 8 or 16 for the ring.
        group_size: 32, 64 or 128 elements share a scale and a bias; divides the head dims.
        backend: what computes: `h2o_py.fast` (the default) or `h2o_py.reference`.

    Raises:
        ValueError: bits or group size are none of these.

    """

    FORMAT = "h2o.mixed.1"
    _STRINGS = 6
    _BUFFERS = ("pool", "ring")
    _KIND = "a mixed H2O cache"

    def __init__(
        self,
        config: H2OConfig | int,
        heavy_bits: int = 8,
        recent_bits: int = 16,
        group_size: int = 64,
        *,
        backend: ModuleType | None = None,
    ) -> None:
        super().__init__(config, backend)
        check_choice("heavy_bits", heavy_bits, (4, 8, 16))
        self.row_format = RowFormat(heavy_bits, heavy_bits, group_size, recent_bits=recent_bits)

    @property
    def heavy_bits(self) -> int:
        """Bits of an element in the pool."""
        return self.row_format.key_bits

    @property
    def recent_bits(self) -> int:
        """Bits of an element in the ring."""
        return self.row_format.ring.key_bits

    def _row_format_strings(self) -> tuple[str, ...]:
        saved = {
            "heavy_bits": self.heavy_bits,
            "recent_bits": self.recent_bits,
            "group_size": self.row_format.group_size,
            "dtype": str(self.row_format.dtype),
            "value_dim": self._value_dim(),
        }
        return (json.dumps(saved, sort_keys=True),)

    def _saved_row_format(self, values: Sequence[str]) -> RowFormat:
        # The value's head dim follows from the rows, whatever the strings say.
        return read_row_format(values[5], has_ring=True)

    def _value_dim(self) -> int:
        if self._rows is None or self._ledger is None:
            return 0
        width, key_dim = self._rows.pool.shape[3], self._ledger.key_sum.shape[2]
        return self.row_format.value_dim(width, key_dim)

    def _begin(self, keys: mx.array, values: mx.array) -> None:  # noqa: ARG002
        self.row_format = dataclasses.replace(self.row_format, dtype=keys.dtype)
