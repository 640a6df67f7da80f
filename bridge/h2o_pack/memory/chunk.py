"""The largest memory of a chunk, a generated token or a recall, beside weights and caches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from h2o_pack.memory.kept import (
    FLOAT32,
    STEP,
    LayerArchive,
    archives,
    evicting_kv_bytes,
    grown,
    ledger_bytes,
    plain_kv_bytes,
    row_bytes,
    sliding_rows,
    unbounded_rows,
)
from h2o_pack.memory.queue import Backend, Buffer, CPUKit, Graph, Kit, Peak, Section
from h2o_pack.memory.storages import Storage
from h2o_pack.memory.terms import RECALL
from h2o_pack.model import Layer, ModelConfig
from h2o_py.config import H2OConfig, H2ORecall

# The most tokens that h2o-pack's Metal kernels process at once (cexport/h2o/metal); MLX
# operations process longer chunks.
KERNEL_TOKENS = 8


@dataclass(frozen=True)
class EvictingAttention:
    """The operations with which one layer writes tokens to an H2O cache and attends.

    heads: number of query heads. before: rows in use before the write. element: bytes of an
    element of keys and values.
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
        """Queue the write and the attention without rotations."""
        graph, tokens = kit.graph, kit.tokens
        old = graph.op([], 0)  # the old rows have 0 bytes: the plan counts them as caches
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
            # The kept rows are a new buffer beside the old one until its last reader has run.
            stored = graph.op([written], self.stored(self.config.max_size), term="chunk rows")
            graph.deaths[stored] = graph.births[written]
        return out

    def rows(self, tokens: int) -> int:
        """Rows that the attention of `tokens` new tokens reads."""
        if tokens == 1:
            return min(self.before + 1, self.config.max_size)
        return self.before + tokens

    def replaces(self, tokens: int) -> bool:
        """Whether a chunk makes new buffers: it evicts, or rearranges ring and pool."""
        return self.rows(tokens) > self.config.max_size or self.storage.recent is not None

    def grows(self, tokens: int) -> int:
        """Rows of the larger buffer for a chunk; 0 if the old buffer has room."""
        return self.rows(tokens) if self.before or self.replaces(tokens) else 0

    def stored(self, rows: int) -> int:
        """Bytes of `rows` rows; a mixed cache stores a chunk with the bits of its ring."""
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
        """Queue the operations of cexport/h2o/fallback.cpp with `rows` rows in use."""
        graph, layer, tokens = kit.graph, self.layer, kit.tokens
        wide_keys = rows * layer.kv_heads * layer.key_dim * FLOAT32
        wide_values = rows * layer.kv_heads * layer.value_dim * FLOAT32
        keys = values = written
        quantized = not self.storage.is_dense
        if quantized:
            keys = graph.op([written], wide_keys, dispatches=4, term="chunk rows")
            values = graph.op([written], wide_values, dispatches=4, term="chunk rows")
        if self.storage.recent is not None:  # pool and ring are concatenated
            keys = graph.op([keys], wide_keys, dispatches=2, term="chunk rows")
            values = graph.op([values], wide_values, dispatches=2, term="chunk rows")
            for _ in range(2):  # pool and ring, each converted to the other's precision
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
        masked = graph.op([logits], matrix, term="attention")
        visible = graph.op([logits], matrix, term="attention")
        weights = graph.op([logits], matrix * FLOAT32, dispatches=6, term="attention")
        graph.within(weights, [masked, visible], dispatches=3)
        mean = weights
        for dispatches in (2, 6, 4, 4, 4, 3):  # a KV head's mean, counts and decay
            mean = graph.op(
                [mean],
                window * layer.kv_heads * rows * FLOAT32,
                dispatches=dispatches,
                term="attention",
            )
        graph.small(40)  # importance, two sorts and the ledger: a few numbers per row
        return out


def rotated(kit: Kit, vectors: Buffer, size: int) -> Buffer:
    """Queue a rotation of vectors of `size` elements per token in float32 (row_layout.cpp)."""
    wide = kit.graph.op([vectors], size * kit.tokens * FLOAT32, dispatches=3)
    return kit.new([wide], size)


