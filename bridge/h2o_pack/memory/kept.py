"""Formulas, with their sources, for the bytes of rows, ledgers, archives and states.

Every function takes and returns whole bytes, rows or tokens. Element sizes are 2 bytes for
bfloat16 and float16 and 4 for float32; one sequence is counted (B = 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from h2o_pack.errors import UserError
from h2o_pack.memory.storages import DENSE_BITS, STORAGES, Storage, storage_of
from h2o_pack.model import Layer, ModelConfig
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.policy_fields import ARCHIVE_GROUP, PACKED_TOKENS, SEGMENT_TOKENS

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


def grown(rows: int) -> int:
    """Return the rows that a buffer for `rows` rows has: a multiple of 256."""
    return -(-rows // STEP) * STEP


def evicting_rows(max_size: int, context: int) -> int:
    """Rows allocated by an H2O cache after `context` tokens: grown in steps, at most C.

    Source: grown_capacity in cexport/h2o/config.cpp.
    """
    return min(max_size, grown(context))


def unbounded_rows(context: int) -> int:
    """Rows of mlx_lm's KVCache (and Swift's KVCacheSimple), which grows with the text."""
    return grown(context)


def sliding_rows(window: int, context: int) -> int:
    """Rows of mlx_lm's RotatingKVCache while it generates: at most its window."""
    return min(window, grown(context))


def evicting_kv_bytes(
    layer: Layer,
    storage: Storage,
    sizes: tuple[int, int],
    context: int,
    element: int,
) -> int:
    """Bytes of an H2O cache's rows after `context` tokens.

    sizes: max_size and recent_budget. A mixed cache has a ring of recent_budget rows in the
    precision of recent tokens, and a pool of the other rows in the precision of heavy hitters;
    each grows by itself (cexport/h2o/cache_step.h).
    """
    max_size, recent = sizes
    group = storage.group_size
    if storage.recent is None:
        rows = evicting_rows(max_size, context)
        return rows * row_bytes(layer, storage.heavy, group, element)
    pooled = max(1, context - recent)
    return evicting_rows(max_size - recent, pooled) * row_bytes(
        layer, storage.heavy, group, element
    ) + evicting_rows(recent, context) * row_bytes(layer, storage.recent, group, element)


def plain_kv_bytes(layer: Layer, rows: int, element: int) -> int:
    """Bytes of keys and values of a cache that does not quantize them."""
    return rows * row_bytes(layer, (DENSE_BITS, DENSE_BITS), 1, element)


def ledger_bytes(layer: Layer, cache: H2OConfig) -> int:
    """Bytes of an H2O cache's ledger, which is allocated for all rows from the beginning.

    Each KV head has for each row a score (float32), a position (int32), a novelty (float32)
    and, with recall, whether the row is held (bool). Each KV head also has the sum of its keys
    (float32 [Dk]) and the next victim (int32). Source: h2o_py/rows.py.
    """
    row = 3 * FLOAT32 + (cache.recall_rows > 0)
    return layer.kv_heads * (row * cache.max_size + FLOAT32 * layer.key_dim + FLOAT32)


def paged(size: int, page: int) -> int:
    """Bytes that the allocator takes for a buffer: whole pages if it is larger than a page.

    Source: MetalAllocator::malloc in MLX 0.31.1, mlx/backend/metal/allocator.cpp.
    """
    return -(-size // page) * page if size > page else size


def tokens_per_second(bandwidth: float, bytes_per_token: float, efficiency: float) -> float:
    """Return the tokens per second of generation that is limited by memory bandwidth.

    bandwidth: bytes per second. bytes_per_token: of weights, keys and values that one step
    reads. efficiency: the share of the bandwidth that a step reaches, calibrated by published
    speeds (facts/speed.toml).
    """
    return efficiency * bandwidth / bytes_per_token


@dataclass(frozen=True)
class LayerArchive:
    """The archive of one layer.

    bits: bits of archived keys and values. element: bytes of an element of keys and values that
    are not quantized. limit: the most bytes of the archive; 0 for no limit.
    """

    layer: Layer
    bits: int
    element: int
    limit: int = 0

    @property
    def token_bytes(self) -> int:
        """Bytes of one token: key and value, packed like a cache's row, and float32 novelty."""
        return self.row_bytes + self.layer.kv_heads * FLOAT32

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's key and value."""
        return row_bytes(self.layer, (self.bits, self.bits), ARCHIVE_GROUP, self.element)

    @property
    def key_bytes(self) -> int:
        """Bytes of one token's key."""
        key = vector_bytes(self.layer.key_dim, self.bits, ARCHIVE_GROUP, self.element)
        return self.layer.kv_heads * key

    def tokens(self, context: int) -> int:
        """Return how many of `context` tokens the archive keeps.

        At the limit it drops whole segments, the oldest first.
        """
        if not self.limit or context * self.token_bytes <= self.limit:
            return context
        newest = context % SEGMENT_TOKENS
        segments = max(0, self.limit - newest * self.token_bytes) // self.segment_bytes
        return newest + segments * SEGMENT_TOKENS

    @property
    def segment_bytes(self) -> int:
        """Bytes of a segment."""
        return SEGMENT_TOKENS * self.token_bytes

    def nbytes(self, context: int) -> int:
        """Bytes of the archive after `context` tokens."""
        return self.tokens(context) * self.token_bytes + self.waiting(context)

    def in_flash(self, context: int) -> int:
        """Bytes of the whole segments, which an archive in files keeps in its files."""
        return self.tokens(context) // SEGMENT_TOKENS * self.segment_bytes

    def waiting(self, context: int) -> int:
        """The most bytes of the newest tokens, which are not packed yet."""
        dense = row_bytes(self.layer, (DENSE_BITS, DENSE_BITS), 1, self.element)
        return min(PACKED_TOKENS, context) * dense


def archives(
    layers: Sequence[Layer],
    caches: Sequence[H2OConfig | None],
    element: int,
) -> list[tuple[LayerArchive, H2OConfig, H2ORecall]]:
    """Return the archive of each layer that recalls, with its cache and settings."""
    return [
        (
            LayerArchive(layer, recall.archive_bits, element, recall.limit),
            cache,
            recall,
        )
        for layer, cache in zip(layers, caches, strict=True)
        if cache is not None and (recall := cache.recall) is not None and cache.recall_rows
    ]


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
