"""The graph of one chunk of the prompt, or of one generated token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from h2o_pack.architectures.model import Layer, ModelConfig
from h2o_pack.memory.archive import LayerArchive, archives
from h2o_pack.memory.backends import Backend
from h2o_pack.memory.evicting import EvictingAttention, attention
from h2o_pack.memory.formulas import FLOAT32, plain_kv_bytes, sliding_rows, unbounded_rows
from h2o_pack.memory.graph import Buffer, Graph, Peak, Section
from h2o_pack.memory.kit import CPUKit, Kit
from h2o_pack.memory.storages import Storage
from h2o_py.config import H2OConfig
from h2o_py.recall import H2ORecall


@dataclass(frozen=True)
class Run:
    """A model with its caches, and how it is given text.

    caches: one per layer, None where the layer keeps the model's own. context: tokens that
    are in the caches at most. dtype_bytes: of an element of activations and caches.
    archive_in_files: whether recall's archives are files.
    """

    config: ModelConfig
    caches: tuple[H2OConfig | None, ...]
    storage: Storage
    context: int
    backend: Backend
    dtype_bytes: int
    archive_in_files: bool = False

    @cached_property
    def archives(self) -> list[tuple[LayerArchive, H2OConfig, H2ORecall]]:
        """The archives of the layers that recall."""
        group_size = self.storage.group_size
        return archives(self.config.layers, self.caches, group_size, self.dtype_bytes)

    @property
    def grows(self) -> bool:
        """Whether a layer's cache grows with the text, without a bound."""
        pairs = zip(self.config.layers, self.caches, strict=True)
        return any(layer.kind == "full" and cache is None for layer, cache in pairs)

    @cached_property
    def uniform(self) -> bool:
        """Whether all layers are alike."""
        return len(set(self.config.layers)) == len(set(self.caches)) == 1


def peak_of(run: Run, tokens: int, logits: int) -> Peak:
    """Queue `tokens` tokens through the layers, and the head for the last `logits`."""
    config, backend = run.config, run.backend
    graph = Graph(page=backend.page)
    kit_of_backend = Kit if backend.metal else CPUKit
    kit = kit_of_backend(graph, tokens, run.dtype_bytes, config.bits, config.group_size)
    hidden = kit.new([], config.hidden_size, dispatches=2)
    queued: dict[tuple[Layer, H2OConfig | None], Section] = {}
    for done, kind in enumerate(zip(config.layers, run.caches, strict=True), 1):
        if kind in queued:
            hidden = graph.repeat(queued[kind], hidden)
        else:
            start, read = graph.mark, hidden
            hidden = decoder_layer(run, kit, *kind, hidden)
            queued[kind] = Section(start, graph.mark, read, hidden)
        two_layers = 2 * graph.dispatches / done
        if run.uniform and graph.dispatches > backend.longest_window + two_layers:
            break  # the queue reaches back less far: more layers of the kind change nothing
    window = backend.window(graph)
    hidden = kit.norm(hidden, config.hidden_size)
    queue_logits(run, kit, hidden, logits)
    return graph.peak(window)


def decoder_layer(
    run: Run, kit: Kit, layer: Layer, cache: H2OConfig | None, hidden: Buffer
) -> Buffer:
    """Norm, attention or recurrence, norm, feed-forward, with two residual additions."""
    size = run.config.hidden_size
    normed = kit.norm(hidden, size)
    if layer.kv_heads:
        mixed = attention_block(run, kit, layer, cache, normed)
    else:
        mixed = recurrence(kit, size, normed)
    hidden = kit.add(hidden, mixed, size)
    return kit.add(hidden, feed_forward(run, kit, kit.norm(hidden, size)), size)