def attention(
    kit: Kit,
    backend: Backend,
    shape: tuple[Layer, int],
    arrays: tuple[Buffer, Buffer, Buffer],
    rows: int,
) -> Buffer:
    """Queue mx.fast.scaled_dot_product_attention over `rows` rows; return [Hq, L, Dv].

    shape: the layer and its number of query heads. arrays: queries, keys and values. If MLX has
    no kernel for the head dimensions (Backend.fuses), it makes scaled queries, the matrix of
    logits [Hq, L, rows] and a mask; masking and softmax reuse the matrix's buffer.
    """
    layer, heads = shape
    graph, size = kit.graph, heads * layer.value_dim
    if kit.tokens <= KERNEL_TOKENS or backend.fuses(layer.key_dim, layer.value_dim):
        elements = rows * layer.kv_heads * (layer.key_dim + layer.value_dim)
        size_bytes = size * kit.tokens * kit.element
        return graph.op(arrays, size_bytes, elements=elements + size * kit.tokens)
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


@dataclass(frozen=True)
class Run:
    """A model with its caches, and how it reads text.

    caches: one per layer, None if the layer keeps mlx_lm's cache. context: the most tokens in
    the caches. dtype_bytes: bytes of an element of activations and caches. archive_in_files:
    whether recall's archives are files.
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
        return archives(self.config.layers, self.caches, self.dtype_bytes)

    @property
    def grows(self) -> bool:
        """Whether some layer's cache grows with the text without a bound."""
        pairs = zip(self.config.layers, self.caches, strict=True)
        return any(layer.kind == "full" and cache is None for layer, cache in pairs)

    @cached_property
    def uniform(self) -> bool:
        """Whether all layers have the same shapes and the same kind of cache."""
        return len(set(self.config.layers)) == len(set(self.caches)) == 1


def peak_of(run: Run, tokens: int, logits: int) -> Peak:
    """Queue the operations of a step of `tokens` tokens; return its moment of most memory.

    logits: for how many of the last tokens the output head computes logits.
    """
    config, backend = run.config, run.backend
    graph = Graph(page=backend.page)
    kit_of_backend = Kit if backend.metal else CPUKit
    kit = kit_of_backend(graph, tokens, run.dtype_bytes, config.bits, config.group_size)
    hidden = kit.new([], config.hidden_size, dispatches=2)
    queued: dict[tuple[Layer, H2OConfig | None], Section] = {}
    for number, kind in enumerate(zip(config.layers, run.caches, strict=True), 1):
        if kind in queued:
            hidden = graph.repeat(queued[kind], hidden)
        else:
            start, source = graph.mark, hidden
            hidden = decoder_layer(run, kit, *kind, hidden)
            queued[kind] = Section(start, graph.mark, source, hidden)
        two_layers = 2 * graph.dispatches / number
        if run.uniform and graph.dispatches > backend.longest_window + two_layers:
            break  # the queue holds fewer layers than the graph, so more layers change nothing
    window = backend.window(graph)
    hidden = kit.norm(hidden, config.hidden_size)
    queue_logits(run, kit, hidden, logits)
    return graph.peak(window)


def decoder_layer(
    run: Run, kit: Kit, layer: Layer, cache: H2OConfig | None, hidden: Buffer
) -> Buffer:
    """Queue a layer: norm, attention or recurrence, norm, feed-forward, two residual sums."""
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
    """Queue projections, norms of queries and keys if there are any, cache, and output."""
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
    """Queue a write to mlx_lm's cache, of a window or of the whole text, and attention.

    A write makes new arrays: concatenate grows or reorders the rows and appends the chunk, and
    slice_update copies them, because the step queued before still holds the old arrays.
    """
    graph = kit.graph
    q, k, v = arrays
    if layer.kind == "sliding":
        rows_kept = sliding_rows(layer.window, run.context)
        # After a chunk of n tokens the cache has window - 1 + n rows until it writes one token.
        rows = rows_kept if kit.tokens == 1 else min(run.context, rows_kept - 1 + kit.tokens)
        mask = graph.op([], kit.tokens * rows, dispatches=8, term="attention")
    else:
        rows = unbounded_rows(run.context)
        mask = graph.op([], 0, dispatches=0)
    buffers = graph.op(
        [k, v],
        plain_kv_bytes(layer, rows, run.dtype_bytes),
        dispatches=6 if kit.tokens > 1 else 2,
        term="chunk rows",
        elements=(rows + kit.tokens) * layer.row_elements,
    )
    return attention(kit, run.backend, (layer, run.config.heads), (q, buffers, mask), rows)


