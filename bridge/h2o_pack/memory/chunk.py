"""The largest memory of a chunk or a generated token, beside weights and caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from h2o_pack.memory.cache_bytes import (
    FLOAT32,
    STEP,
    LayerArchive,
    grown,
    ledger_bytes,
    plain_kv_bytes,
    row_bytes,
)
from h2o_pack.memory.planned_run import Backend, PlannedRun
from h2o_pack.memory.queue import Buffer, Graph
from h2o_pack.memory.terms import RECALL
from h2o_pack.model import Layer
from h2o_py.config import H2OConfig
from h2o_py.policy_fields import DRAFT_TOKENS, OBSERVATION_WINDOW, SEGMENT_TOKENS

FUSED_TOKENS = 8  # MLX has fused attention of up to so many tokens for all head dims
WORD = 4  # bytes of an element of quantized rows
UNPACKED = 32 << 20  # bytes of keys, values and logits at once (cexport/h2o/fallback.cpp)


def peak_of(
    run: PlannedRun, backend: Backend, tokens: int, logits: int
) -> tuple[dict[str, int], float]:
    """Return the bytes by term at a step's moment of most memory, and the length of the queue.

    The length is the most dispatches that are queued and not done. tokens: of the step. logits:
    for how many of the last tokens the output head computes logits.
    """
    graph = Graph(run, backend, tokens)
    hidden = graph.new([], run.config.hidden_size, dispatches=2)
    layers: dict[tuple[Layer, H2OConfig | None], Graph] = {}
    for number, pair in enumerate(run.pairs, 1):
        if pair not in layers:
            layers[pair] = Graph(run, backend, tokens)
            decoder_layer(layers[pair], *pair)
        hidden = graph.append(layers[pair], hidden)
        two_layers = 2 * graph.dispatches / number
        if run.archives:
            continue  # each layer's keys and values stay in memory
        if run.uniform and graph.dispatches > backend.longest_window + two_layers:
            break  # the queue holds fewer layers than the graph, so more layers change nothing
    window = graph.window()
    hidden = graph.norm(hidden, run.config.hidden_size)
    queue_logits(graph, hidden, logits)
    return graph.peak(window), window


def decoder_layer(graph: Graph, layer: Layer, cache: H2OConfig | None) -> None:
    """Queue a layer: norm, attention or recurrence, norm, feed-forward, two residual sums.

    The graph's first buffer stands for the hidden states that the layer reads.
    """
    size = graph.run.config.hidden_size
    hidden = graph.op([], 0, dispatches=0)
    normed = graph.norm(hidden, size)
    if layer.kv_heads:
        mixed = attention_block(graph, layer, cache, normed)
    else:
        mixed = recurrence(graph, normed)
    hidden = graph.combine(mixed, hidden, size)
    graph.combine(feed_forward(graph, graph.norm(hidden, size)), hidden, size)


def attention_block(graph: Graph, layer: Layer, cache: H2OConfig | None, x: Buffer) -> Buffer:
    """Queue projections, norms of queries and keys if there are any, cache, and output."""
    heads, size = graph.run.config.heads, graph.run.config.hidden_size
    q = graph.linear(x, size, heads * layer.key_dim)
    k = graph.linear(x, size, layer.kv_heads * layer.key_dim, again=True)
    v = graph.linear(x, size, layer.kv_heads * layer.value_dim, again=True)
    q = graph.rope(graph.head_norm(q, heads * layer.key_dim), heads, layer.key_dim)
    k = graph.head_norm(k, layer.kv_heads * layer.key_dim)
    k = graph.rope(k, layer.kv_heads, layer.key_dim)
    if cache is None:
        out = own_attention(graph, layer, q, k, v)
    else:
        out = evicting_attention(graph, layer, cache, q, k, v)
    if not graph.metal:
        out = graph.new([out], heads * layer.value_dim, dispatches=4)
    return graph.linear(out, heads * layer.value_dim, size)


def evicting_attention(
    graph: Graph, layer: Layer, cache: H2OConfig, q: Buffer, k: Buffer, v: Buffer
) -> Buffer:
    """Queue a write to an H2O cache, and its attention; return the output [Hq, L, Dv]."""
    if not cache.evicts:
        return full_attention(graph, layer, cache, q, k, v)
    if not graph.run.storage.rotated:
        return write_and_attend(graph, layer, cache, q, k, v)
    heads = graph.run.config.heads
    q = rotated(graph, q, heads * layer.key_dim)
    k = rotated(graph, k, layer.kv_heads * layer.key_dim)
    v = rotated(graph, v, layer.kv_heads * layer.value_dim)
    out = write_and_attend(graph, layer, cache, q, k, v)
    return rotated(graph, out, heads * layer.value_dim)


def rotated(graph: Graph, vectors: Buffer, size: int) -> Buffer:
    """Queue a rotation of vectors of `size` elements per token in float32 (row_layout.cpp)."""
    wide = graph.op([vectors], size * graph.tokens * FLOAT32, dispatches=3)
    return graph.new([wide], size)


def write_and_attend(
    graph: Graph, layer: Layer, cache: H2OConfig, q: Buffer, k: Buffer, v: Buffer
) -> Buffer:
    """Queue the write and the attention without rotations."""
    run, tokens, heads = graph.run, graph.tokens, graph.run.config.heads
    before = min(cache.max_size, max(0, run.tokens - tokens))  # rows in use
    ledger = ledger_bytes(layer, cache)
    asking = 0 if cache.recall is None else read_archive(graph, layer, cache, (q, k, v))
    if tokens == 1 and not (asking and graph.metal):
        rows = min(before + 1, cache.max_size)
        # The token is written to the old rows, which the plan counts as caches.
        written = graph.op([k, v], 0, dispatches=3)
        graph.op([q], heads * rows * FLOAT32, term="attention", dispatches=2)
        graph.op([q], ledger, term="ledger copies")
        return graph.new([q, written], heads * layer.value_dim)
    rows = before + tokens if tokens > 1 else min(before + 1, cache.max_size)
    # A chunk makes new buffers if it evicts, or rearranges ring and pool.
    replaces = tokens > 1 and (rows > cache.max_size or run.storage.recent is not None)
    copies = tokens > 1 and (before or replaces)
    larger = stored_bytes(run, layer, cache, rows) if copies else 0
    written = graph.op([k, v], larger, dispatches=3, term="chunk rows")
    if graph.metal:
        out = fallback_attention(graph, layer, cache, (q, written), rows, asking)
    else:
        out = graph.new([q, written], heads * layer.value_dim, dispatches=2)
    graph.op([q], ledger, term="ledger copies")
    if replaces:
        # The kept rows are a new buffer beside the old one until its last reader has run.
        size = stored_bytes(run, layer, cache, cache.max_size)
        graph.op([written], size, term="chunk rows").death = written.birth
    return out


def full_attention(
    graph: Graph, layer: Layer, cache: H2OConfig, q: Buffer, k: Buffer, v: Buffer
) -> Buffer:
    """Queue a write to a cache that keeps every token, and its attention.

    The rows are counted as if every write copied them, because a conversation's last growth may
    be as large as its last step. A GPU computes a long chunk after all queued operations, a
    few heads after the other, whose rows it first unpacks (fallback.cpp).
    """
    run, tokens, heads = graph.run, graph.tokens, graph.run.config.heads

    def turned(vectors: Buffer, size: int) -> Buffer:
        return rotated(graph, vectors, size) if run.storage.rotated else vectors

    k = turned(k, layer.kv_heads * layer.key_dim)
    v = turned(v, layer.kv_heads * layer.value_dim)
    rows = grown(run.tokens)
    size = stored_bytes(run, layer, cache, rows)
    elements = size // (graph.element if run.storage.is_dense else WORD)
    written = graph.op([k, v], size, dispatches=3, term="chunk rows", elements=elements)
    if tokens <= DRAFT_TOKENS or not graph.metal:
        q = turned(q, heads * layer.key_dim)
        out = graph.new([q, written], heads * layer.value_dim, dispatches=2)
        return turned(out, heads * layer.value_dim)
    graph.wait()
    head = rows * (2 * layer.key_dim + heads // layer.kv_heads * tokens) * graph.element
    share = min(1.0, max(1, UNPACKED // head) / layer.kv_heads)  # heads at a time
    packed = graph.op([written], int(share * size), dispatches=8, term="chunk rows")
    unpacked = int(share * rows * layer.row_elements) * graph.element
    vectors = graph.op([packed], unpacked, dispatches=2, term="chunk rows")
    q = turned(q, int(share * heads) * layer.key_dim)
    out = attention(graph, layer, (q, vectors, vectors), rows, share)
    out = turned(out, int(share * heads) * layer.value_dim)
    graph.wait()
    return graph.new([out], heads * layer.value_dim)


def stored_bytes(run: PlannedRun, layer: Layer, cache: H2OConfig, rows: int) -> int:
    """Bytes of `rows` rows; a mixed cache stores a chunk with the bits of its ring."""
    storage, element = run.storage, run.config.element_bytes
    heavy = row_bytes(layer, storage.heavy, storage.group_size, element)
    if storage.recent is None:
        return rows * heavy
    recent = row_bytes(layer, storage.recent, storage.group_size, element)
    pool = min(rows, cache.max_size - cache.recent_budget)
    return pool * heavy + (rows - pool) * recent


def fallback_attention(
    graph: Graph,
    layer: Layer,
    cache: H2OConfig,
    arrays: tuple[Buffer, Buffer],
    rows: int,
    asking: int,
) -> Buffer:
    """Queue the operations of cexport/h2o/fallback.cpp with `rows` rows in use.

    arrays: queries, and the written rows. asking: how many of the tokens read the archive.
    """
    q, written = arrays
    storage, heads, tokens = graph.run.storage, graph.run.config.heads, graph.tokens
    wide_keys = rows * layer.kv_heads * layer.key_dim * FLOAT32
    wide_values = rows * layer.kv_heads * layer.value_dim * FLOAT32
    keys = values = written
    quantized = not storage.is_dense
    if quantized:
        keys = graph.op([written], wide_keys, dispatches=4, term="chunk rows")
        values = graph.op([written], wide_values, dispatches=4, term="chunk rows")
    if storage.recent is not None:  # pool and ring are concatenated
        keys = graph.op([keys], wide_keys, dispatches=2, term="chunk rows")
        values = graph.op([values], wide_values, dispatches=2, term="chunk rows")
        converted = stored_bytes(graph.run, layer, cache, rows)
        for _ in range(2):  # pool and ring, each converted to the other's precision
            graph.op([written], converted, dispatches=8, term="chunk rows")
    if quantized:
        narrow = wide_keys // FLOAT32 * graph.element, wide_values // FLOAT32 * graph.element
        attended = graph.op([keys], narrow[0], term="chunk rows")
        values = graph.op([values], narrow[1], term="chunk rows")
    else:
        attended = keys
    # Logits of the last queries over all rows, in float32.
    window = min(tokens, OBSERVATION_WINDOW)
    matrix = window * heads * rows

    def logits_of_rows() -> Buffer:
        scaled = graph.op([q], window * heads * layer.key_dim * FLOAT32, dispatches=2)
        wide = keys if quantized else graph.op([keys], wide_keys, term="chunk rows")
        logits = graph.op([scaled, wide], matrix * FLOAT32, dispatches=6, term="attention")
        masked = graph.op([logits], matrix, term="attention")
        return graph.within(logits, [masked])

    def add_up(logits: Buffer) -> None:
        hidden = graph.op([logits], matrix, term="attention")
        graph.op([logits, hidden], matrix * FLOAT32, dispatches=4, term="attention")

    if asking > window:  # what the rows count for, one block of queries after the other
        add_up(logits_of_rows())
        graph.wait()
    out = attention(graph, layer, (q, attended, values), rows)
    logits = logits_of_rows()
    if asking:
        add_up(logits)
        read = asking * heads * layer.value_dim * FLOAT32
        out = graph.new([graph.op([out], 3 * read, dispatches=9)], heads * layer.value_dim)
    visible = graph.op([logits], matrix, term="attention")
    weights = graph.op([logits], matrix * FLOAT32, dispatches=6, term="attention")
    graph.within(weights, [visible], dispatches=3)
    mean, size = weights, window * layer.kv_heads * rows * FLOAT32
    for dispatches in (2, 6, 4, 4, 4, 3):  # a KV head's mean, counts and decay
        mean = graph.op([mean], size, dispatches=dispatches, term="attention")
    graph.op([], 0, dispatches=30)  # importance, two sorts, the ledger: a few numbers per row
    return out


TILE = 8 << 20  # bytes of logits, keys and values of a tile (cexport/h2o/reading.cpp)
BLOCK = 256  # queries of a KV head whose logits with a tile are computed at once


def read_archive(
    graph: Graph, layer: Layer, cache: H2OConfig, arrays: tuple[Buffer, Buffer, Buffer]
) -> int:
    """Queue the growth of an archive, and what the tokens read from it.

    arrays: queries, keys and values. Returns how many of the tokens read. A chunk's keys and
    values stay in memory until the whole chunk is computed, because nothing before needs the
    archive's newest tokens.
    """
    run, tokens, recall = graph.run, graph.tokens, cache.recall
    if recall is None:
        return 0
    q, k, v = arrays
    k.stays = v.stays = True
    archive = LayerArchive(layer, recall.archive_bits, graph.element, recall.limit)
    copies = -(-tokens // SEGMENT_TOKENS) * archive.sketch(run.tokens)  # one per new segment
    graph.op([k], copies, dispatches=4, term=RECALL)
    evicted = run.tokens - tokens + (tokens == 1) - cache.max_size
    if evicted <= 0 or (tokens <= DRAFT_TOKENS and not recall.reach):
        return 0
    if tokens <= DRAFT_TOKENS:
        for _ in range(tokens):
            read_matching(graph, archive, recall.reach, q)
        return tokens
    asking = min(tokens, recall.ask)
    read_everything(graph, archive, asking, q)
    return asking


def read_everything(graph: Graph, archive: LayerArchive, asking: int, q: Buffer) -> None:
    """Queue the tiles of an archive, of which two are in memory at once (reading.cpp).

    A tile has whole segments. Their keys and values are float32, and so are the logits of a
    block of queries; two blocks are computed at once, and wait for each other.
    """
    layer, heads = archive.layer, graph.run.config.heads
    length = archive.tokens(graph.run.tokens - graph.tokens)
    own_lines = heads // layer.kv_heads * asking
    lines = layer.kv_heads * min(own_lines, BLOCK)
    graph.wait()
    size = heads * asking * layer.key_dim * FLOAT32
    queries = graph.op([q], size, dispatches=3, term=RECALL)
    size = heads * asking * (layer.value_dim + 1) * FLOAT32
    read = graph.op([], size, dispatches=0, term=RECALL)  # by the blocks so far
    bias = graph.op([], 2 * length * layer.kv_heads * FLOAT32, dispatches=8, term=RECALL)
    one = (layer.row_elements + 2 * lines) * FLOAT32  # bytes of a token
    most = max(1, TILE // (one * SEGMENT_TOKENS)) * SEGMENT_TOKENS
    complete = archive.tokens(graph.run.tokens) // SEGMENT_TOKENS  # segments, with this chunk
    whole = min(length, complete * SEGMENT_TOKENS)
    first = min(whole, most) or length
    rest = whole - first if whole > first else length - first  # of segments, or the newest
    for number, tile in enumerate((first, min(rest, most))):
        packed = graph.op([], tile * archive.token_bytes, dispatches=2, term=RECALL)
        vectors = read_vectors(graph, layer, tile, packed)
        if number == 0 and own_lines > BLOCK:  # two blocks of the first tile
            for _ in range(2):
                attend_to(graph, layer, lines, tile, (queries, bias, *vectors))
            graph.wait()
        # The last block of the first tile, and the first of the second one.
        attend_to(graph, layer, lines, tile, (queries, bias, *vectors))
    graph.op([read], size, dispatches=2, term=RECALL)
    graph.wait()


def read_vectors(
    graph: Graph, layer: Layer, length: int, packed: Buffer
) -> tuple[Buffer, Buffer]:
    """Queue the unpacking of `length` keys and values to float32, with 0 for NaN."""

    def finite(dim: int) -> Buffer:
        elements = length * layer.kv_heads * dim
        wide = graph.op([packed], elements * FLOAT32, dispatches=8, term=RECALL)
        absolute = graph.op([wide], elements * FLOAT32, dispatches=2, term=RECALL)
        mask = graph.op([absolute], elements, dispatches=2, term=RECALL)
        return graph.op([wide, mask], elements * FLOAT32, dispatches=2, term=RECALL)

    return finite(layer.key_dim), finite(layer.value_dim)


def attend_to(
    graph: Graph, layer: Layer, lines: int, length: int, arrays: tuple[Buffer, ...]
) -> None:
    """Queue the attention of `lines` queries, of all heads, to `length` keys and values.

    arrays: queries, the bias of the logits, keys and values, in float32.
    """
    queries, bias, keys, values = arrays
    size = lines * length
    logits = graph.op([queries, bias, keys], size * FLOAT32, dispatches=4, term=RECALL)
    weights = graph.op([logits, bias], size * FLOAT32, dispatches=4, term=RECALL)
    out = lines * layer.value_dim * FLOAT32
    graph.op([weights, values], 4 * out, dispatches=10, term=RECALL)


def read_matching(graph: Graph, archive: LayerArchive, reach: int, q: Buffer) -> None:
    """Queue the choice of the archived tokens that a generated token reads, and reading them.

    On a GPU the choice is made of MLX's operations; on the CPU it needs almost no memory.
    """
    layer, heads = archive.layer, graph.run.config.heads
    length = archive.tokens(graph.run.tokens)
    reach = min(reach, length)
    queries = graph.op([q], heads * layer.key_dim * FLOAT32, dispatches=3, term=RECALL)
    chosen = graph.op([queries], reach * layer.kv_heads * FLOAT32, dispatches=2, term=RECALL)
    if graph.metal:
        estimates = estimate_logits(graph, archive, length, queries)
        chosen = graph.op([estimates], reach * layer.kv_heads * FLOAT32, dispatches=6)
    keys, values = read_vectors(graph, layer, reach, chosen)
    attend_to(graph, layer, heads, reach, (queries, chosen, keys, values))


def estimate_logits(
    graph: Graph, archive: LayerArchive, length: int, queries: Buffer
) -> Buffer:
    """Queue the logits of sketched keys, and their order.

    MLX multiplies with a copy of the sketch whose scales and biases are float32.
    """
    layer, heads = archive.layer, graph.run.config.heads
    keys = length * layer.kv_heads
    words = graph.op([], archive.sketch(graph.run.tokens), dispatches=2, term=RECALL)
    wide = graph.op([words], archive.sketch(graph.run.tokens), dispatches=3, term=RECALL)
    logits = graph.op(
        [queries, words, wide], length * heads * FLOAT32, dispatches=2, term=RECALL
    )
    logits = graph.op([logits], length * heads * FLOAT32, dispatches=2, term=RECALL)
    absolute = graph.op([logits], length * heads * FLOAT32, term=RECALL)
    finite = graph.op([absolute], length * heads, term=RECALL)
    logits = graph.op([logits, finite], length * heads * FLOAT32, term=RECALL)
    hidden = graph.op([], 2 * keys * FLOAT32, dispatches=8, term=RECALL)
    best = graph.op([logits, hidden], 2 * keys * FLOAT32, dispatches=3, term=RECALL)
    return graph.op([best], 5 * keys * FLOAT32, dispatches=4, term=RECALL)  # sorted in blocks


def own_attention(graph: Graph, layer: Layer, q: Buffer, k: Buffer, v: Buffer) -> Buffer:
    """Queue a write to mlx_lm's cache, of a window or of the whole text, and attention.

    A write makes new arrays: concatenate grows or reorders the rows and appends the chunk, and
    slice_update copies them, because the step queued before still holds the old arrays.
    """
    context, tokens = graph.run.tokens, graph.tokens
    if layer.kind == "sliding":
        window = grown(context, layer.window)
        # After a chunk of n tokens the cache has window - 1 + n rows until it writes one token.
        rows = window if tokens == 1 else min(context, window - 1 + tokens)
        mask = graph.op([], tokens * rows, dispatches=8, term="attention")
    else:
        rows = grown(context)
        mask = graph.op([], 0, dispatches=0)
    written = graph.op(
        [k, v],
        plain_kv_bytes(layer, rows, graph.element),
        dispatches=6 if tokens > 1 else 2,
        term="chunk rows",
        elements=(rows + tokens) * layer.row_elements,
    )
    return attention(graph, layer, (q, written, mask), rows)


def attention(
    graph: Graph,
    layer: Layer,
    arrays: tuple[Buffer, Buffer, Buffer],
    rows: int,
    share: float = 1.0,
) -> Buffer:
    """Queue mx.fast.scaled_dot_product_attention over `rows` rows; return [Hq, L, Dv].

    arrays: queries, keys and values. share: of the heads that are computed at once. If MLX has
    no kernel for the head dimensions (Backend.fuses), it makes scaled queries, the matrix of
    logits [Hq, L, rows] and a mask; masking and softmax reuse the matrix's buffer.
    """
    heads, tokens = graph.run.config.heads, graph.tokens
    size = heads * layer.value_dim
    fuses = graph.backend.fuses(layer.key_dim, layer.value_dim)
    if tokens <= FUSED_TOKENS or fuses:
        elements = rows * layer.row_elements + size * tokens
        return graph.op(arrays, size * tokens * graph.element, elements=elements)
    queries = graph.new([arrays[0]], heads * layer.key_dim, dispatches=3)
    matrix = graph.op(
        [queries, arrays[1]],
        int(share * heads) * tokens * rows * graph.element,
        dispatches=3,
        term="attention",
        elements=rows * layer.kv_heads * layer.key_dim,
    )
    mask = graph.op([], tokens * rows, dispatches=6, term="attention")
    graph.within(matrix, [mask], dispatches=6)
    out = graph.new([matrix, arrays[2]], size, dispatches=3)
    return graph.new([out], size, dispatches=2)  # [L, Hq * Dv] in one piece


def recurrence(graph: Graph, x: Buffer) -> Buffer:
    """Queue a mixer like LFM2's gated convolution: three projections, a product, an output."""
    size = graph.run.config.hidden_size
    inner = graph.linear(x, size, 3 * size)
    convolved = graph.new([graph.new([inner], size)], size)
    return graph.linear(graph.within(convolved, [inner]), size, size)


