"""The H2O cache of one layer, with the methods that mlx_lm expects of a KV cache.

The classes here wrap `h2o::LayerCache`, which holds the state and the rules. There are three,
one for each way to store rows.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar

import mlx.core as mx
from mlx_lm.models import cache as mlx_lm_cache
from mlx_lm.models.base import create_causal_mask

from h2o_py.config import H2OConfig, worded
from h2o_py.errors import H2OConfigError, H2OStateError
from h2o_py.rows import BITS, DENSE, Ledger, RowFormat, Rows, check_choice

Cache = TypeVar("Cache", bound="H2OKVCache")
Fetched = tuple[Callable[[], Any], Callable[[], Any]]
"""Weak references to the keys and values that `update_and_fetch` returned."""

_lenders: weakref.WeakValueDictionary[int, H2OKVCache] = weakref.WeakValueDictionary()
"""The cache whose `update_and_fetch` last returned some keys, by the id of these keys."""


def read_by_another_layer(keys: mx.array) -> None:
    """Record that attention without a cache reads these keys, if a cache returned them.

    MLX does not order that attention before the cache's next write, so the write copies.
    """
    lender = _lenders.get(id(keys))
    if lender is not None and lender.returned(keys):
        lender.share()


class H2OKVCache(mlx_lm_cache._BaseCache):  # noqa: SLF001
    """Keys and values of one layer: sinks, heavy hitters and recent tokens.

    A step is two calls: `update_and_fetch` writes the new tokens, and `attend` computes
    their attention and chooses the next row to evict. A caller may compute attention itself
    from the rows that `update_and_fetch` returns. The output is the same, but the cache sees
    no scores, so recency alone decides which rows stay.

    With `recall` in the configuration, all tokens are kept in an archive too. After the first
    eviction, the last `recall.ask` tokens of a chunk attend to all evicted tokens. A generated
    token, and each token of a chunk of up to 8, attends to the `recall.reach` evicted tokens
    that match its query best.

    With `H2OConfig.unbounded()` it keeps every token: it grows, computes no scores and has no
    ledger.

    Args:
        config: the policy, or just its `max_size`.
        backend: the module that computes: `h2o_py.fast` (the default), or another one with a
            `layer_cache`.

    """

    FORMAT = "h2o.dense.2"
    """The first line of the header of a saved cache of this class."""

    store: str | None = None
    """Folder in which a loaded cache continues its archive in files; set it before `header`."""
    _loaded: Sequence[mx.array] = ()
    awaited: Fetched | None = None
    """The keys and values of the last write, until `attend` computes their attention."""
    _fetched: Fetched | None = None
    _fetched_id = 0
    _backend: ModuleType | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # load_prompt_cache looks up classes by name in its own module.
        vars(mlx_lm_cache)[cls.__name__] = cls

    def __init__(self, config: H2OConfig | int, backend: ModuleType | None = None) -> None:
        self._make(config, DENSE, backend)

    def _make(
        self, config: H2OConfig | int, row_format: RowFormat, backend: ModuleType | None
    ) -> None:
        self.config = H2OConfig(config) if isinstance(config, int) else config
        self._row_format = row_format
        if backend is not None:
            self._backend = backend
        self._layer = self.backend.layer_cache(self.config, row_format)

    @property
    def backend(self) -> ModuleType:
        """The module whose `layer_cache` this cache uses."""
        if self._backend is None:
            from h2o_py import fast  # noqa: PLC0415  loads the compiled module

            self._backend = fast
        return self._backend

    @backend.setter
    def backend(self, backend: ModuleType) -> None:
        expects_queries = self.expects_queries
        self._make(self.config, self._row_format, backend)  # an empty cache again
        self.expects_queries = expects_queries

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write new tokens and return all rows in use.

        Args:
            keys: [B, Hkv, L, Dk], after RoPE at positions `offset`, `offset + 1`, ...
            values: [B, Hkv, L, Dv].

        Returns:
            Keys [B, Hkv, N, Dk] and values [B, Hkv, N, Dv], the new ones included. They
            do not change: if one is still in use at the next write, the write copies the
            buffer.

        """
        is_read = any(fetched() is not None for fetched in self._fetched or ())
        if _lenders.get(self._fetched_id) is self:
            del _lenders[self._fetched_id]
        if is_read:
            self._layer.share()
        fetched_keys, fetched_values = self._layer.write(keys, values)
        self.awaited = self._fetched = weakref.ref(fetched_keys), weakref.ref(fetched_values)
        self._fetched_id = id(fetched_keys)
        _lenders[self._fetched_id] = self
        return fetched_keys, fetched_values

    def returned(self, keys: mx.array) -> bool:
        """Whether the last `update_and_fetch` returned these keys."""
        return self._fetched is not None and keys is self._fetched[0]()

    def share(self) -> None:
        """Make the next write copy the rows, because other code still reads them."""
        self._layer.share()

    def attend(
        self,
        queries: mx.array,
        *,
        scale: float,
        mask: mx.array | str | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """Compute the attention of the tokens just written over the rows in use.

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
        out: mx.array = self._layer.attend(queries, scale=scale, mask=mask, sinks=sinks)
        self.awaited = None
        return out

    def settle(self) -> None:
        """Add the written tokens to the ledger without scores, and evict down to `max_size`."""
        self._layer.settle()
        self.awaited = None

    def make_mask(
        self,
        N: int,  # noqa: N803  mlx_lm's name
        return_array: bool = False,  # noqa: FBT001, FBT002  mlx_lm's signature
        window_size: int | None = None,
    ) -> mx.array | str | None:
        """Return the mask of the next N tokens over the rows in use.

        Rows are in the order of writing until the first eviction. After it each head has its
        own order, but all rows are older than the new tokens, so a causal mask over rows is
        right for every layer and head.

        Raises:
            ValueError: a sliding window is asked for, but rows were evicted already.

        """
        rows = self.size()
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
        """Whether `trim` can remove the newest tokens: True until the first eviction.

        A cache with a ring is never trimmable, because rows that moved to the pool cannot
        return to the ring's precision. A cache whose archive dropped tokens at its limit is
        not trimmable either.
        """
        return bool(self._layer.is_trimmable)

    def trim(self, n: int) -> int:
        """Remove the `n` newest tokens; returns how many were removed, 0 after an eviction.

        The scores of the other rows still contain the attention of the removed tokens.
        """
        if self.is_trimmable():  # settles the written tokens first
            self.awaited = None
        return int(self._layer.trim(max(0, min(n, self.offset))))

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Any:
        """Refuse `kv_bits`: mlx_lm calls this to replace the cache by a quantized one.

        Raises:
            ValueError: always.

        """
        raise H2OConfigError("quantized_later", bits=bits, group_size=group_size)

    @property
    def expects_queries(self) -> bool:
        """Whether to warn if no queries arrive; False for models known to give none."""
        return bool(self._layer.expects_queries)

    @expects_queries.setter
    def expects_queries(self, expected: bool) -> None:
        self._layer.expects_queries = expected

    @property
    def max_size(self) -> int:
        """C, how many rows a KV head may keep."""
        return self.config.max_size

    @property
    def row_format(self) -> RowFormat:
        """How rows are stored; for quantized rows, `dtype` is the dtype of the first keys."""
        return dataclasses.replace(self._row_format, dtype=self._layer.dtype)

    @property
    def offset(self) -> int:
        """Number of tokens seen so far: the next token's position. Only `trim` lowers it."""
        return int(self._layer.offset)

    @property
    def length(self) -> int:
        """Rows in use; above `max_size` only between a chunk's write and its attention."""
        return int(self._layer.length)

    def size(self) -> int:
        """Number of tokens whose keys and values are kept."""
        return min(self.length, self.max_size)

    def empty(self) -> bool:
        """Whether no token has been written."""
        return bool(self._layer.is_empty)

    @property
    def nbytes(self) -> int:
        """Bytes of all state arrays."""
        return int(self._layer.nbytes)

    @property
    def rows(self) -> Rows | None:
        """The buffers of the rows; None while empty."""
        rows = self._layer.rows
        return None if rows is None else Rows(*rows)

    @property
    def ledger(self) -> Ledger | None:
        """Scores, positions and victim of the rows.

        None while the cache is empty, and if it keeps every token.
        """
        ledger = self._layer.ledger
        return None if ledger is None else Ledger(*ledger)

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self._layer.ledger = ledger

    @property
    def scores(self) -> mx.array | None:
        """float32 [B, Hkv, C], -1 for rows that no query has observed; None while empty."""
        ledger = self.ledger
        return None if ledger is None else ledger.scores

    @property
    def positions(self) -> mx.array | None:
        """int32 [B, Hkv, C], -1 for unused rows; None while the cache is empty."""
        ledger = self.ledger
        return None if ledger is None else ledger.positions

    @property
    def keys(self) -> mx.array | None:
        """The keys in use [B, Hkv, N, Dk]; None while empty."""
        return None if self.empty() else self._layer.views()[0]

    @property
    def values(self) -> mx.array | None:
        """The values in use [B, Hkv, N, Dv]; None while empty."""
        return None if self.empty() else self._layer.views()[1]

    @property
    def archive(self) -> Any:
        """The archive; None without recall.

        `length` counts all tokens, also dropped ones. `nbytes` are the bytes of those that are
        there, as segments store them.
        """
        return self._layer.archive

    @property
    def archive_reads(self) -> int:
        """Number of archived rows that were read, all heads together."""
        return int(self._layer.archive_reads)

    def __deepcopy__(self, memo: dict[int, Any]) -> H2OKVCache:
        return self.copy()

    def __copy__(self) -> H2OKVCache:
        return self.copy()

    def copy(self) -> H2OKVCache:
        """An independent cache in the same state; the buffer is copied at the next write."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.awaited, twin._fetched, twin._fetched_id = None, None, 0  # noqa: SLF001
        twin._layer = self._layer.copy()  # noqa: SLF001
        return twin

    @property
    def arrays(self) -> Sequence[mx.array]:
        """The arrays to save: keys, values and ledger, and with recall the archive.

        There are none while the cache is empty. Of the pool, and of the ring if there is one,
        keys and values of the rows in use are saved as stored, or one row of zeros if none is
        in use. A cache that keeps every token has no ledger.
        """
        arrays: list[mx.array] = self._layer.arrays()
        return arrays

    @arrays.setter
    def arrays(self, arrays: Sequence[mx.array]) -> None:
        self._loaded = list(arrays)

    @property
    def header(self) -> str:
        """The text to save with `arrays`, which the core writes and reads."""
        header: str = self._layer.header()
        return header

    @header.setter
    def header(self, header: str) -> None:
        from h2o_py._compiled import ext  # noqa: PLC0415  loads the compiled module

        arrays, self._loaded = self._loaded, ()
        self.awaited, self._fetched = None, None
        if hasattr(self, "config"):  # if reading fails, the cache stays empty
            self._make(self.config, self._row_format, None)
        text = header.encode(errors="replace").decode()  # JSON may contain half a character
        with worded({}):
            saved = ext.SavedCache(text, self.FORMAT, self.store)
        config, row_format = H2OConfig.from_dict(saved.settings), RowFormat(*saved.row_format)
        self._layer = self.backend.restored_layer_cache(saved, arrays)
        self.config, self._row_format = config, row_format

    @classmethod
    def restored(
        cls: type[Cache],
        arrays: Sequence[mx.array],
        header: str,
        store: str | None = None,
    ) -> Cache:
        """Make a cache from the `arrays` and the `header` of a saved cache of this class."""
        cache = cls.__new__(cls)
        cache.store = store
        cache.arrays = arrays
        cache.header = header
        return cache

    @property
    def state(self) -> Any:
        """The arrays that mlx_lm evaluates after each chunk of a prompt, and what it saves."""
        return [*self.arrays, self.header]

    @state.setter
    def state(self, saved: Sequence[Any]) -> None:
        self.arrays = [part for part in saved if isinstance(part, mx.array)]
        self.header = "\n".join(part for part in saved if isinstance(part, str))


vars(mlx_lm_cache)[H2OKVCache.__name__] = H2OKVCache


class QuantizedH2OKVCache(H2OKVCache):
    """`H2OKVCache` whose rows are quantized once, when they are written.

    Words, scales and biases are in the format of `mx.quantize`. Attention reads them without
    unpacking rows, and eviction moves no row. The class has no attribute `bits`, because mlx_lm
    would treat a cache with this attribute as its own quantized cache.

    Args:
        config: the policy, or just its `max_size`.
        bits: 4 or 8 for keys and values alike. Default: 8.
        group_size: 32, 64 or 128 elements share a scale and a bias; divides the head dims.
        key_bits: 4 or 8 for keys; overrides `bits`.
        value_bits: 4 or 8 for values; overrides `bits`. The storage `k8v4` has 8
            bits for keys and 4 for values.
        rotated: whether keys and values are rotated before they are quantized, which reduces
            the loss at 4 bits and takes a few small operations at every step. The storage `4`
            rotates.
        backend: the module that computes: `h2o_py.fast` (the default), or another one with a
            `layer_cache`.

    Raises:
        ValueError: bits or group size are not among these values.

    """

    FORMAT = "h2o.quantized.2"

    def __init__(
        self,
        config: H2OConfig | int,
        bits: int = 8,
        group_size: int = 64,
        *,
        key_bits: int | None = None,
        value_bits: int | None = None,
        rotated: bool = False,
        backend: ModuleType | None = None,
    ) -> None:
        key_bits = bits if key_bits is None else key_bits
        value_bits = bits if value_bits is None else value_bits
        check_choice("key_bits", key_bits, BITS)
        check_choice("value_bits", value_bits, BITS)
        self._make(
            config, RowFormat(key_bits, value_bits, group_size, rotated=rotated), backend
        )

    @property
    def key_bits(self) -> int:
        """Bits of a key's element."""
        return self._row_format.key_bits

    @property
    def value_bits(self) -> int:
        """Bits of a value's element."""
        return self._row_format.value_bits

    @property
    def group_size(self) -> int:
        """Elements that share a scale and a bias."""
        return self._row_format.group_size

    @property
    def rotated(self) -> bool:
        """Whether keys and values are rotated before they are quantized."""
        return self._row_format.rotated


class MixedH2OKVCache(H2OKVCache):
    """`H2OKVCache` that stores its newest tokens at one precision and the rest at another.

    The token at position p is stored in slot p % recent_budget of a ring, at `recent_bits`.
    After recent_budget newer tokens it moves into a pool of max_size - recent_budget rows, at
    `heavy_bits`; in a full pool it overwrites the least important row. The policy and the
    kept positions are the same as in the other caches. `trim` is not possible.

    Args:
        config: the policy, or just its `max_size`.
        heavy_bits: 4, 8 or 16 for the pool.
        recent_bits: 4, 8 or 16 for the ring.
        group_size: 32, 64 or 128 elements share a scale and a bias; divides the head dims.
        backend: the module that computes: `h2o_py.fast` (the default), or another one with a
            `layer_cache`.

    Raises:
        ValueError: bits or group size are not among these values.

    """

    FORMAT = "h2o.mixed.2"

    def __init__(
        self,
        config: H2OConfig | int,
        heavy_bits: int = 8,
        recent_bits: int = 16,
        group_size: int = 64,
        *,
        backend: ModuleType | None = None,
    ) -> None:
        check_choice("heavy_bits", heavy_bits, (4, 8, 16))
        row_format = RowFormat(heavy_bits, heavy_bits, group_size, recent_bits=recent_bits)
        self._make(config, row_format, backend)

    @property
    def heavy_bits(self) -> int:
        """Bits of an element in the pool."""
        return self._row_format.key_bits

    @property
    def recent_bits(self) -> int:
        """Bits of an element in the ring."""
        return self._row_format.ring.key_bits


class H2OCacheList(mlx_lm_cache.CacheList):
    """A `CacheList` with H2O caches, which mlx_lm must not batch or quantize."""

    @property
    def merge(self) -> Any:
        """Raise AttributeError, because mlx_lm batches every cache that has this attribute."""
        raise AttributeError("H2O caches cannot be merged into a batch.")

    @property
    def offset(self) -> int:
        """Tokens seen so far."""
        return max(int(cache.offset) for cache in self._evicting())

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Any:
        """Refuse `kv_bits`, as the H2O cache in the list does."""
        return self._evicting()[0].to_quantized(group_size, bits)

    def _evicting(self) -> list[Any]:
        return [cache for cache in self.caches if hasattr(cache, "attend")]


# mlx_lm.models.cache.load_prompt_cache finds classes by name in its own module.
vars(mlx_lm_cache)[H2OCacheList.__name__] = H2OCacheList
