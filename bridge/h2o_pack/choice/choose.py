"""Chooses the open settings of a spec by its devices, the catalogue and measured losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from h2o_pack.bundling.delivery import AppSize, app_size, limit_exceeded, model_bytes
from h2o_pack.choice.choice import (
    CacheCandidate,
    Choice,
    ModelCandidate,
    Reason,
    Refusal,
)
from h2o_pack.choice.losses import WHOLE, LossTable, read_losses
from h2o_pack.devices.catalogue import Device, named_devices
from h2o_pack.errors import ExitCode, Problems, UserError, memory_error, usage_error
from h2o_pack.facts import KnownModel, best_first
from h2o_pack.hub.resolve import find_model
from h2o_pack.memory.estimate import APP, BUFFER_CACHE
from h2o_pack.model import Model
from h2o_pack.models.catalogue import as_model
from h2o_pack.models.catalogue import catalogue as model_catalogue
from h2o_pack.plan.device_fit import TIGHT, holders
from h2o_pack.plan.device_fit import refusal as refusal_of_device
from h2o_pack.plan.speed import estimate, floor
from h2o_pack.plan.workload import ROWS, Workload, largest, of_eviction, workload_of
from h2o_pack.progress import ProgressReporter
from h2o_pack.sizes import gigabytes
from h2o_pack.spec import LONG_CONVERSATION, CacheSpec, ModelSpec, PackageSpec
from h2o_py.storages import STORAGE_BITS, storage_name

LEAST_SPEED = 10.0
"""Tokens per second that a chosen model still generates after ten minutes, unless the user says
otherwise: about as fast as people read."""


@dataclass(frozen=True)
class Question:
    """A choice to make: a spec with one model, some of whose settings are open.

    devices: the choice must fit on all of them. model: None if it is open. min_speed: tokens
    per second after ten minutes.
    """

    spec: PackageSpec
    devices: tuple[Device, ...]
    model: Model | None = None
    min_speed: float = 0.0

    @property
    def cache(self) -> CacheSpec:
        """The given settings of the cache."""
        return self.spec.models[0].cache

    @property
    def tokens(self) -> int:
        """Tokens of the longest conversation; at most the model's context by default."""
        if self.cache.context is not None:
            return self.cache.context
        if self.model is None:
            return LONG_CONVERSATION
        return min(LONG_CONVERSATION, self.model.config.context)

    def filled(self, rows: int | None, kv: str) -> CacheSpec:
        """Return the cache with `rows` rows, or with all if it is None."""
        return replace(self.cache, max_kv=rows, kv=kv, context=self.tokens).filled()


def limit_of(device: Device) -> int:
    """Return the bytes that an app may use with both entitlements; UserError if unknown."""
    if device.limit_entitled is not None:
        return device.limit_entitled
    raise usage_error(
        f"it is unknown how much memory an app may use on {device.title}",
        'Add the limit to a file of your own (--devices FILE): { of = "'
        + device.identifier
        + '", what = "entitled", ... }.',
        where=device.identifier,
    )


def room_on(device: Device) -> str:
    """Return a sentence with the bytes for which a device has room."""
    return f"{device.title} has room for {gigabytes((1 - TIGHT) * limit_of(device))} GB"


@dataclass(frozen=True)
class Trial:
    """A cache that was planned on all devices.

    tightest: the device on which the smallest share of memory stays free. slowest: the device
    with the fewest tokens per second; an unknown speed comes first.
    """

    cache: CacheCandidate
    tightest: Device
    slowest: Device


