"""Where a plan's cache is likely to hurt what the model says, and what to do."""

from __future__ import annotations

from h2o_pack.facts import unsplit_prompts
from h2o_pack.plan.request import Request

SPARSE = 8  # context / max_kv from which retrieval suffers (docs/choosing-max-kv.md)
SHORT_RECENT = 64  # newest tokens under which reproductions of H2O lost coherence
FOUR_BIT_KEYS = ("4",)


def advice(request: Request) -> tuple[str, ...]:
    """Remarks on a plan, the gravest first; each says what, why and what next."""
    model, caches = request.model, [cache for cache in request.caches if cache is not None]
    if not caches:
        return ()
    said = []
    size = round(sum(cache.max_size for cache in caches) / len(caches))
    if size * SPARSE < request.tokens:
        said.append(sparse(size, request.tokens, model.config.context))
    short = sum(cache.recent_budget < SHORT_RECENT for cache in caches)
    if short:
        where = "" if short == len(caches) else f"in {short} of {len(caches)} layers "
        said.append(
            f"{where}fewer than {SHORT_RECENT} of the newest tokens are kept for certain: text "
            "may lose its thread. Raise --max-kv or --recent-budget."
        )
    if request.kv in FOUR_BIT_KEYS:
        said.append(
            "keys in 4 bits change what some models say, Qwen's above all. Compare with "
            "--kv k8v4, which keeps them in 8."
        )
    plain = sum(layer.kind == "sliding" for layer in model.config.layers)
    if plain:
        said.append(
            f"{plain} of {len(model.config.layers)} layers attend to a window and keep their "
            "own cache: --max-kv bounds the others alone."
        )
    if model.config.model_type in unsplit_prompts():
        said.append(
            f"the plan is for H2OSession, which gives the model {request.step} tokens of a "
            "prompt at once. mlx-swift-lm's own ChatSession gives this family the whole "
            "prompt, which takes far more for a long one."
        )
    if model.assumed:
        said.append(
            "nothing is known of this architecture: its shapes are taken for an ordinary "
            "transformer's. Measure the peak on a device."
        )
    return tuple(said)


def sparse(size: int, context: int, longest: int) -> str:
    """What is lost where a cache is far smaller than the text."""
    lost = "single facts from far back, long quotations and what tools returned are often lost"
    if context == longest:
        return (
            f"with --max-kv {size}, {lost} in conversations of more than about "
            f"{size * SPARSE} tokens. Plan for those that you expect with --context."
        )
    return (
        f"--max-kv {size} is under an eighth of {context} tokens: {lost}. Raise --max-kv to "
        f"{-(-context // SPARSE)}, or plan for shorter conversations (--context)."
    )