def recurrence(kit: Kit, size: int, x: Buffer) -> Buffer:
    """Queue a mixer like LFM2's gated convolution: three projections, a product, an output."""
    inner = kit.linear(x, size, 3 * size)
    convolved = kit.new([kit.new([inner], size)], size)
    return kit.linear(kit.graph.within(convolved, [inner]), size, size)


def feed_forward(run: Run, kit: Kit, x: Buffer) -> Buffer:
    """Queue the gate, up and down projections; in a mixture, of a token's experts.

    A mixture first sorts its tokens by expert (mlx_lm switch_layers). Its arrays are the hidden
    states of every token and chosen expert, before and after the expert, and their weighted
    sum.
    """
    size, inner = run.config.hidden_size, run.config.intermediate_size
    experts = run.config.experts_per_token
    if experts:
        kit.graph.op([x], kit.tokens * run.config.experts * FLOAT32, dispatches=8)
        x = kit.new([x], experts * size, dispatches=2)
    gate = kit.linear(x, size, inner)
    inner_states = kit.gate(gate, kit.linear(x, size, inner, again=True), inner)
    if not experts:
        return kit.linear(inner_states, inner, size)
    out = kit.new([inner_states], experts * size)
    out = kit.new([out], experts * size, dispatches=2)
    return kit.new([kit.graph.within(out)], size)