@dataclass(frozen=True)
class Search:
    """Looks for the largest cache of one storage."""

    question: Question
    model: Model
    table: LossTable
    kv: str

    def workload(self, rows: int | None) -> Workload:
        """Return the workload of the cache with `rows` rows, None: all."""
        return workload_of(self.model, self.question.filled(rows, self.kv))

    def sustained(self, workload: Workload) -> list[float | None]:
        """Return the tokens per second after ten minutes on each device; None if unknown."""
        speeds = [estimate(workload, device) for device in self.question.devices]
        return [None if speed is None else floor(speed) for speed in speeds]

    def trial(self, rows: int | None) -> Trial:
        """Plan the cache with `rows` rows, None: all; all devices' limits must be known."""
        workload, devices = self.workload(rows), self.question.devices
        needed = [workload.plan(device.backend).total for device in devices]
        limits = [limit_of(device) for device in devices]
        free = [(most - size) / most for most, size in zip(limits, needed, strict=True)]
        sustained = self.sustained(workload)
        tightest = free.index(min(free))
        slowest = min(range(len(devices)), key=lambda place: sustained[place] or 0.0)
        share = 1.0 if rows is None else min(1.0, rows / self.question.tokens)
        cache = CacheCandidate(
            kv=self.kv,
            max_kv=rows,
            share=round(share, 4),
            recall=workload.recall is not None,
            needed=needed[tightest],
            headroom_share=round(free[tightest], 4),
            sustained=sustained[slowest],
            loss=self.table.loss(self.kv, share, recall=self.recalls),
        )
        return Trial(cache, devices[tightest], devices[slowest])

    @property
    def recalls(self) -> bool:
        """Whether a cache that evicts recalls."""
        return bool(self.question.filled(self.question.tokens, self.kv).recall)

    @property
    def may_keep_all(self) -> bool:
        """Whether the cache may be one that keeps every token."""
        return not of_eviction(self.question.filled(None, self.kv))

    def serves(self, rows: int | None) -> bool:
        """Whether `rows` rows are fast enough and leave the margin free on all devices.

        The speed is checked first, because the memory takes much longer to plan.
        """
        speeds, least = self.sustained(self.workload(rows)), self.question.min_speed
        is_fast = all((speed or 0.0) >= least for speed in speeds)
        return is_fast and self.trial(rows).cache.headroom_share >= TIGHT

    def most_rows(self, least: int) -> int | None:
        """Return the most rows that fit, None if all do; 0 if `least` rows do not fit."""
        tokens = self.question.tokens
        if self.may_keep_all and self.serves(None):
            return None
        if self.serves(tokens):
            return tokens
        if not self.serves(least):
            return 0
        return max(least, largest(tokens, self.serves, ROWS))


def caches(question: Question, model: Model, table: LossTable) -> list[CacheCandidate]:
    """Return a candidate for each storage: first the candidates that fit, by their losses.

    Of the candidates that fit, all except the first are refused because they lose more.
    """
    kv = question.cache.kv
    names = STORAGE_BITS if kv is None else (storage_name(kv),)
    candidates = [candidate(question, model, name, table) for name in names]
    serving = sorted((cache for cache in candidates if cache.refused is None), key=by_loss)
    if serving:
        best = serving[0]
        serving[1:] = [replace(cache, refused=loses_more(cache, best)) for cache in serving[1:]]
    return [*serving, *(cache for cache in candidates if cache.refused is not None)]


def by_loss(candidate: CacheCandidate) -> tuple[bool, float, int]:
    """Return the key that orders candidates; with equal losses, the smaller cache is first."""
    lost, kl = candidate.loss.order if candidate.loss else (True, math.inf)
    return lost, kl, candidate.needed


def candidate(question: Question, model: Model, kv: str, table: LossTable) -> CacheCandidate:
    """Return the largest cache of a storage that fits, or why none does."""
    tokens, cache = question.tokens, question.cache
    search = Search(question, model, table, kv)
    points = table.points(kv, recall=search.recalls)
    if cache.max_kv is None and not points:
        return refused(kv, "not measured", f"was not measured on {table.model}")
    fewest = math.ceil(min(points, default=WHOLE) * tokens)
    try:
        rows = search.most_rows(fewest) if cache.max_kv is None else cache.max_kv
        if cache.max_kv and not search.serves(rows):
            fewest, rows = cache.max_kv, 0
        if rows == 0:
            return too_large(search, fewest)
        return search.trial(rows).cache
    except UserError as error:
        return refused(kv, "storage", error.what)


def too_large(search: Search, rows: int) -> CacheCandidate:
    """Explain why a storage does not fit even with the fewest rows."""
    trial, least = search.trial(rows), search.question.min_speed
    cache = trial.cache
    if cache.headroom_share < TIGHT:
        need, room = gigabytes(cache.needed), room_on(trial.tightest)
        return refused(search.kv, "memory", f"needs {need} GB with {rows:,} rows, but {room}")
    speed = "unknown" if cache.sustained is None else f"{cache.sustained:.0f}"
    where = trial.slowest.title
    says = f"{speed} tokens/s on {where}, less than {least:g}"
    return refused(search.kv, "speed", says)


