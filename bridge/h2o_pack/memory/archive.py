"""The bytes of an archive: every token's key, value and novelty in a layer that recalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from h2o_pack.architectures.model import Layer
from h2o_pack.memory.formulas import FLOAT32, row_bytes
from h2o_pack.memory.storages import DENSE_BITS
from h2o_py.config import H2OConfig
from h2o_py.policy_fields import PACKED_TOKENS, SEGMENT_TOKENS
from h2o_py.recall import H2ORecall


@dataclass(frozen=True)
class LayerArchive:
    """The archive of one layer.

    bits: of archived keys and values. group_size: elements that share a scale and a bias
    where bits are 4 or 8. element: bytes of an element of keys and values as they come.
    limit: bytes that it may take; 0 is no limit.
    """

    layer: Layer
    bits: int
    group_size: int
    element: int
    limit: int = 0

    @property
    def token_bytes(self) -> int:
        """Bytes of one token: key and value as an H2O cache packs them, novelty in float32."""
        bits = (self.bits, self.bits)
        rows = row_bytes(self.layer, bits, self.group_size, self.element)
        return rows + self.layer.kv_heads * FLOAT32

    @property
    def key_bytes(self) -> int:
        """Bytes of one token's keys alone, which is what a recall reads of every token."""
        whole = row_bytes(self.layer, (self.bits, self.bits), self.group_size, self.element)
        return whole * self.layer.key_dim // (self.layer.key_dim + self.layer.value_dim)

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
    group_size: int,
    element: int,
) -> list[tuple[LayerArchive, H2OConfig, H2ORecall]]:
    """Return the archive of each layer that recalls, with its cache and settings."""
    return [
        (
            LayerArchive(layer, recall.archive_bits, group_size, element, recall.limit),
            cache,
            recall,
        )
        for layer, cache in zip(layers, caches, strict=True)
        if cache is not None and (recall := cache.recall) is not None and cache.recall_rows
    ]