def queue_logits(run: Run, kit: Kit, hidden: Buffer, tokens: int) -> None:
    """Queue the output head for the last `tokens` tokens, and the sampling of a token.

    Sampling subtracts the log-sum-exp of the logits and draws a token. It makes at most three
    float32 arrays [vocabulary] (mlx_lm generate_step, mlx-swift-lm's TopPSampler without
    top-p).
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


RUNGS = 4  # how many lengths to try between one length and its double
FEW = 8  # the most tokens of a chunk for which caches use other operations


def prefill_peak(run: Run, step: int, *, earlier: bool = True) -> dict[str, int]:
    """Bytes by term at the moment of most memory in any prompt of up to `context` tokens.

    step: tokens per chunk. If all caches are bounded, the moment is in the last chunk.
    Otherwise, if MLX ends its tasks by the size of their inputs, growing caches shorten the
    queue and an earlier chunk may take more memory than the last one. Then shorter contexts are
    tried too, four per doubling, so that a longer conversation never appears to take less.

    earlier: False leaves out the shorter contexts, which takes less time, but the result may be
    some percent too low.
    """
    if earlier and run.grows:
        steps = rung_above(grown(run.context) // STEP)
        longest = replace(run, context=steps * STEP)
        peak, inputs_close = last_chunk_peak(longest, min(step, run.context))
        if inputs_close:
            return max(peak, earlier_peak(longest, step), key=total)
    return last_chunk_peak(run, step)[0]


@lru_cache(maxsize=4096)
def earlier_peak(run: Run, step: int) -> dict[str, int]:
    """Bytes by term at the moment of most memory before the caches grow for the last time."""
    steps = run.context // STEP
    if steps == 1:
        return {}
    shorter = replace(run, context=rung_below(steps) * STEP)
    peak, inputs_close = last_chunk_peak(shorter, step)
    return max(peak, earlier_peak(shorter, step), key=total) if inputs_close else peak


@lru_cache(maxsize=4096)
def last_chunk_peak(run: Run, step: int) -> tuple[dict[str, int], bool]:
    """Bytes by term at the moment of most memory in the last chunk of a prompt.

    Also returns whether MLX ends the tasks of the longest chunk, which has `step` tokens, by
    the size of their inputs. If it ends them by their number of dispatches, the longest chunk
    or a chunk of up to FEW tokens, which uses other operations, takes the most memory. If it
    ends them by inputs, longer chunks shorten the queue, so a much shorter chunk may take the
    most: then shorter lengths are tried too, four per doubling.
    """
    tokens = max(1, min(step, run.context))
    peaks = [of_chunk(run, few) for few in dict.fromkeys((1, min(tokens, FEW)))]
    length = rung_above(tokens)
    longest = of_chunk(run, length)
    inputs_close = longest.window < run.backend.longest_window
    peaks.append(longest if inputs_close else of_chunk(run, tokens))
    while length > FEW + 1 and peaks[-1].window < run.backend.longest_window:
        length = rung_below(length)
        peaks.append(of_chunk(run, length))
    return max(peaks, key=lambda peak: peak.total).by_term(), inputs_close


def total(terms: dict[str, int]) -> int:
    """The sum of all terms, in bytes."""
    return sum(terms.values())


def of_chunk(run: Run, tokens: int) -> Peak:
    """The moment of most memory in the last chunk of a prompt, a chunk of `tokens` tokens."""
    return peak_of(run, tokens, tokens if run.backend.logits == "all" else 0)


def rung_above(length: int) -> int:
    """The next length to try that is at least `length`; there are four per doubling."""
    spacing = spacing_below(length)
    return -(-length // spacing) * spacing


def rung_below(length: int) -> int:
    """The next shorter length to try."""
    return max(1, length - spacing_below(length))


def spacing_below(length: int) -> int:
    """The distance from a length to the next shorter length to try."""
    return 1 << max(0, (length - 1).bit_length() - RUNGS.bit_length())


def decode_peak(run: Run) -> dict[str, int]:
    """Bytes by term at the moment of most memory while one token is generated."""
    return peak_of(run, 1, 1).by_term()


MOST_LOGITS = 32 << 20  # bytes of logits at once on a GPU (cexport/h2o/recall.h)
BLOCK = 256  # archived keys that are converted to float32 at once (cexport/h2o/recall.cpp)


def recall_peak(run: Run, step: int) -> dict[str, int]:
    """Bytes by term at the moment of most memory in a recall; {} if no layer recalls.

    A recall first evaluates its inputs, so that no arrays of other layers are queued. Memory
    then holds the chunk's hidden states, one layer's queries, keys, values and output of the
    chunk's first part, and the arrays of the recall itself.
    """
    moments = (
        {
            "activations": chunk_bytes(run, archive.layer, min(step, run.context)),
            RECALL: recall_bytes(run, archive, cache, recall),
        }
        for archive, cache, recall in run.archives
        if run.context > cache.max_size  # otherwise the cache evicts nothing
    )
    return max(moments, key=lambda moment: sum(moment.values()), default={})


def chunk_bytes(run: Run, layer: Layer, tokens: int) -> int:
    """Bytes of a chunk's arrays in one layer, before the chunk's last tokens attend."""
    heads = run.config.heads
    elements = 2 * run.config.hidden_size  # hidden states and their norm
    elements += heads * (layer.key_dim + layer.value_dim)  # queries and outputs
    elements += layer.kv_heads * (layer.key_dim + layer.value_dim)
    return tokens * elements * run.dtype_bytes


def recall_bytes(run: Run, archive: LayerArchive, cache: H2OConfig, recall: H2ORecall) -> int:
    """Bytes of the temporary arrays of one layer's recall, and of its new rows.

    The temporary arrays are float32: logits of one KV head's queries over all archived keys (on
    a GPU, of as many heads as fit into MOST_LOGITS); two weights per position, before and after
    they are spread to neighbors; and one block of keys.
    """
    layer, tokens = archive.layer, archive.tokens(run.context)
    queries = run.config.heads // layer.kv_heads * min(recall.ask, run.context)
    logits = queries * (tokens + recall.ask) * FLOAT32
    if run.backend.metal:
        logits = min(logits * layer.kv_heads, MOST_LOGITS)
    weights = 2 * tokens * FLOAT32
    block = BLOCK * layer.key_dim * FLOAT32
    sizes = (cache.max_size, cache.recent_budget)
    rows = evicting_kv_bytes(layer, run.storage, sizes, run.context, run.dtype_bytes)
    return logits + weights + block + rows + ledger_bytes(layer, cache)
