"""What is held while a layer recalls: between the writes of a chunk and its last attention."""

from __future__ import annotations

from h2o_pack.architectures.model import Layer
from h2o_pack.memory.archive import LayerArchive
from h2o_pack.memory.chunk import Run
from h2o_pack.memory.formulas import FLOAT32, evicting_kv_bytes, ledger_bytes
from h2o_pack.memory.terms import RECALL
from h2o_py.config import H2OConfig
from h2o_py.recall import H2ORecall

MOST_LOGITS = 32 << 20  # bytes of logits at once on a GPU (cexport/h2o/recall.h)
BLOCK = 256  # archived keys that are widened to float32 at once (cexport/h2o/recall.cpp)


def recall_peak(run: Run, step: int) -> dict[str, int]:
    """Bytes by term at the worst moment of a recall; nothing where no layer recalls.

    A recall evaluates what it reads, so no other layer's arrays are queued: there are the
    chunk's hidden states, its queries, keys, values and the output of its first part in one
    layer, and what the recall itself makes.
    """
    moments = (
        {
            "activations": chunk_bytes(run, archive.layer, min(step, run.context)),
            RECALL: recall_bytes(run, archive, cache, recall),
        }
        for archive, cache, recall in run.archives
        if run.context > cache.max_size  # else nothing was evicted
    )
    return max(moments, key=lambda held: sum(held.values()), default={})


def chunk_bytes(run: Run, layer: Layer, tokens: int) -> int:
    """Bytes of a chunk's arrays in one layer, before its last tokens attend."""
    heads = run.config.heads
    elements = 2 * run.config.hidden_size  # hidden states and their norm
    elements += heads * (layer.key_dim + layer.value_dim)  # queries and outputs
    elements += layer.kv_heads * (layer.key_dim + layer.value_dim)
    return tokens * elements * run.dtype_bytes


def recall_bytes(run: Run, archive: LayerArchive, cache: H2OConfig, recall: H2ORecall) -> int:
    """Bytes that one layer's recall makes and gives up, and the new rows beside the old.

    Logits over all archived keys in float32, of one KV head's queries, on a GPU of as many as
    are under a bound; per position its weight before and after the spread; one block of keys
    in float32.
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