def attention_block(
    run: Run, kit: Kit, layer: Layer, cache: H2OConfig | None, x: Buffer
) -> Buffer:
    """Projections, norms of queries and keys (some families have none), cache, output."""
    heads, size = run.config.heads, run.config.hidden_size
    q = kit.linear(x, size, heads * layer.key_dim)
    k = kit.linear(x, size, layer.kv_heads * layer.key_dim, again=True)
    v = kit.linear(x, size, layer.kv_heads * layer.value_dim, again=True)
    q = kit.rope(kit.head_norm(q, heads * layer.key_dim), heads, layer.key_dim)
    k = kit.head_norm(k, layer.kv_heads * layer.key_dim)
    k = kit.rope(k, layer.kv_heads, layer.key_dim)
    if cache is not None:
        before = min(cache.max_size, max(0, run.context - kit.tokens))
        evicting = EvictingAttention(layer, cache, run.storage, heads, before, run.dtype_bytes)
        out = evicting.queue(kit, run.backend, q, k, v)
    else:
        out = own_attention(run, kit, layer, (q, k, v))
    if not run.backend.metal:
        out = kit.new([out], heads * layer.value_dim, dispatches=4)
    return kit.linear(out, heads * layer.value_dim, size)


def own_attention(
    run: Run, kit: Kit, layer: Layer, arrays: tuple[Buffer, Buffer, Buffer]
) -> Buffer:
    """The model's own cache: a window, or all of the text.

    Both are written by making new arrays: grown or put in order with the chunk behind
    (concatenate), or copied by slice_update, as the queued step before still holds them.
    """
    graph = kit.graph
    q, k, v = arrays
    if layer.kind == "sliding":
        kept = sliding_rows(layer.window, run.context)
        # A chunk of n tokens leaves window - 1 + n rows until a single one is written.
        rows = kept if kit.tokens == 1 else min(run.context, kept - 1 + kit.tokens)
        mask = graph.op([], kit.tokens * rows, dispatches=8, term="attention")
    else:
        rows = unbounded_rows(run.context)
        mask = graph.op([], 0, dispatches=0)
    written = graph.op(
        [k, v],
        plain_kv_bytes(layer, rows, run.dtype_bytes),
        dispatches=6 if kit.tokens > 1 else 2,
        term="chunk rows",
        elements=(rows + kit.tokens) * layer.row_elements,
    )
    return attention(kit, run.backend, (layer, run.config.heads), (q, written, mask), rows)


def recurrence(kit: Kit, size: int, x: Buffer) -> Buffer:
    """A gated convolution or state-space mixer: three projections in, their product, one out.

    Families differ; this is LFM2's, and less than a scan needs that makes all its states.
    """
    inner = kit.linear(x, size, 3 * size)
    convolved = kit.new([kit.new([inner], size)], size)
    return kit.linear(kit.graph.within(convolved, [inner]), size, size)


def feed_forward(run: Run, kit: Kit, x: Buffer) -> Buffer:
    """Gate, up and down; of a mixture, the experts that a token passes.

    A mixture's tokens are sorted by expert first (mlx_lm switch_layers): hidden states
    of every token and chosen expert, before and after, and their weighted sum.
    """
    size, inner = run.config.hidden_size, run.config.intermediate_size
    chosen = run.config.experts_per_token
    if chosen:
        kit.graph.op([x], kit.tokens * run.config.experts * FLOAT32, dispatches=8)
        x = kit.new([x], chosen * size, dispatches=2)
    gate = kit.linear(x, size, inner)
    inner_states = kit.gate(gate, kit.linear(x, size, inner, again=True), inner)
    if not chosen:
        return kit.linear(inner_states, inner, size)
    out = kit.new([inner_states], chosen * size)
    out = kit.new([out], chosen * size, dispatches=2)
    return kit.new([kit.graph.within(out)], size)


def queue_logits(run: Run, kit: Kit, hidden: Buffer, tokens: int) -> None:
    """The output head for so many tokens, then sampling from the last one's logits.

    Sampling subtracts their log-sum-exp and draws: three arrays of the vocabulary in
    float32 at most (mlx_lm generate_step, mlx-swift-lm's TopPSampler without top-p).
    """
    vocabulary, graph = run.config.vocabulary, kit.graph
    if not tokens:
        return
    logits = graph.op(
        [hidden],
        tokens * vocabulary * run.dtype_bytes,
        term="logits",
        elements=tokens * run.config.hidden_size
        + kit.weight_elements(vocabulary * run.config.hidden_size),
    )
    for _ in range(3):
        logits = graph.op([logits], vocabulary * FLOAT32, dispatches=2, term="logits")
