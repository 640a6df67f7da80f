"""The bytes of everything that is kept or passed on, each formula with its source.

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

    16 bits: as it comes. Else MLX's affine triple: `bits` an element, and for every group
    a scale and a bias in the dtype of the keys (mx.quantize; cexport/h2o/row_layout.cpp).
    """
    if bits == DENSE_BITS:
        return dim * element
    return dim * bits // 8 + 2 * (dim // group_size) * element


def row_bytes(layer: Layer, bits: tuple[int, int], group_size: int, element: int) -> int:
    """Bytes of a token's key and value in all heads; bits of keys and of values."""
    key = vector_bytes(layer.key_dim, bits[0], group_size, element)
    value = vector_bytes(layer.value_dim, bits[1], group_size, element)
    return layer.kv_heads * (key + value)


def grown(rows: int) -> int:
    """Rows allocated for `tokens` tokens, in steps of 256."""
    return -(-rows // STEP) * STEP


def evicting_rows(max_size: int, context: int) -> int:
    """Rows of an H2O cache after `context` tokens: grown in steps, never past C.

    Source: grown_capacity in cexport/h2o/config.cpp.
    """
    return min(max_size, grown(context))


def unbounded_rows(context: int) -> int:
    """Rows of mlx_lm's KVCache (and Swift's KVCacheSimple), which grows with the text."""
    return grown(context)


def sliding_rows(window: int, context: int) -> int:
    """Rows of mlx_lm's RotatingKVCache once tokens are generated: at most its window."""
    return min(window, grown(context))


def evicting_kv_bytes(
    layer: Layer,
    storage: Storage,
    sizes: tuple[int, int],
    context: int,
    element: int,
) -> int:
    """Bytes of an H2O cache's rows after `context` tokens.

    sizes: max_size and recent_budget. A mixed cache has a ring of recent_budget rows at
    the recent precision and a pool of the others at the heavy one, each grown on its own
    (design of cexport/h2o/cache_step.h).
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
    """Bytes of keys and values of a cache that stores them as they come."""
    return rows * row_bytes(layer, (DENSE_BITS, DENSE_BITS), 1, element)


def ledger_bytes(layer: Layer, cache: H2OConfig) -> int:
    """Bytes of what an H2O cache knows of its rows, allocated at full size at once.

    A row and head: score (float32), position (int32), novelty (float32), with recall whether
    it is held (bool). A head: the sum of its keys (float32 [Dk]) and the next victim (int32).
    Source: h2o_py/ledger.py.
    """
    row = 3 * FLOAT32 + (cache.recall_rows > 0)
    return layer.kv_heads * (row * cache.max_size + FLOAT32 * layer.key_dim + FLOAT32)


def paged(size: int, page: int) -> int:
    """What the allocator takes for a buffer: whole pages if it is larger than one.

    Source: MetalAllocator::malloc in MLX 0.31.1, mlx/backend/metal/allocator.cpp.
    """
    return -(-size // page) * page if size > page else size


def tokens_per_second(bandwidth: float, bytes_per_token: float, efficiency: float) -> float:
    """Generation speed when memory is what limits it: tokens per second.

    bandwidth: bytes per second. bytes_per_token: of weights and of keys and values that one
    step reads. efficiency: the part of the bandwidth that such a step reaches; it is
    calibrated by published speeds (facts/speed.toml).
    """
    return efficiency * bandwidth / bytes_per_token


@dataclass(frozen=True)
class LayerArchive:
    """The archive of one layer.

    bits: of archived keys and values. element: bytes of an element of keys and values as they
    come. limit: bytes that it may take; 0 is no limit.
    """

    layer: Layer
    bits: int
    element: int
    limit: int = 0

    @property
    def token_bytes(self) -> int:
        """Bytes of one token: key and value as an H2O cache packs them, novelty in float32."""
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
        """Tokens that it keeps of a conversation: whole oldest segments go at the limit."""
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
        """Bytes after so many tokens."""
        return self.tokens(context) * self.token_bytes + self.waiting(context)

    def in_flash(self, context: int) -> int:
        """Bytes of whole segments, which an archive in files keeps there."""
        return self.tokens(context) // SEGMENT_TOKENS * self.segment_bytes

    def waiting(self, context: int) -> int:
        """Bytes of the newest tokens before they are packed, at most."""
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
    """Return the bytes of keys and values of one token, all evicting layers together.

    Ledgers are not counted. A storage that the head dims do not allow is left out, and so
    are those whose recent tokens are stored in another way than the rest.
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
    """Return the bytes of what does not grow: full windows, and recurrent states."""
    rows = sum(
        layer.window * layer.row_elements * config.element_bytes for layer in config.layers
    )
    return {"windows": rows, "states": sum(layer.state_bytes for layer in config.layers)}
