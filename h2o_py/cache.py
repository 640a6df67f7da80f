"""The H2O cache of one layer, with the contract that mlx_lm expects of a KV cache."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask

from h2o_py.cache_recall import Deferred
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigError, H2OStateError
from h2o_py.ledger import Ledger
from h2o_py.missing_scores import warn_once
from h2o_py.recalling_cache import RecallingCache

_lenders: weakref.WeakValueDictionary[int, H2OKVCache] = weakref.WeakValueDictionary()
"""By the id of the keys, the caches whose `update_and_fetch` returned them last."""


def read_by_another_layer(keys: mx.array) -> None:
    """Note that attention without a cache reads these keys, if a cache returned them.

    Nothing orders that attention before the cache's next write, which therefore copies.
    """
    lender = _lenders.get(id(keys))
    if lender is not None and lender.returned(keys):
        lender.share()


class H2OKVCache(RecallingCache):
    """Keys and values of one layer: sinks, heavy hitters and recent tokens.

    A step is two calls: `update_and_fetch` writes the new tokens and `attend` computes
    their attention, which also decides what goes next. Where `attend` is not called the
    rows that `update_and_fetch` returns give the same attention, but nothing is observed:
    novelty and recency alone then decide what stays.

    With `recall` in the configuration the last tokens of a chunk, or one token of several,
    first bring back what they ask for, as soon as something was evicted. These are written
    by `attend`.

    Args:
        config: the policy, or just its `max_size`.
        backend: what computes: `h2o_py.fast` (the default) or `h2o_py.reference`.

    """

    FORMAT = "h2o.dense.1"
    expects_scores = True
    """Whether missing scores are a mistake; False for models known not to give any."""

    def __init__(self, config: H2OConfig | int, backend: ModuleType | None = None) -> None:
        self.config = H2OConfig(config) if isinstance(config, int) else config
        if backend is not None:
            self.backend = backend
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        self._fetched: tuple[weakref.ref[mx.array], weakref.ref[mx.array]] | None = None
        self._fetched_id = 0
        self._shared = False

    @property
    def max_size(self) -> int:
        """C, the rows that a KV head may keep."""
        return self.config.max_size

    @property
    def ledger(self) -> Ledger | None:
        """Scores, positions, novelty, key sum and victim; None while empty."""
        return self._ledger

    @property
    def scores(self) -> mx.array | None:
        """float32 [B, Hkv, C], -1 where not yet observed; None while empty."""
        return None if self._ledger is None else self._ledger.scores

    @property
    def positions(self) -> mx.array | None:
        """int32 [B, Hkv, C], -1 where the row is empty; None while empty."""
        return None if self._ledger is None else self._ledger.positions

    @property
    def keys(self) -> mx.array | None:
        """The keys in use [B, Hkv, N, Dk]; None while empty."""
        return None if self._rows is None else self._views()[0]

    @property
    def values(self) -> mx.array | None:
        """The values in use [B, Hkv, N, Dv]; None while empty."""
        return None if self._rows is None else self._views()[1]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write new tokens and return all rows in use.

        Args:
            keys: [B, Hkv, L, Dk], after RoPE at positions `offset`, `offset + 1`, ...
            values: [B, Hkv, L, Dv].

        Returns:
            Keys [B, Hkv, N, Dk] and values [B, Hkv, N, Dv], the new ones included. They
            stay as they are: if they are still held at the next write, it copies.

        """
        if self._pending is not None:
            if self.expects_scores:
                warn_once()
            self._shared = True
            self.settle()
        self._shared = self._shared or self._fetched_is_in_use()
        if self._ledger is None:
            self._start(keys, values)
        self._fetched = None
        if _lenders.get(self._fetched_id) is self:
            del _lenders[self._fetched_id]
        asking = self._recall and self._recall.asking(keys.shape[2], self.offset)
        if asking:
            fetched_keys, fetched_values = self._defer(Deferred(keys, values, asking))
        else:
            self._write(keys, values)
            fetched_keys, fetched_values = self._views(share=False)
        self._fetched = weakref.ref(fetched_keys), weakref.ref(fetched_values)
        self._fetched_id = id(fetched_keys)
        _lenders[self._fetched_id] = self
        return fetched_keys, fetched_values

    def awaits_attention(self, keys: mx.array, values: mx.array) -> bool:
        """Whether these are the arrays of the last write, and `attend` was not called since."""
        if self._pending is None or self._fetched is None:
            return False
        return keys is self._fetched[0]() and values is self._fetched[1]()

    def returned(self, keys: mx.array) -> bool:
        """Whether the last write returned these keys."""
        return self._fetched is not None and keys is self._fetched[0]()

    def share(self) -> None:
        """Make the next write copy the rows, which something else still reads."""
        self._shared = True

    def attend(
        self,
        queries: mx.array,
        *,
        scale: float,
        mask: mx.array | str | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """Attention of the tokens just written over the rows in use.

        Args:
            queries: [B, Hq, L, Dk], the L tokens of the last `update_and_fetch`.
            scale: factor of q.k.
            mask: None, "causal" or an array that broadcasts to [B, Hq, L, N].
            sinks: [Hq], attention sinks of the model.

        Returns:
            [B, Hq, L, Dv] in the dtype of `queries`.

        Raises:
            ValueError: no tokens were written since the last call.

        """
        if self._deferred is not None:
            return self._attend_in_parts(queries, mask, scale=scale, sinks=sinks)
        out = self._attend(queries, scale=scale, mask=mask, sinks=sinks)
        assert out is not None  # noqa: S101  there are queries
        return out

    def settle(self) -> None:
        """Add the written tokens to the ledger without scores, and evict down to `max_size`."""
        self._write_deferred()
        if self._pending is not None:
            if self._recall is not None:
                self._end_recall("recall_not_asked")
            self._attend(None)

    def _start(self, keys: mx.array, values: mx.array) -> None:
        """Make the ledger, and the archive if there is recall."""
        self._begin(keys, values)
        batch, heads, _, key_dim = keys.shape
        self._ledger = self._backend().make_ledger(batch, heads, key_dim, self.config)
        self._start_recall((key_dim, values.shape[3]))

    def _write(self, keys: mx.array, values: mx.array) -> None:
        """Archive the tokens and put them into the rows."""
        assert self._ledger is not None  # noqa: S101  the cache has started
        tokens = keys.shape[2]
        self._archive(keys, values)
        self._rows = self._backend().cache_write(
            self._rows,
            keys,
            values,
            self._ledger.victim,
            self.offset,
            self.config,
            copy=self._shared,
            row_format=self.row_format,
        )
        self._shared = False
        self._advance(tokens)

    def _attend(self, queries: mx.array | None, **options: Any) -> mx.array | None:
        if self._pending is None or self._ledger is None:
            raise H2OStateError("attend_before_write")
        tokens = self.offset - self._pending.offset
        attended = self._backend().cache_attend(
            queries,
            self._rows,
            self._ledger,
            tokens=tokens,
            offset=self._pending.offset,
            config=self.config,
            row_format=self.row_format,
            **options,
        )
        self._rows, self._ledger = attended.rows, attended.ledger
        if self.length > self.max_size:
            # A chunk was evicted from: these rows are new, and the larger buffer goes.
            self._shared = False
            self._fetched = None
        elif self.row_format.has_ring and tokens > 1:
            self._fetched = None  # sorted into new buffers; the larger ones go
        self.length = min(self.length, self.max_size)
        self._pending = None
        out: mx.array | None = attended.out
        return out

    def make_mask(
        self,
        N: int,  # noqa: N803  mlx_lm's name
        return_array: bool = False,  # noqa: FBT001, FBT002  mlx_lm's signature
        window_size: int | None = None,
    ) -> mx.array | str | None:
        """The mask of the next N tokens over the rows in use.

        Rows stand in the order of writing until the first eviction and after it each
        head has its own, all older than the new tokens: causality over rows is right for
        every layer and head.

        Raises:
            ValueError: a sliding window is wanted but rows were evicted already.

        """
        rows = min(self.length, self.max_size)
        if window_size is not None and rows + N > window_size:
            if self.offset > rows:
                raise H2OStateError("sliding_window", window_size=window_size)
            return create_causal_mask(N, rows, window_size=window_size)  # type: ignore[no-any-return]
        if N == 1:
            return None
        if return_array:
            return create_causal_mask(N, rows)  # type: ignore[no-any-return]
        return "causal"

    def is_trimmable(self) -> bool:
        """Whether the newest tokens can be removed: until the first eviction.

        Never with a ring: what moved to the pool does not come back. Nor once a limit made
        the archive drop its oldest tokens.
        """
        whole = self._recall is None or self._recall.archive.first == 0
        return whole and not self.row_format.has_ring and self.offset <= self.max_size

    def trim(self, n: int) -> int:
        """Remove the `n` newest tokens; returns how many were removed, 0 after an eviction.

        What their queries added to the scores of other rows stays.
        """
        if not self.is_trimmable() or self._ledger is None or self._rows is None:
            return 0
        self.settle()
        n = max(0, min(n, self.length))
        if n == 0:
            return 0
        self.offset -= n
        self.length -= n
        self._ledger = self._backend().trim_ledger(
            self._rows, self._ledger, self.length, self.config, self.row_format
        )
        if self._recall is not None:
            self._recall.archive.trim(n)
        return n

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Any:
        """Refused: mlx_lm calls this when `kv_bits` is given, to replace the cache.

        Raises:
            ValueError: always.

        """
        raise H2OConfigError("quantized_later", bits=bits, group_size=group_size)

    def size(self) -> int:
        """Tokens whose keys and values are kept."""
        return min(self.length, self.max_size)

    def empty(self) -> bool:
        """Whether nothing was written yet."""
        return self._rows is None

    @property
    def nbytes(self) -> int:
        """Bytes of all state arrays."""
        if self._rows is None or self._ledger is None:
            return 0
        archived = 0 if self._recall is None else int(self._recall.archive.nbytes)
        return archived + sum(int(a.nbytes) for a in (*self._buffers, *self._ledger.arrays))

    def __deepcopy__(self, memo: dict[int, Any]) -> H2OKVCache:
        return self.copy()

    def __copy__(self) -> H2OKVCache:
        return self.copy()

    def copy(self) -> H2OKVCache:
        """An independent cache in the same state; the buffer is copied at the next write."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._fetched, twin._fetched_id = None, 0  # noqa: SLF001
        twin._recall = self._recall and self._recall.copy()  # noqa: SLF001
        self._shared = twin._shared = True  # noqa: SLF001
        return twin

    def _begin(self, keys: mx.array, values: mx.array) -> None:
        """Set what depends on the first keys [B, Hkv, L, Dk] and values [B, Hkv, L, Dv]."""

    def _fetched_is_in_use(self) -> bool:
        """Whether a caller still holds the arrays of the last `update_and_fetch`."""
        return any(fetched() is not None for fetched in self._fetched or ())
