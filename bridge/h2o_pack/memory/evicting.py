"""What an H2O cache allocates for a chunk or a token, beside the rows that it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.architectures.model import Layer
from h2o_pack.memory.backends import Backend
from h2o_pack.memory.formulas import FLOAT32, ledger_bytes, row_bytes
from h2o_pack.memory.graph import Buffer
from h2o_pack.memory.kit import Kit
from h2o_pack.memory.storages import Storage
from h2o_py.config import H2OConfig

KERNEL_TOKENS = 8  # of our Metal kernels: more run as MLX operations (cexport/h2o/metal)


@dataclass(frozen=True)
class EvictingAttention:
    """Write and attention of one layer; `before` rows are in use, of `max_size`.

    element: bytes of an element of keys and values.
    """

    layer: Layer
    config: H2OConfig
    storage: Storage
    heads: int
    before: int
    element: int

    def queue(self, kit: Kit, backend: Backend, q: Buffer, k: Buffer, v: Buffer) -> Buffer:
        """Queue a write and its attention; returns the output [Hq, L, Dv]."""
        if not self.storage.rotated:
            return self.queue_plain(kit, backend, q, k, v)
        layer = self.layer
        q = rotated(kit, q, self.heads * layer.key_dim)
        k = rotated(kit, k, layer.kv_heads * layer.key_dim)
        v = rotated(kit, v, layer.kv_heads * layer.value_dim)
        out = self.queue_plain(kit, backend, q, k, v)
        return rotated(kit, out, self.heads * layer.value_dim)

    def queue_plain(
        self, kit: Kit, backend: Backend, q: Buffer, k: Buffer, v: Buffer
    ) -> Buffer:
        """Queue both as the rows are stored."""
        graph, tokens = kit.graph, kit.tokens
        old = graph.op([], 0)  # the rows before, which are counted as kept
        if tokens == 1:
            written = graph.within(old, [k, v], dispatches=2)
            graph.op([q], self.heads * self.rows(1) * FLOAT32, term="attention", dispatches=2)
            graph.op([q], ledger_bytes(self.layer, self.config), term="ledger copies")
            return kit.new([q, written], self.heads * self.layer.value_dim)
        rows = self.rows(tokens)
        larger = self.grows(tokens)
        written = graph.op([k, v], self.stored(larger), dispatches=2, term="chunk rows")
        if not backend.metal:
            out = kit.new([q, written], self.heads * self.layer.value_dim, dispatches=2)
        else:
            out = self.queue_operations(kit, backend, q, written, rows)
        graph.op([q], ledger_bytes(self.layer, self.config), term="ledger copies")
        if self.replaces(tokens):
            # The rows that stay; they are new until the old ones' last reader has run.
            kept = graph.op([written], self.stored(self.config.max_size), term="chunk rows")
            graph.deaths[kept] = graph.births[written]
        return out

    def rows(self, tokens: int) -> int:
        """Rows that the attention of so many new tokens reads."""
        if tokens == 1:
            return min(self.before + 1, self.config.max_size)
        return self.before + tokens

    def replaces(self, tokens: int) -> bool:
        """Whether a chunk leaves new buffers: it evicts, or ring and pool are sorted anew."""
        return self.rows(tokens) > self.config.max_size or self.storage.recent is not None

    def grows(self, tokens: int) -> int:
        """Rows of the larger buffer that a chunk is written to; 0 if the old one has room."""
        return self.rows(tokens) if self.before or self.replaces(tokens) else 0

    def stored(self, rows: int) -> int:
        """Bytes of so many rows: in a mixed cache a chunk goes to the ring."""
        element, group = self.element, self.storage.group_size
        heavy = row_bytes(self.layer, self.storage.heavy, group, element)
        if self.storage.recent is None:
            return rows * heavy
        recent = row_bytes(self.layer, self.storage.recent, group, element)
        pool = min(rows, self.config.max_size - self.config.recent_budget)
        return pool * heavy + (rows - pool) * recent

    def queue_operations(
        self, kit: Kit, backend: Backend, q: Buffer, written: Buffer, rows: int
    ) -> Buffer:
        """The operations of cexport/h2o/fallback.cpp; `rows` of them are in use."""
        graph, layer, tokens = kit.graph, self.layer, kit.tokens
        wide_keys = rows * layer.kv_heads * layer.key_dim * FLOAT32
        wide_values = rows * layer.kv_heads * layer.value_dim * FLOAT32
        keys = values = written
        quantized = not self.storage.is_dense
        if quantized:
            keys = graph.op([written], wide_keys, dispatches=4, term="chunk rows")
            values = graph.op([written], wide_values, dispatches=4, term="chunk rows")
        if self.storage.recent is not None:  # pool and ring are joined
            keys = graph.op([keys], wide_keys, dispatches=2, term="chunk rows")
            values = graph.op([values], wide_values, dispatches=2, term="chunk rows")
            for _ in range(2):  # each part in the other's precision, to be gathered from
                graph.op([written], self.stored(rows), dispatches=8, term="chunk rows")
        # Novelty: unit keys, their running sum, and products of both, in float32.
        fresh = tokens * layer.kv_heads * layer.key_dim * FLOAT32
        unit = keys
        for dispatches in (1, 1, 4, 2, 3, 2):
            unit = graph.op([unit], fresh, dispatches=dispatches)
        if quantized:
            keys16 = graph.op([keys], wide_keys // FLOAT32 * kit.element, term="chunk rows")
            values = graph.op([values], wide_values // FLOAT32 * kit.element, term="chunk rows")
        else:
            keys16 = keys
        out = attention(kit, backend, (layer, self.heads), (q, keys16, values), rows)
        # Scores: logits of the last queries over all rows, in float32.
        window = min(tokens, self.config.observation_window)
        queries = window * self.heads
        scaled = graph.op([q], queries * layer.key_dim * FLOAT32, dispatches=2)
        if not quantized:
            keys = graph.op([keys], wide_keys, term="chunk rows")
        matrix = queries * rows
        logits = graph.op([scaled, keys], matrix * FLOAT32, dispatches=6, term="attention")
        seen = graph.op([logits], matrix, term="attention")
        visible = graph.op([logits], matrix, term="attention")
        weights = graph.op([logits], matrix * FLOAT32, dispatches=6, term="attention")
        graph.within(weights, [seen, visible], dispatches=3)
        mean = weights
        for dispatches in (2, 6, 4, 4, 4, 3):  # a KV head's mean, counts and fading
            mean = graph.op(
                [mean],
                window * layer.kv_heads * rows * FLOAT32,
                dispatches=dispatches,
                term="attention",
            )
        graph.small(40)  # importance, two orders, ledger: a few numbers per row
        return out


def rotated(kit: Kit, vectors: Buffer, size: int) -> Buffer:
    """Rotate vectors of `size` elements per token or turn them back (cexport/h2o/rotation.cpp).

    Signs and transform are in place, in float32.
    """
    wide = kit.graph.op([vectors], size * kit.tokens * FLOAT32, dispatches=3)
    return kit.new([wide], size)


def attention(
    kit: Kit,
    backend: Backend,
    shape: tuple[Layer, int],
    arrays: tuple[Buffer, Buffer, Buffer],
    rows: int,
) -> Buffer:
    """mx.fast.scaled_dot_product_attention over `rows` rows; returns [Hq, L, Dv].

    Where no kernel is for it (Backend.fuses), the scaled queries, the matrix
    [Hq, L, rows] and a mask are made; masking and softmax take over the matrix.
    """
    layer, heads = shape
    graph, size = kit.graph, heads * layer.value_dim
    if kit.tokens <= KERNEL_TOKENS or backend.fuses(layer.key_dim, layer.value_dim):
        read = rows * layer.kv_heads * (layer.key_dim + layer.value_dim)
        size_bytes = size * kit.tokens * kit.element
        return graph.op(arrays, size_bytes, elements=read + size * kit.tokens)
    queries = kit.new([arrays[0]], heads * layer.key_dim, dispatches=3)
    matrix = graph.op(
        [queries, arrays[1]],
        heads * kit.tokens * rows * kit.element,
        dispatches=3,
        term="attention",
        elements=rows * layer.kv_heads * layer.key_dim,
    )
    mask = graph.op([], kit.tokens * rows, dispatches=6, term="attention")
    graph.within(matrix, [mask], dispatches=6)
    out = kit.new([matrix, arrays[2]], size, dispatches=3)
    return kit.new([out], size, dispatches=2)  # [L, Hq * Dv] in one piece