def feed_forward(graph: Graph, x: Buffer) -> Buffer:
    """Queue the gate, up and down projections; in a mixture, of a token's experts.

    A mixture first sorts its tokens by expert (mlx_lm switch_layers). Its arrays are the hidden
    states of every token and chosen expert, before and after the expert, and their weighted
    sum.
    """
    config = graph.run.config
    size, inner = config.hidden_size, config.intermediate_size
    experts = config.experts_per_token
    if experts:
        graph.op([x], graph.tokens * config.experts * FLOAT32, dispatches=8)
        x = graph.new([x], experts * size, dispatches=2)
    gate = graph.linear(x, size, inner)
    states = graph.combine(gate, graph.linear(x, size, inner, again=True), inner)
    if not experts:
        return graph.linear(states, inner, size)
    out = graph.new([states], experts * size)
    out = graph.new([out], experts * size, dispatches=2)
    return graph.new([graph.within(out)], size)


def queue_logits(graph: Graph, hidden: Buffer, tokens: int) -> None:
    """Queue the output head for the last `tokens` tokens, and the sampling of a token.

    Sampling subtracts the log-sum-exp of the logits and draws a token. It makes at most three
    float32 arrays [vocabulary] (mlx_lm generate_step, mlx-swift-lm's TopPSampler without
    top-p).
    """
    if not tokens:
        return
    vocabulary, size = graph.run.config.vocabulary, graph.run.config.hidden_size
    logits = graph.op(
        [hidden],
        tokens * vocabulary * graph.element,
        term="logits",
        elements=tokens * size + graph.weight_elements(vocabulary * size),
    )
    for _ in range(3):
        logits = graph.op([logits], vocabulary * FLOAT32, dispatches=2, term="logits")


