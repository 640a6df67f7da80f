"""Warnings about plans whose cache is likely to make the model's answers worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from h2o_pack.memory.cache_bytes import grown, token_bytes
from h2o_pack.plan.speed import RecallPlan, recall_plan
from h2o_pack.plan.workload import Workload
from h2o_pack.sizes import megabytes
from h2o_py.config import H2ORecall
from h2o_py.policy_fields import SAFE_RECENT

SPARSE = 8  # with a larger context / max_kv, facts are often lost (docs/answers.md)


def advice(workload: Workload) -> tuple[str, ...]:
    """Return remarks on a plan, the most serious first; each has a reason and a remedy."""
    model = workload.model
    caches = [cache for cache in workload.caches if cache is not None and cache.evicts]
    if not any(workload.caches):
        return ()
    remarks: list[str] = []
    if workload.recall is not None:
        remarks += of_recall(workload, workload.recall)
    elif 0 < workload.max_kv * SPARSE < workload.tokens:
        remarks.append(sparse(workload.max_kv, workload.tokens, model.config.context))
    short = sum(cache.recent_budget < SAFE_RECENT for cache in caches)
    if short:
        where = "" if short == len(caches) else f"in {short} of {len(caches)} layers "
        remarks.append(
            f"{where}fewer than {SAFE_RECENT} of the newest tokens are always kept: raise "
            "--max-kv"
        )
    if workload.kv == "4":
        remarks.append(
            "4 bits change answers more than 8 bits do, although rows are rotated. Compare "
            "with --kv k8v4, which keeps keys in 8 bits."
        )
    plain = sum(layer.kind == "sliding" for layer in model.config.layers)
    if plain and caches:
        remarks.append(
            f"{plain} of {len(model.config.layers)} layers attend to a window, which --max-kv "
            "leaves as it is"
        )
    return tuple(remarks)


def common_first(texts: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield the remarks that all models share, then the others with the model's name."""
    common = [text for text in texts[0][1] if all(text in own for _, own in texts)]
    yield from common
    for name, own in texts:
        yield from (f"{name}: {text}" for text in own if text not in common)


def sparse(size: int, context: int, longest: int) -> str:
    """Return a warning about a cache that is far smaller than the text, in tokens."""
    if context == longest:
        return (
            f"facts are often lost after about {size * SPARSE:,} tokens: leave out --no-recall"
        )
    return (
        f"--max-kv {size} is under an eighth of {context:,} tokens: give "
        f"{-(-context // SPARSE)}, or leave out --no-recall"
    )


def of_recall(workload: Workload, settings: H2ORecall) -> Iterator[str]:
    """Yield remarks on recall."""
    plan, tokens = recall_plan(workload), workload.tokens
    if plan is not None and plan.archive == "memory" and workload.max_kv < tokens:
        yield beside_full_cache(workload, plan)
    if plan is not None and plan.archive_tokens < tokens:
        yield (
            f"with --archive-limit {settings.limit}, an archive contains only the newest "
            f"{plan.archive_tokens:,} of {tokens:,} tokens, so older tokens are forgotten. "
            "Raise the limit, or archive in fewer bits."
        )


def beside_full_cache(workload: Workload, recall: RecallPlan) -> str:
    """Compare an archive in memory with a cache that keeps every token in as many bits."""
    kv = str(recall.archive_bits)
    full = grown(workload.tokens) * token_bytes(workload.config)[kv]
    return (
        f"an archive in memory takes {megabytes(recall.archive_bytes)} MB, and a cache that "
        f"keeps all tokens {megabytes(full)} MB: give --archive files, or --kv {kv} alone"
    )
