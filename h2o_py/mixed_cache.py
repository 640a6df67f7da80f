"""The H2O cache of two precisions: a ring of recent tokens and a pool of all others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as mlx_lm_cache

from h2o_py.cache import H2OKVCache, _Before
from h2o_py.config import H2OConfig
from h2o_py.ledger import Ledger
from h2o_py.row_format import MixedFormat

_DTYPES = {str(dtype): dtype for dtype in (mx.float32, mx.float16, mx.bfloat16)}


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
        backend: what computes: `h2o_py.fast` (the default) or `h2o_py.reference_mixed`.

    Raises:
        ValueError: bits or group size are none of these.

    """

    FORMAT = "h2o.mixed.1"

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
        self.mixed = MixedFormat(heavy_bits, recent_bits, group_size)

    def _reset(self) -> None:
        super()._reset()
        self._ring: mx.array | None = None
        self._value_dim = 0

    @property
    def heavy_bits(self) -> int:
        """Bits of an element in the pool."""
        return self.mixed.heavy_bits

    @property
    def recent_bits(self) -> int:
        """Bits of an element in the ring."""
        return self.mixed.recent_bits

    @property
    def nbytes(self) -> int:
        """Bytes of all state arrays."""
        ring = 0 if self._ring is None else int(self._ring.nbytes)
        return super().nbytes + ring

    def is_trimmable(self) -> bool:
        """False: what moved to the pool does not come back."""
        return False

    @property
    def state(self) -> list[mx.array]:
        """Pool, ring, then the ledger; empty while the cache is."""
        if self._rows is None or self._ring is None or self._ledger is None:
            return []
        self._shared = True
        return [self._rows, self._ring, *self._ledger]

    @state.setter
    def state(self, arrays: Sequence[mx.array]) -> None:
        self._reset()
        if not arrays:
            return
        if len(arrays) != 2 + len(Ledger._fields):
            raise ValueError(
                f"the state has {len(arrays)} arrays; a mixed H2O cache has pool, ring, "
                f"{', '.join(Ledger._fields)}. Was it saved by another kind of cache?"
            )
        self._rows, self._ring, self._ledger = arrays[0], arrays[1], Ledger(*arrays[2:])
        self._shared = True

    @property
    def meta_state(self) -> tuple[str, ...]:
        """As `H2OKVCache`, then the precisions and the value's head dim as JSON."""
        mixed = {**vars(self.mixed), "dtype": str(self.mixed.dtype)}
        mixed["value_dim"] = self._value_dim
        return (*super().meta_state, json.dumps(mixed, sort_keys=True))

    @meta_state.setter
    def meta_state(self, values: Sequence[str]) -> None:
        H2OKVCache.meta_state.fset(self, values)  # type: ignore[attr-defined]
        mixed = json.loads(values[5])
        self._value_dim = mixed.pop("value_dim")
        self.mixed = MixedFormat(**{**mixed, "dtype": _DTYPES[mixed["dtype"]]})

    def _begin(self, keys: mx.array, values: mx.array) -> None:
        self.mixed = dataclasses.replace(self.mixed, dtype=keys.dtype)
        self._value_dim = values.shape[3]

    def _write(self, keys: mx.array, values: mx.array, ledger: Ledger, *, copy: bool) -> None:
        rows = None if self._rows is None else (self._rows, self._ring)
        self._rows, self._ring = self._backend().mixed_cache_write(
            rows,
            keys,
            values,
            ledger.victim,
            self.offset,
            self.config,
            self.mixed,
            copy=copy,
        )

    def _compute(
        self,
        queries: mx.array | None,
        before: _Before,
        ledger: Ledger,
        options: dict[str, Any],
    ) -> mx.array | None:
        out: mx.array | None
        out, (self._rows, self._ring), self._ledger = self._backend().mixed_cache_attend(
            queries,
            (self._rows, self._ring),
            ledger,
            tokens=self.offset - before.offset,
            offset=before.offset,
            key_dim=ledger.key_sum.shape[2],
            value_dim=self._value_dim,
            config=self.config,
            mixed=self.mixed,
            **options,
        )
        if self.offset - before.offset > 1:
            self._lent = None  # a chunk leaves new buffers; the larger ones go
        return out

    def _views(self, *, share: bool = True) -> tuple[mx.array, mx.array]:
        assert self._rows is not None  # noqa: S101  asked of a cache that has rows
        assert self._ring is not None  # noqa: S101
        assert self._ledger is not None  # noqa: S101
        self._shared = self._shared or share
        recent = self.config.recent_budget
        before = self.offset if self._pending is None else self._pending.offset
        chunk = self.offset - before
        ringed = min(before, recent) + chunk if chunk > 1 else min(self.offset, recent)
        keys, values = self._backend().mixed_fetch(
            (self._rows, self._ring),
            self.length - ringed,
            ringed,
            self._ledger.key_sum.shape[2],
            self.config,
            self.mixed,
        )
        return keys, values


vars(mlx_lm_cache)[MixedH2OKVCache.__name__] = MixedH2OKVCache