def loses_more(candidate: CacheCandidate, best: CacheCandidate) -> Refusal:
    """Return why a candidate that fits comes behind the best."""
    if candidate.loss is None or best.loss is None:
        return Refusal("not measured", "was not measured with so few rows")
    if candidate.loss.loses_answers and not best.loss.loses_answers:
        return Refusal("loses more", f"loses answers that {best.kv} keeps")
    if candidate.loss.order == best.loss.order:
        return Refusal("loses more", f"not better than {best.kv}, and larger")
    return Refusal("loses more", f"loses more than {best.kv}")


def refused(kv: str, reason: Reason, says: str) -> CacheCandidate:
    """Return a candidate that cannot be chosen."""
    return CacheCandidate(kv, refused=Refusal(reason, says))


Candidates = tuple[ModelCandidate, list[CacheCandidate]]
"""A model with all of its caches, the best first."""


@dataclass(frozen=True)
class Criteria:
    """The criteria of a choice.

    min_speed: tokens per second after ten minutes; None for `LEAST_SPEED` if the model is open.
    losses: the user's own table; None for facts/losses.json.
    """

    min_speed: float | None = None
    losses: Path | None = None


@dataclass(frozen=True)
class Chosen:
    """A spec with no open settings, and the choice for each --model ("" if none was given)."""

    spec: PackageSpec
    choices: Mapping[str, Choice] = field(default_factory=dict)


def choose(spec: PackageSpec, criteria: Criteria, say: ProgressReporter) -> Chosen:
    """Choose the open settings of each model, for the devices on which it fits.

    Raises UserError: a setting is open and no device is named, no model fits on a device, or a
    model fits on none of the devices.
    """
    if not any(map(spec.is_open, spec.models)):
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
        model_spec = question.spec.models[0]
        if not spec.is_open(model_spec):
            models.append(model_spec.filled())
            continue
        choice = candidates_of(question, model_catalogue(), table)
        models.append(chosen_model(question, choice))
        choices[model_spec.model or ""] = choice
    return Chosen(replace(spec, models=tuple(models)), choices)


def for_their_devices(questions: Sequence[Question], table: LossTable) -> list[Question]:
    """Return the questions, each with only the devices on which its model fits."""
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
    """Return why the only device cannot run a model with any cache."""
    [model], [device] = question.spec.models, question.devices
    if question.model is not None and not question.spec.is_open(model):
        return refusal_of_device(workload_of(question.model, model.cache), device)
    try:
        chosen_model(question, candidates_of(question, model_catalogue(), table))
    except UserError as error:
        if error.code != ExitCode.MEMORY:
            raise
        return error
    return None


def show_candidates(spec: PackageSpec, criteria: Criteria, say: ProgressReporter) -> Choice:
    """Return the candidates for a spec of one model; none of them is chosen if none fits."""
    [question] = questions_of(spec, criteria, say)
    say("choosing")
    return candidates_of(question, model_catalogue(), read_losses(criteria.losses))


def devices_for(spec: PackageSpec) -> tuple[Device, ...]:
    """Return the devices for which to choose; UserError if none is named or one is unknown."""
    if not spec.devices.names:
        raise usage_error(
            "neither --model nor --device is given",
            "Give --model, or give --device: h2o-pack then chooses the options that you "
            "leave out.",
        )
    return named_devices(spec.devices)


def questions_of(
    spec: PackageSpec, criteria: Criteria, say: ProgressReporter
) -> list[Question]:
    """Return a question for each model; UserError for all unknown models and devices."""
    problems = Problems()
    devices: tuple[Device, ...] = ()
    with problems.caught():
        devices = devices_for(spec)
    questions = []
    for model_spec in spec.models:
        with problems.caught():
            is_named = model_spec.model and devices
            model = find_model(model_spec, say, stated=True) if is_named else None
            speed = criteria.min_speed
            if speed is None:
                is_known = all(device.bandwidth is not None for device in devices)
                speed = LEAST_SPEED if model is None and is_known else 0.0
            questions.append(Question(spec.of(model_spec), devices, model, speed))
    problems.refuse()
    return questions


