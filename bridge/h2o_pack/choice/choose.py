"""Chooses what was left open: one function of the request, the catalogue and the losses."""

from __future__ import annotations

from collections.abc import Sequence

from h2o_pack.architectures.model import Model
from h2o_pack.bundling.app_size import app_size, limit_exceeded, model_bytes
from h2o_pack.choice.caches import cache_options, caches
from h2o_pack.choice.fit import limit_of, room_on
from h2o_pack.choice.losses import LossTable
from h2o_pack.choice.request import ChoiceRequest
from h2o_pack.choice.result import CacheCandidate, Choice, ModelCandidate, Refusal
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import KnownModel, architectures, upstream_versions
from h2o_pack.memory.estimate import APP, BUFFER_CACHE
from h2o_pack.models.catalogue import as_model
from h2o_pack.plan.options import CacheOptions
from h2o_pack.plan.verdict import TIGHT
from h2o_pack.sizes import gigabytes

Found = tuple[ModelCandidate, list[CacheCandidate]]


def choose(request: ChoiceRequest, models: Sequence[KnownModel], table: LossTable) -> Choice:
    """Choose the largest model that fits with a margin, and the least lossy cache for it.

    Args:
        request: what is given and what is open.
        models: the catalogue, which counts where no model is given.
        table: of measured losses, by which caches are put in order.

    Returns:
        All candidates. None of them is chosen where no model fits.

    Raises:
        UserError: a device's limit is unknown.

    """
    for device in request.devices:
        limit_of(device)
    if request.model is not None:
        found = [of_model(request, request.model.id, request.model, table)]
    else:
        found = of_catalogue(request, models, table)
    chosen = next((each for model, each in found if model.refused is None), None)
    return Choice(
        devices=tuple(device.title for device in request.devices),
        context=request.tokens,
        min_speed=request.min_speed,
        margin=TIGHT,
        losses_of=table.model,
        models=tuple(model for model, _ in found),
        caches=tuple(chosen if chosen is not None else found[0][1] if len(found) == 1 else ()),
        plan=None,
    )


def of_catalogue(
    request: ChoiceRequest, models: Sequence[KnownModel], table: LossTable
) -> list[Found]:
    """Look at the catalogue from the largest model down; the first that fits is taken."""
    found: list[Found] = []
    taken = False
    for known in sorted(models, key=lambda each: each.weights_bytes, reverse=True):
        model = as_model(known)
        size = None
        if model is None:
            refusal = Refusal("no shapes", "not stated: name it with --model")
        elif taken:
            refusal = Refusal("smaller", "smaller")
            size = app_size(model_bytes(model), apart=request.apart)
        else:
            found.append(of_model(request, known.name, model, table))
            taken = found[-1][0].refused is None
            continue
        refused = ModelCandidate(known.name, known.weights_bytes, size, None, refusal)
        found.append((refused, []))
    return found


def of_model(request: ChoiceRequest, name: str, model: Model, table: LossTable) -> Found:
    """Return a model with the best of its caches, or why it was refused."""
    weights = model.weights.bytes
    size = app_size(model_bytes(model), apart=request.apart)
    refusal = unsuitable(request, model)
    if refusal is not None:
        return ModelCandidate(name, weights, size, None, refusal), []
    found = caches(request, model, table)
    best = found[0]
    if best.refused is None:
        return ModelCandidate(name, weights, size, best, None), found
    reasons = [each.refused for each in found if each.refused is not None]
    told = next((each for each in reasons if each.reason in ("speed", "memory")), best.refused)
    return ModelCandidate(name, weights, size, None, told), found


def unsuitable(request: ChoiceRequest, model: Model) -> Refusal | None:
    """Return what rules a model out before any of its caches is planned."""
    config, weights = model.config, model.weights.bytes
    if request.tokens > config.context:
        return Refusal("context", f"attends to {config.context:,} tokens")
    known = architectures().get(config.model_type)
    version = request.upstream_version or next(iter(upstream_versions()))
    if known and known.upstream_versions and version not in known.upstream_versions:
        return Refusal("upstream", f"mlx-swift-lm {version} has no {config.model_type}")
    ways = {"asset_pack": request.asset_pack, "download": request.download}
    limit = limit_exceeded(model_bytes(model), **ways) if request.model is None else None
    if limit is not None:
        return Refusal("app size", f"larger than {gigabytes(limit.bytes)} GB, an app's most")
    least = weights + APP + BUFFER_CACHE
    for device in request.devices:
        if least > (1 - TIGHT) * limit_of(device):
            says = f"{gigabytes(least)} GB without a cache, {room_on(device)}"
            return Refusal("memory", says)
    return None


def chosen_options(request: ChoiceRequest, choice: Choice) -> tuple[str, CacheOptions]:
    """Return the model and the cache that were chosen, as `ios` and `plan` take them.

    Raises:
        UserError: nothing fits; names the smallest model that was looked at, and why.

    """
    taken = choice.chosen
    if taken is not None and taken.cache is not None:
        cache = taken.cache
        options = cache_options(request, cache.max_kv, cache.kv, recall=cache.recall)
        return taken.model, options
    looked_at = [each for each in choice.models if each.refused is not None]
    last = next((each for each in reversed(looked_at) if each.weights), looked_at[-1])
    why = last.refused.says if last.refused else ""
    raise UserError(
        f"no model fits for {choice.context:,} tokens on {' and '.join(choice.devices)}: "
        f"{last.model}: {why}",
        remedy="`h2o-pack choose` shows each candidate with its reason. Give a shorter "
        "--context, a lower --min-speed, or a smaller model.",
        code=ExitCode.MEMORY,
    )
