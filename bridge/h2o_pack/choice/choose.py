"""Chooses what a spec leaves open: by its devices, the catalogue and the measured losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from h2o_pack.architectures.model import Model
from h2o_pack.bundling.delivery import app_size, limit_exceeded, model_bytes
from h2o_pack.choice.caches import Question, caches, limit_of, room_on
from h2o_pack.choice.choice import (
    CacheCandidate,
    Choice,
    ChosenPlan,
    ModelCandidate,
    Refusal,
)
from h2o_pack.choice.losses import LossTable, read_losses
from h2o_pack.devices.catalogue import Device
from h2o_pack.devices.catalogue import catalogue as device_catalogue
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.facts import KnownModel, architectures, upstream_versions
from h2o_pack.hub.resolve import find_model
from h2o_pack.memory.estimate import APP, BUFFER_CACHE
from h2o_pack.models.catalogue import as_model
from h2o_pack.models.catalogue import catalogue as model_catalogue
from h2o_pack.plan.device_fit import TIGHT, named_devices, plan_result, planned_model
from h2o_pack.plan.package_plan import devices_of_each, holders
from h2o_pack.plan.workload import workload_of
from h2o_pack.progress import ProgressReporter
from h2o_pack.sizes import gigabytes
from h2o_pack.spec import ModelSpec, PackageSpec

Candidates = tuple[ModelCandidate, list[CacheCandidate]]
"""A model with all of its caches, the best first."""


@dataclass(frozen=True)
class Criteria:
    """By what a choice is made.

    min_speed: tokens per second after ten minutes. losses: a user's own table, None for that
    of the bundled demo model.
    """

    min_speed: float | None = None
    losses: Path | None = None


@dataclass(frozen=True)
class Chosen:
    """A spec with nothing open, and the choice for each --model, "" where none was given."""

    spec: PackageSpec
    choices: Mapping[str, Choice] = field(default_factory=dict)


def choose(spec: PackageSpec, criteria: Criteria, say: ProgressReporter) -> Chosen:
    """Choose what is open of each model, for those of the devices that can hold it.

    Raises:
        UserError: something is open and no device is named, a device can hold none of the
            models, or a model is for none of the devices.

    """
    if not any(model.is_open for model in spec.models):
        refuse_without_choice(criteria)
        return Chosen(replace(spec, models=tuple(model.filled() for model in spec.models)))
    questions = questions_of(spec, criteria, say)
    table = read_losses(criteria.losses)
    if len(questions) > 1:
        questions = for_their_devices(questions, table)
    models: list[ModelSpec] = []
    choices: dict[str, Choice] = {}
    say("choosing")
    for question in questions:
        wanted = question.spec.models[0]
        if not wanted.is_open:
            models.append(wanted.filled())
            continue
        choice = candidates_of(question, model_catalogue(), table)
        models.append(chosen_model(question, choice))
        choices[wanted.model or ""] = choice
    return Chosen(replace(spec, models=tuple(models)), choices)


def for_their_devices(questions: Sequence[Question], table: LossTable) -> list[Question]:
    """Return each model's question for those devices that can hold the model."""
    refusals = [
        [refusal_on(replace(question, devices=(device,)), table) for device in question.devices]
        for question in questions
    ]
    holding = holders(questions[0].devices, refusals)
    return [
        replace(question, devices=devices)
        for question, devices in zip(questions, holding, strict=True)
    ]


def refusal_on(question: Question, table: LossTable) -> UserError | None:
    """Return why the one device cannot hold a model, whatever is open of its cache."""
    [wanted] = question.spec.models
    try:
        if wanted.is_open:
            chosen_model(question, candidates_of(question, model_catalogue(), table))
        elif question.model is not None:
            workload = workload_of(question.model, wanted.cache)
            devices_of_each([workload], question.devices)
    except UserError as error:
        if error.code != ExitCode.MEMORY:
            raise
        return error
    return None


def show_candidates(spec: PackageSpec, criteria: Criteria, say: ProgressReporter) -> Choice:
    """Return the candidates for a spec of one model; none of them is chosen if none fits.

    Raises:
        UserError: no device is named, or one of them or the model is unknown.

    """
    [question] = questions_of(spec, criteria, say)
    say("choosing")
    return candidates_of(question, model_catalogue(), read_losses(criteria.losses))


def chosen_plan(spec: PackageSpec, criteria: Criteria, say: ProgressReporter) -> ChosenPlan:
    """Choose a model and its cache, and hold the devices against their plan.

    Raises:
        UserError: no device is named, or nothing fits.

    """
    devices = devices_for(spec)
    chosen = choose(spec, criteria, say)
    [wanted], [choice] = chosen.spec.models, chosen.choices.values()
    workload = workload_of(find_model(wanted, say, stated=True), wanted.cache)
    known = device_catalogue(spec.devices.file)
    plan = plan_result([planned_model(workload, devices, known, model_catalogue())])
    return ChosenPlan(models=plan.models, loaded=plan.loaded, size=plan.size, choice=choice)


def devices_for(spec: PackageSpec) -> tuple[Device, ...]:
    """Return the devices that a choice is for.

    Raises:
        UserError: none is named, or one is unknown.

    """
    if not spec.devices.names:
        raise UserError(
            "the model and the rows are not both given, and no device is",
            remedy="Give --model and --max-kv, or --device: what is left out is then chosen.",
            code=ExitCode.USAGE,
        )
    return named_devices(spec.devices)