def refuse_without_choice(criteria: Criteria) -> None:
    """Raise UserError for options that only a choice uses, if no setting is open."""
    flags = [
        flag
        for flag, value in (("--min-speed", criteria.min_speed), ("--losses", criteria.losses))
        if value is not None
    ]
    if flags:
        raise usage_error(
            f"{' and '.join(flags)} cannot be used, because nothing is left to choose",
            "Give --device, and leave out --model or --max-kv, or leave out these options.",
        )


def candidates_of(question: Question, models: Sequence[KnownModel], table: LossTable) -> Choice:
    """Choose the best model that fits with a margin, and its cache with the smallest loss.

    models: the catalogue, which is used if no model is given. None of the candidates is chosen
    if no model fits. Raises UserError: a device's limit is unknown.
    """
    for device in question.devices:
        limit_of(device)
    if question.model is not None:
        candidates = [of_model(question, question.model.id, question.model, table)]
    else:
        candidates = of_catalogue(question, models, table)
    own_caches = next((own for model, own in candidates if model.refused is None), None)
    if own_caches is None:
        own_caches = candidates[0][1] if len(candidates) == 1 else []
    return Choice(
        devices=tuple(device.title for device in question.devices),
        context=question.tokens,
        min_speed=question.min_speed,
        margin=TIGHT,
        losses_of=table.model,
        models=tuple(model for model, _ in candidates),
        caches=tuple(own_caches),
    )


def of_catalogue(
    question: Question, models: Sequence[KnownModel], table: LossTable
) -> list[Candidates]:
    """Check the catalogue from the best model down; the first that fits is chosen."""
    candidates: list[Candidates] = []
    has_fit = False
    for entry in best_first(models):
        model = as_model(entry)
        size = None
        if model is None:
            refusal = Refusal("no shapes", "its layers are not stated: give it as --model")
        elif has_fit:
            refusal = Refusal("lower quality", "lower published quality")
            size = size_of_app(question, model)
        else:
            candidate, own_caches = of_model(question, entry.name, model, table)
            candidates.append((replace(candidate, quality=entry.quality), own_caches))
            has_fit = candidate.refused is None
            continue
        refused = ModelCandidate(
            entry.name, entry.weights_bytes, size, None, refusal, entry.quality
        )
        candidates.append((refused, []))
    return candidates


def of_model(question: Question, name: str, model: Model, table: LossTable) -> Candidates:
    """Return a model with the best of its caches, or why it was refused."""
    weights = model.weights.bytes
    size = size_of_app(question, model)
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


def size_of_app(question: Question, model: Model) -> AppSize:
    """Return the size of an app whose only model is this one."""
    spec = question.spec
    return app_size(model_bytes(model), apart=spec.delivery.apart)


def unsuitable(question: Question, model: Model) -> Refusal | None:
    """Return why a model is excluded before its caches are planned; None if it is not."""
    config, weights = model.config, model.weights.bytes
    if question.tokens > config.context:
        return Refusal("context", f"can attend to only {config.context:,} tokens")
    spec = question.spec
    limit = limit_exceeded(model_bytes(model), spec.delivery)
    if limit is not None and question.model is None:
        return Refusal(
            "app size",
            f"over the store's {gigabytes(limit.bytes)} GB",
        )
    least = weights + APP + BUFFER_CACHE
    for device in question.devices:
        if least > (1 - TIGHT) * limit_of(device):
            says = f"needs {gigabytes(least)} GB without a cache, but {room_on(device)}"
            return Refusal("memory", says)
    return None


def chosen_model(question: Question, choice: Choice) -> ModelSpec:
    """Return the chosen model and cache; UserError says why nothing fits."""
    [open_model] = question.spec.models
    best = choice.chosen
    if best is not None and best.cache is not None:
        cache = best.cache
        filled = question.filled(cache.max_kv, cache.kv)
        return replace(open_model, model=open_model.model or best.model, cache=filled)
    *_, last = [model for model in choice.models if model.weights] or choice.models
    why = last.refused.says if last.refused else ""
    raise memory_error(
        f"no model fits for {choice.context:,} tokens on {' and '.join(choice.devices)}; the "
        f"smallest, {last.model}: {why}",
        "`h2o-pack plan` without --model shows each candidate and its reason. Give a shorter "
        "--context, a lower --min-speed, or a smaller model.",
    )
