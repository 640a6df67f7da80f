"""Formulas, with their sources, for the bytes of rows, ledgers, archives and states.

Every function takes and returns whole bytes, rows or tokens. Element sizes are 2 bytes for
bfloat16 and float16 and 4 for float32; one sequence is counted (B = 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.errors import UserError
from h2o_pack.memory.storages import DENSE_BITS, STORAGES, Storage, storage_of
from h2o_pack.model import Layer, ModelConfig
from h2o_py.config import H2OConfig
from h2o_py.policy_fields import (
    ARCHIVE_GROUP,
    SEGMENT_TOKENS,
    SKETCH_BITS,
    SKETCH_GROUP,
)
from h2o_py.storages import GROUP_SIZES

FLOAT32 = 4
STEP = 256  # rows by which caches grow: cexport/h2o/config.cpp, mlx_lm KVCache.step


def vector_bytes(dim: int, bits: int, group_size: int, element: int) -> int:
    """Bytes of one stored key or value of one head.

    With 16 bits the vector is not quantized. Otherwise it has `bits` bits per element, and for
    each group a scale and a bias in the dtype of the keys (mx.quantize;
    cexport/h2o/row_layout.cpp).
    """
    if bits == DENSE_BITS:
        return dim * element
    return dim * bits // 8 + 2 * (dim // group_size) * element


def row_bytes(layer: Layer, bits: tuple[int, int], group_size: int, element: int) -> int:
    """Bytes of a token's key and value in all KV heads; bits: bits of a key and of a value."""
    key = vector_bytes(layer.key_dim, bits[0], group_size, element)
    value = vector_bytes(layer.value_dim, bits[1], group_size, element)
    return layer.kv_heads * (key + value)


def grown(rows: int, most: int | None = None) -> int:
    """Return the rows that a buffer for `rows` rows has: a multiple of 256, at most `most`.

    most: the bound of an H2O cache (grown_capacity in cexport/h2o/config.cpp), or the window of
    mlx_lm's RotatingKVCache while it generates; None for mlx_lm's KVCache (and Swift's
    KVCacheSimple), which grows with the text.
    """
    steps = -(-rows // STEP) * STEP
    return steps if most is None else min(most, steps)


def evicting_kv_bytes(
    layer: Layer, storage: Storage, cache: H2OConfig, context: int, element: int
) -> int:
    """Bytes of an H2O cache's rows after `context` tokens; it may also keep every token.

    A mixed cache has a ring of recent_budget rows in the precision of recent tokens, and a pool
    of the other rows in the precision of heavy hitters; each grows by itself
    (cexport/h2o/cache_step.h).
    """
    heavy = row_bytes(layer, storage.heavy, storage.group_size, element)
    if storage.recent is None:
        return grown(context, cache.max_size) * heavy
    ring = cache.recent_budget
    recent = row_bytes(layer, storage.recent, storage.group_size, element)
    pooled = grown(max(1, context - ring), cache.max_size - ring)
    return pooled * heavy + grown(context, ring) * recent


def plain_kv_bytes(layer: Layer, rows: int, element: int) -> int:
    """Bytes of keys and values of a cache that does not quantize them."""
    return rows * row_bytes(layer, (DENSE_BITS, DENSE_BITS), 1, element)


def ledger_bytes(layer: Layer, cache: H2OConfig) -> int:
    """Bytes of an H2O cache's ledger, which is allocated for all rows from the beginning.

    A cache that keeps every token has none. Each KV head has for each row a score (float32) and
    a position (int32), and the next victim (int32). Source: h2o_py/rows.py.
    """
    if not cache.evicts:
        return 0
    return layer.kv_heads * FLOAT32 * (2 * cache.max_size + 1)


def paged(size: int, page: int) -> int:
    """Bytes that the allocator takes for a buffer: whole pages if it is larger than a page.

    Source: MetalAllocator::malloc in MLX 0.31.1, mlx/backend/metal/allocator.cpp.
    """
    return -(-size // page) * page if size > page else size


@dataclass(frozen=True)
class LayerArchive:
    """The archive of one layer (cexport/h2o/archive.cpp).

    bits: bits of archived keys and values. element: bytes of an element of keys and values that
    are not quantized. limit: the most bytes of the archive; 0 for no limit.
    """

    layer: Layer
    bits: int
    element: int
    limit: int = 0

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's key and value, packed like a cache's row."""
        return row_bytes(self.layer, (self.bits, self.bits), ARCHIVE_GROUP, self.element)

    @property
    def sketch_token_bytes(self) -> int:
        """Bytes of the sketch of one token's key; in 16 bits if no group divides the key."""
        dim = self.layer.key_dim
        group = SKETCH_GROUP if dim % SKETCH_GROUP == 0 else min(GROUP_SIZES)
        bits = DENSE_BITS if dim % group else SKETCH_BITS
        return self.layer.kv_heads * vector_bytes(dim, bits, group, self.element)

    @property
    def segment_bytes(self) -> int:
        """Bytes of a segment."""
        return SEGMENT_TOKENS * self.token_bytes

    def tokens(self, context: int) -> int:
        """Return how many of `context` tokens the archive keeps.

        At the limit it drops whole segments, the oldest first.
        """
        if not self.limit or context * self.token_bytes <= self.limit:
            return context
        newest = context % SEGMENT_TOKENS
        segments = max(0, self.limit - newest * self.token_bytes) // self.segment_bytes
        return newest + segments * SEGMENT_TOKENS

    def packed(self, context: int) -> int:
        """Bytes of the whole segments, which an archive in files keeps in its files."""
        return self.tokens(context) // SEGMENT_TOKENS * self.segment_bytes

    @property
    def newest(self) -> int:
        """The most bytes of the newest tokens, which are not packed yet."""
        return plain_kv_bytes(self.layer, SEGMENT_TOKENS, self.element)

    def sketch(self, context: int) -> int:
        """Bytes of the sketch of all archived keys, which is always in memory."""
        return grown(self.tokens(context)) * self.sketch_token_bytes


def token_bytes(config: ModelConfig) -> dict[str, int]:
    """Return the bytes of one token's keys and values in all evicting layers, by storage.

    Ledgers are not included. Storages that the head dimensions do not allow are left out, and
    so are mixed storages, which store recent tokens differently.
    """
    by_storage = {}
    for name in (storage.name for storage in STORAGES.values() if storage.recent is None):
        try:
            storage = storage_of(name, config)
        except UserError:
            continue
        by_storage[name] = sum(
            row_bytes(layer, storage.heavy, storage.group_size, config.element_bytes)
            for layer in config.layers
            if layer.kind == "full"
        )
    return by_storage


def fixed_bytes(config: ModelConfig) -> dict[str, int]:
    """Return the bytes of caches that do not grow: full windows, and recurrent states."""
    rows = sum(
        layer.window * layer.row_elements * config.element_bytes for layer in config.layers
    )
    return {"windows": rows, "states": sum(layer.state_bytes for layer in config.layers)}