def questions_of(
    spec: PackageSpec, criteria: Criteria, say: ProgressReporter
) -> list[Question]:
    """Find the devices and the models that are named, and return a question for each model.

    Raises:
        UserError: no device is named, or devices or models are unknown; all together.

    """
    problems = Problems()
    devices: tuple[Device, ...] = ()
    with problems.caught():
        devices = devices_for(spec)
    questions = []
    for wanted in spec.models:
        with problems.caught():
            model = find_model(wanted, say, stated=True) if wanted.model and devices else None
            speed = criteria.min_speed or 0.0
            questions.append(Question(spec.of(wanted), devices, model, speed))
    problems.refuse()
    return questions


def refuse_without_choice(criteria: Criteria) -> None:
    """Refuse options of a choice where nothing is left open."""
    flags = [
        flag
        for flag, value in (("--min-speed", criteria.min_speed), ("--losses", criteria.losses))
        if value is not None
    ]
    if flags:
        raise UserError(
            f"{' and '.join(flags)}: nothing is left to choose",
            remedy="Leave --model or --max-kv out, or these options.",
            code=ExitCode.USAGE,
        )


def candidates_of(question: Question, models: Sequence[KnownModel], table: LossTable) -> Choice:
    """Choose the largest model that fits with a margin, and the least lossy cache for it.

    Args:
        question: what is given and what is open.
        models: the catalogue, which counts where no model is given.
        table: of measured losses, by which caches are put in order.

    Returns:
        All candidates. None of them is chosen where no model fits.

    Raises:
        UserError: a device's limit is unknown.

    """
    for device in question.devices:
        limit_of(device)
    if question.model is not None:
        candidates = [of_model(question, question.model.id, question.model, table)]
    else:
        candidates = of_catalogue(question, models, table)
    chosen = next((own for model, own in candidates if model.refused is None), None)
    if chosen is None:
        chosen = candidates[0][1] if len(candidates) == 1 else []
    return Choice(
        devices=tuple(device.title for device in question.devices),
        context=question.tokens,
        min_speed=question.min_speed,
        margin=TIGHT,
        losses_of=table.model,
        models=tuple(model for model, _ in candidates),
        caches=tuple(chosen),
    )


def of_catalogue(
    question: Question, models: Sequence[KnownModel], table: LossTable
) -> list[Candidates]:
    """Look at the catalogue from the largest model down; the first that fits is taken."""
    candidates: list[Candidates] = []
    taken = False
    for known in sorted(models, key=lambda model: model.weights_bytes, reverse=True):
        model = as_model(known)
        size = None
        if model is None:
            refusal = Refusal("no shapes", "not stated: name it with --model")
        elif taken:
            refusal = Refusal("smaller", "smaller")
            size = app_size(model_bytes(model), apart=question.spec.delivery.apart)
        else:
            candidates.append(of_model(question, known.name, model, table))
            taken = candidates[-1][0].refused is None
            continue
        refused = ModelCandidate(known.name, known.weights_bytes, size, None, refusal)
        candidates.append((refused, []))
    return candidates


def of_model(question: Question, name: str, model: Model, table: LossTable) -> Candidates:
    """Return a model with the best of its caches, or why it was refused."""
    weights = model.weights.bytes
    size = app_size(model_bytes(model), apart=question.spec.delivery.apart)
    refusal = unsuitable(question, model)
    if refusal is not None:
        return ModelCandidate(name, weights, size, None, refusal), []
    own = caches(question, model, table)
    best = own[0]
    if best.refused is None:
        return ModelCandidate(name, weights, size, best, None), own
    reasons = [cache.refused for cache in own if cache.refused is not None]
    gravest = next((why for why in reasons if why.reason in ("speed", "memory")), best.refused)
    return ModelCandidate(name, weights, size, None, gravest), own


def unsuitable(question: Question, model: Model) -> Refusal | None:
    """Return what rules a model out before any of its caches is planned."""
    config, weights = model.config, model.weights.bytes
    if question.tokens > config.context:
        return Refusal("context", f"attends to {config.context:,} tokens")
    known = architectures().get(config.model_type)
    version = question.spec.upstream or next(iter(upstream_versions()))
    if known and known.upstream_versions and version not in known.upstream_versions:
        return Refusal("upstream", f"mlx-swift-lm {version} has no {config.model_type}")
    limit = limit_exceeded(model_bytes(model), question.spec.delivery)
    if limit is not None and question.model is None:
        return Refusal("app size", f"larger than {gigabytes(limit.bytes)} GB, an app's most")
    least = weights + APP + BUFFER_CACHE
    for device in question.devices:
        if least > (1 - TIGHT) * limit_of(device):
            says = f"{gigabytes(least)} GB without a cache, {room_on(device)}"
            return Refusal("memory", says)
    return None


def chosen_model(question: Question, choice: Choice) -> ModelSpec:
    """Return the model and the cache that were chosen.

    Raises:
        UserError: nothing fits; names the smallest model that was looked at, and why.

    """
    [wanted] = question.spec.models
    taken = choice.chosen
    if taken is not None and taken.cache is not None:
        cache = taken.cache
        filled = question.filled(cache.max_kv, cache.kv, recall=cache.recall)
        return replace(wanted, model=wanted.model or taken.model, cache=filled)
    looked_at = [model for model in choice.models if model.refused is not None]
    last = next((model for model in reversed(looked_at) if model.weights), looked_at[-1])
    why = last.refused.says if last.refused else ""
    raise UserError(
        f"no model fits for {choice.context:,} tokens on {' and '.join(choice.devices)}: "
        f"{last.model}: {why}",
        remedy="`h2o-pack choose` shows each candidate with its reason. Give a shorter "
        "--context, a lower --min-speed, or a smaller model.",
        code=ExitCode.MEMORY,
    )