RUNGS = 4  # how many lengths to try between one length and its double


def prefill_peak(run: PlannedRun, backend: Backend) -> dict[str, int]:
    """Bytes by term at the moment of most memory in any prompt of up to `tokens` tokens.

    If all caches are bounded, the moment is in the last chunk. Otherwise an earlier chunk may
    take more memory: if MLX ends its tasks by the size of their inputs, growing caches shorten
    the queue; and the longer the rows of a full cache in few bits are, the fewer heads it
    unpacks at a time. Then shorter contexts are tried too, so that a longer conversation never
    appears to take less.
    """
    peaks: list[dict[str, int]] = []
    if run.grows:
        unpacks = not run.storage.is_dense
        step = min(run.step, run.tokens)
        for steps in rungs(grown(run.tokens) // STEP):
            shorter = replace(run, context=steps * STEP, step=step)
            peak, inputs_close = last_chunk_peak(shorter, backend)
            if inputs_close or peaks or unpacks:
                peaks.append(peak)
            if not (inputs_close or unpacks):
                break
    return max(peaks, key=total) if peaks else last_chunk_peak(run, backend)[0]


@lru_cache(maxsize=4096)
def last_chunk_peak(run: PlannedRun, backend: Backend) -> tuple[dict[str, int], bool]:
    """Bytes by term at the moment of most memory in the last chunk of a prompt.

    Also returns whether MLX ends the tasks of the longest chunk, which has `step` tokens, by
    the size of their inputs. If it ends them by their number of dispatches, the longest chunk
    or a chunk of up to DRAFT_TOKENS tokens, which uses other operations, takes the most
    memory. If it ends them by inputs, longer chunks shorten the queue, so a much shorter chunk
    may take the most: then shorter lengths are tried too.
    """

    def of_chunk(tokens: int) -> tuple[dict[str, int], float]:
        return peak_of(run, backend, tokens, tokens if backend.logits == "all" else 0)

    tokens = max(1, min(run.step, run.tokens))
    peaks = [of_chunk(few)[0] for few in (1, min(tokens, DRAFT_TOKENS))]
    first, *shorter = rungs(tokens)
    peak, window = of_chunk(first)
    inputs_close = window < backend.longest_window
    peaks.append(peak if inputs_close else of_chunk(tokens)[0])
    for length in shorter:
        if window == backend.longest_window or length <= DRAFT_TOKENS:
            break
        peak, window = of_chunk(length)
        peaks.append(peak)
    return max(peaks, key=total), inputs_close


def total(terms: dict[str, int]) -> int:
    """The sum of all terms, in bytes."""
    return sum(terms.values())


def rungs(length: int) -> Iterator[int]:
    """Yield lengths to try, from the first that is at least `length` down to 1.

    There are four between each length and its double.
    """
    spacing = spacing_below(length)
    length = -(-length // spacing) * spacing
    while length:
        yield length
        length -= spacing_below(length)


def spacing_below(length: int) -> int:
    """The distance from a length to the next shorter length to try."""
    return 1 << max(0, (length - 1).bit_length() - RUNGS.bit_length())


def decode_peak(run: PlannedRun, backend: Backend) -> dict[str, int]:
    """Bytes by term at the moment of most memory while one token is generated."""
    return peak_of(run, backend, 1, 1)[0]
