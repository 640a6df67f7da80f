"""Plans the memory of a model with its caches, as a sum of terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from h2o_pack.memory import terms
from h2o_pack.memory.cache_bytes import evicting_kv_bytes, grown, ledger_bytes, plain_kv_bytes
from h2o_pack.memory.chunk import decode_peak, prefill_peak, total
from h2o_pack.memory.planned_run import Backend, PlannedRun
from h2o_pack.memory.terms import MemoryPlan, Term
from h2o_pack.model import Layer
from h2o_py.config import H2OConfig
from h2o_py.policy_fields import MOST_WAITING

BUFFER_CACHE = 20 << 20  # MLX's limit in mlx-swift-examples for phones and in h2o-pack's Swift
APP = 120 << 20  # a SwiftUI app with its process, runtime, Metal library and tokenizer
TENSORS = 7  # projections of a layer

BESIDE_MLX = (terms.MARGIN, terms.CACHE, terms.APP)  # not counted by MLX's own counter

MEANINGS = {
    "keys and values": "rows of all layers, as their caches allocate them",
    "recurrent state": "states of convolutions and of recurrent layers",
    "ledger": "score and position of each row, and the next row to evict",
    "before thoughts": "a copy of the caches from before a reply's thoughts, which later turns "
    "leave out",
    "activations": "hidden states, queries, keys, values and feed-forward of queued layers; "
    "the longer an unbounded cache is, the fewer layers MLX queues",
    "attention": "attention logits, if MLX stores them, and the logits from which rows get "
    "their scores",
    "chunk rows": "rows of the prompt's chunk beside the kept rows, and copies",
    "ledger copies": "new ledgers, while the old ones are still in memory",
    "logits": "logits of the output head",
    "recall": "archived keys and values that are read at once, their logits, and copies of "
    "sketches",
}


@lru_cache(maxsize=4096)
def plan_memory(run: PlannedRun, backend: Backend) -> MemoryPlan:
    """Plan the memory of a run on a backend, at its moment of most memory."""
    plans = [plan_at(moment, backend) for moment in moments(run)]
    return replace(max(plans, key=lambda plan: plan.total), context=run.tokens)


def fits(run: PlannedRun, backend: Backend, limit: int) -> bool:
    """Return whether the planned memory of a run is at most `limit` bytes.

    A run whose weights and caches alone are larger is not planned, which takes much longer.
    """
    least = run.model.weights.bytes + sum(term.bytes for term in lasting_terms(run))
    return least <= limit and plan_memory(run, backend).total <= limit


def lasting_bytes(run: PlannedRun, *names: str) -> int:
    """Bytes of the terms of these names that last from token to token, without a plan."""
    return sum(term.bytes for term in lasting_terms(run) if term.name in names)


def moments(run: PlannedRun) -> Iterator[PlannedRun]:
    """Yield the run, and with recall also its last chunk that does not read the archive yet.

    That chunk may take more memory than later ones, because reading empties MLX's queue.
    """
    yield run
    if run.archives:
        rows = max(cache.max_size for _, cache, _ in run.archives)
        if rows + run.step < run.tokens:
            yield replace(run, context=rows + run.step)


def plan_at(run: PlannedRun, backend: Backend) -> MemoryPlan:
    """Plan the memory of the end of a run."""
    model = run.model
    prefill, decode = prefill_peak(run, backend), decode_peak(run, backend)
    worst = max(prefill, decode, key=total)
    working = (*terms.WORKING, terms.RECALL) if run.archives else terms.WORKING
    planned = [
        Term(
            terms.WEIGHTS,
            model.weights.bytes,
            "exact" if model.files else "stated",
            "all tensors that inference loads"
            + ("" if model.files else ", as the catalogue states"),
        ),
        *lasting_terms(run),
        *(Term(name, worst.get(name, 0), "modelled", MEANINGS[name]) for name in working),
        Term(
            terms.ROUNDING,
            rounding(run, backend),
            "estimated",
            f"buffers are whole pages of {backend.page} bytes",
        ),
    ]
    if backend.margin:
        modelled = sum(term.bytes for term in planned if term.name in terms.MODELLED)
        what = f"{backend.margin:.0%} of the modelled terms: no device has measured it"
        margin = Term(terms.MARGIN, round(backend.margin * modelled), "estimated", what)
        planned.append(margin)
    if backend.metal:
        planned += [
            Term(
                terms.CACHE, BUFFER_CACHE, "setting", "freed buffers that MLX keeps for reuse"
            ),
            Term(terms.APP, APP, "estimated", "process, runtime, Metal library, tokenizer"),
        ]
    return MemoryPlan(
        backend=backend.name,
        kv=run.storage.name,
        context=run.tokens,
        prefill_step=run.step,
        terms=tuple(planned),
        prefill_peak=total(prefill),
        decode_peak=total(decode),
        mlx=sum(term.bytes for term in planned if term.name not in BESIDE_MLX),
        total=sum(term.bytes for term in planned),
    )


def lasting_terms(run: PlannedRun) -> Iterator[Term]:
    """Yield the terms of arrays that last from token to token, after `context` tokens."""
    sizes = {
        terms.KV: sum(kv_bytes(layer, cache, run) for layer, cache in run.pairs),
        terms.STATE: sum(layer.state_bytes for layer in run.config.layers),
        terms.LEDGER: sum(ledger_bytes(layer, cache) for layer, cache in run.pairs if cache),
    }
    yield from (Term(name, size, "exact", MEANINGS[name]) for name, size in sizes.items())
    if run.archives:
        archives = [archive for archive, _, _ in run.archives]
        packed = sum(archive.packed(run.tokens) for archive in archives)
        what = (
            "keys and values of all tokens in the layers that recall, and a sketch of the keys"
        )
        if run.archive_in_files:
            packed = min(packed, MOST_WAITING)
            what = (
                "sketch of the keys in archives, newest tokens, and segments that wait to be "
                "written to files"
            )
        others = sum(archive.newest + archive.sketch(run.tokens) for archive in archives)
        yield Term(terms.ARCHIVE, packed + others, "exact", what)
    if run.drops_thoughts:  # both copies of the caches share the archive
        yield Term(terms.THOUGHTS, sum(sizes.values()), "exact", MEANINGS[terms.THOUGHTS])


def kv_bytes(layer: Layer, cache: H2OConfig | None, run: PlannedRun) -> int:
    """Bytes of one layer's keys and values."""
    element = run.config.element_bytes
    if cache is not None:
        return evicting_kv_bytes(layer, run.storage, cache, run.tokens, element)
    most = layer.window if layer.kind == "sliding" else None
    return plain_kv_bytes(layer, grown(run.tokens, most), element)


def rounding(run: PlannedRun, backend: Backend) -> int:
    """Estimate the bytes lost by whole pages: half a page per array of the layers' weights.

    A quantized tensor has three arrays: words, scales and biases.
    """
    if backend.page == 1:
        return 0
    arrays = 3 if run.config.bits else 1
    return len(run.config.layers) * TENSORS * arrays * backend.page // 2
