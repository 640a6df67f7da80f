"""Where a plan's cache is likely to hurt what the model says, and what to do."""

from __future__ import annotations

from h2o_pack.facts import own_prefills, upstream_versions
from h2o_pack.memory.kept import grown, row_bytes
from h2o_pack.memory.storages import storage_of
from h2o_pack.memory.terms import KV
from h2o_pack.plan.speed import recall_plan
from h2o_pack.plan.workload import Workload
from h2o_pack.sizes import megabytes

SPARSE = 8  # context / max_kv from which retrieval suffers (docs/choosing-max-kv.md)
SHORT_RECENT = 64  # newest tokens under which reproductions of H2O lost coherence
FOUR_BIT_KEYS = ("4",)
AT_PROMPTS = (
    "recall at prompts brings back what the prompt asks for, and what an answer first needs in "
    "its middle is lost more often than without recall. Where that matters, give "
    "--recall-every 4."
)


def advice(workload: Workload) -> tuple[str, ...]:
    """Remarks on a plan, the gravest first; each says what, why and what next."""
    model, caches = workload.model, [cache for cache in workload.caches if cache is not None]
    if not caches:
        return ()
    remarks = []
    size = round(sum(cache.max_size for cache in caches) / len(caches))
    if workload.recall is not None:
        remarks += [*beside_full_cache(workload), *beyond_limit(workload)]
        if not workload.recall.every:
            remarks.append(AT_PROMPTS)
    elif size * SPARSE < workload.tokens:
        remarks.append(sparse(size, workload.tokens, model.config.context))
    short = sum(cache.recent_budget < SHORT_RECENT for cache in caches)
    if short:
        where = "" if short == len(caches) else f"in {short} of {len(caches)} layers "
        remarks.append(
            f"{where}fewer than {SHORT_RECENT} of the newest tokens are kept for certain: text "
            "may lose its thread. Raise --max-kv or --recent-budget."
        )
    if workload.kv in FOUR_BIT_KEYS:
        remarks.append(
            "keys in 4 bits change what some models say, Qwen's above all. Compare with "
            "--kv k8v4, which keeps them in 8."
        )
    plain = sum(layer.kind == "sliding" for layer in model.config.layers)
    if plain:
        remarks.append(
            f"{plain} of {len(model.config.layers)} layers attend to a window and keep their "
            "own cache: --max-kv bounds the others alone."
        )
    for version in upstream_versions():
        prefill = own_prefills(version).get(model.config.model_type)
        if prefill and prefill.whole:
            remarks.append(
                f"the plan is for H2OSession, which gives the model {workload.step} tokens of "
                f"a prompt at once. The ChatSession of mlx-swift-lm {version} gives this "
                "family the whole prompt, which takes far more for a long one."
            )
    if model.assumed:
        remarks.append(
            "nothing is known of this architecture: its shapes are taken for an ordinary "
            "transformer's. Measure the peak on a device."
        )
    return tuple(remarks)


def sparse(size: int, context: int, longest: int) -> str:
    """What is lost where a cache is far smaller than the text."""
    lost = "single facts from far back, long quotations and what tools returned are often lost"
    if context == longest:
        return (
            f"with --max-kv {size}, {lost} in conversations of more than about "
            f"{size * SPARSE} tokens. Plan for those that you expect with --context, or give "
            "--recall."
        )
    return (
        f"--max-kv {size} is under an eighth of {context} tokens: {lost}. Raise --max-kv to "
        f"{-(-context // SPARSE)}, plan for shorter conversations (--context), or give "
        "--recall."
    )


def beyond_limit(workload: Workload) -> list[str]:
    """Say what the archives' limit takes away from the longest conversation."""
    settings, plan = workload.recall, recall_plan(workload)
    if settings is None or plan is None or plan.archive_tokens >= workload.tokens:
        return []
    return [
        (
            f"at --archive-limit {settings.limit} an archive has the newest "
            f"{plan.archive_tokens:,} of {workload.tokens:,} tokens: no older one comes back. "
            "Raise it, or archive in fewer bits."
        )
    ]


def beside_full_cache(workload: Workload) -> list[str]:
    """What a cache that keeps every token would take, where recall brings some back."""
    tokens, own = workload.tokens, recall_plan(workload)
    if own is None or workload.max_kv >= tokens:
        return []
    config = workload.model.config
    kv = {16: "dense"}.get(own.archive_bits, str(own.archive_bits))
    storage = storage_of(kv, config, workload.group_size)
    full = grown(tokens) * sum(
        row_bytes(layer, storage.heavy, storage.group_size, config.element_bytes)
        for layer in config.layers
        if layer.kind == "full"
    )
    rows = workload.plan("iphone").of(KV)
    place = "" if own.archive == "memory" else ", most of it in files,"
    return [
        (
            f"a cache that keeps all {tokens} tokens (--max-kv {tokens} --kv {kv}) takes "
            f"{megabytes(full)} MB, rows {megabytes(rows)} MB and the archive{place} "
            f"{megabytes(own.archive_bytes)} MB. The former forgets nothing, but each step "
            "reads all of it."
        )
    ]
