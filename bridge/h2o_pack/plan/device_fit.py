"""Computes whether models fit on devices, how fast they are, and which settings would fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from h2o_pack.bundling.delivery import AppSize, app_size, model_bytes
from h2o_pack.devices.catalogue import (
    BANDWIDTH,
    DEFAULT,
    ENTITLED,
    Catalogue,
    Device,
    Number,
    What,
    catalogue,
    named_devices,
)
from h2o_pack.errors import Problems, UserError, memory_error, usage_error
from h2o_pack.hub.resolve import find_model
from h2o_pack.measure.bench_result import BenchResult
from h2o_pack.memory.cache_bytes import token_bytes
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.model import Model
from h2o_pack.plan.advice import advice
from h2o_pack.plan.measured import Measured, compare, measured_device, read_measured
from h2o_pack.plan.speed import (
    Calibration,
    RecallPlan,
    Speed,
    calibration,
    estimate,
    recall_plan,
    rules,
)
from h2o_pack.plan.workload import Workload, known_fitting, workload_of
from h2o_pack.progress import ProgressReporter
from h2o_pack.results import Count, Result, doc
from h2o_pack.sizes import gigabytes
from h2o_pack.spec import PackageSpec, refuse_with_several

Fit = Literal["fits", "tight", "does not fit", "unknown"]
TIGHT = 0.1  # share of the limit to leave free, as estimates may be wrong by as much
STEPS = (256, 128, 64)
COMPACT = ("8", "k8v4", "4")
FULL = ("16", *COMPACT)


@dataclass(frozen=True)
class Verdict:
    """A plan compared with a limit."""

    limit: Annotated[int | None, doc("Bytes that an app may use; null if unknown.")]
    headroom: Annotated[
        int | None,
        doc("Limit minus the bytes that the app needs; null if the limit is unknown."),
    ]
    headroom_share: Annotated[float | None, doc("Headroom as a share of the limit.")]
    verdict: Annotated[
        Fit, doc("Verdict; tight means that less than a tenth of the limit remains.")
    ]


def verdict(size: int, limit: int | None) -> Verdict:
    """Compare needed bytes with a limit in bytes; an unknown limit is None."""
    if limit is None:
        return Verdict(None, None, None, "unknown")
    share = (limit - size) / limit
    fit: Fit = "does not fit" if share < 0 else "tight" if share < TIGHT else "fits"
    return Verdict(limit, limit - size, round(share, 4), fit)


@dataclass(frozen=True)
class Capacity:
    """The largest settings that fit with both entitlements.

    A field is 0 or empty if nothing fits or the limit is unknown.
    """

    max_kv: Annotated[Count, doc("Most rows per layer.")] = 0
    context: Annotated[
        Count, doc("Most tokens of a conversation with caches that keep every token.")
    ] = 0
    model: Annotated[str, doc("Best known model that fits with the same settings.")] = ""


@dataclass(frozen=True)
class DeviceFit:
    """The plan of a model compared with one device."""

    identifier: Annotated[str, doc("Identifier of the device.")]
    name: Annotated[str, doc("Name of the device, with its storage if the RAM depends on it.")]
    chip: Annotated[str, doc("Chip of the device.")]
    ram: Annotated[int | None, doc("Bytes of RAM; null if unknown.")]
    backend: Annotated[str, doc("Name of the backend whose plan applies.")]
    needed: Annotated[Count, doc("Bytes that the app needs.")]
    default: Annotated[Verdict, doc("Plan compared with the limit of any app.")]
    entitled: Annotated[
        Verdict, doc("Plan compared with the limit of an app with both memory entitlements.")
    ]
    speed: Annotated[
        Speed | None,
        doc("Estimated speed; null if the bandwidth is unknown or the model is tiny."),
    ]
    largest: Annotated[Capacity, doc("Largest settings that fit.")]
    remedies: Annotated[
        tuple[str, ...], doc("Options with which the model would fit; empty if it fits.")
    ]
    sources: Annotated[tuple[Number, ...], doc("Sources of the limits and the bandwidth.")]

    def source(self, what: What) -> Number | None:
        """The number that the plan uses, with its source; None if it is unknown."""
        return next((source for source in self.sources if source.what == what), None)


@dataclass(frozen=True)
class FullCache:
    """A cache that keeps every token, in a storage with which it fits."""

    kv: Annotated[str, doc("Storage of its rows.")]
    devices: Annotated[
        tuple[str, ...], doc("Identifiers of devices on which a tenth of the limit stays free.")
    ]


@dataclass(frozen=True, kw_only=True)
class PlannedModel:
    """The memory of one model on devices."""

    model: Annotated[str, doc("Hub id, short name or folder name.")]
    commit: Annotated[str, doc("Commit on the hub; empty for folders.")]
    model_type: Annotated[str, doc("Model type in config.json.")]
    layers: Annotated[Count, doc("Decoder layers.")]
    evicting_layers: Annotated[Count, doc("Layers whose cache evicts.")]
    max_kv: Annotated[int | None, doc("Rows per layer; null if caches keep every token.")]
    kv: Annotated[str, doc("Storage of rows.")]
    context: Annotated[Count, doc("Tokens of the longest conversation.")]
    prefill_step: Annotated[Count, doc("Tokens of a prompt that the model reads at once.")]
    plans: Annotated[tuple[MemoryPlan, ...], Meta(min_length=1), doc("One plan per backend.")]
    size: Annotated[AppSize, doc("Size of an app with only this model.")]
    recall: Annotated[RecallPlan | None, doc("Costs of recall; null without recall.")]
    full_cache: Annotated[
        FullCache | None,
        doc(
            "A cache that keeps every token and fits; null if none fits or max_kv rows "
            "already keep every token. Without max_kv, it fits on more devices than the "
            "planned one."
        ),
    ]
    devices: Annotated[tuple[DeviceFit, ...], doc("How the plan fits on each device.")]
    advice: Annotated[tuple[str, ...], doc("Notes on the settings.")]
    speed_rule: Annotated[Mapping[str, float], doc("Constants of the speed estimate.")]
    calibration: Annotated[
        tuple[Calibration, ...], doc("Estimated speeds compared with published ones.")
    ]
    measured: Annotated[
        Measured | None,
        doc("Measurements of a device compared with the plan; null without --measured."),
    ] = None


@dataclass(frozen=True)
class LoadedModel:
    """The model that the app loads on a device, with both memory entitlements."""

    identifier: Annotated[str, doc("Identifier of the device.")]
    name: Annotated[str, doc("Name of the device, with its storage if the RAM depends on it.")]
    model: Annotated[
        str | None, doc("Largest model that fits; null if none fits or the limit is unknown.")
    ]
    verdict: Annotated[
        Fit, doc("Verdict on that model, or on the smallest model if none fits.")
    ]


@dataclass(frozen=True, kw_only=True)
class PlanResult(Result):
    """The memory of a package's models on devices."""

    models: Annotated[
        tuple[PlannedModel, ...], Meta(min_length=1), doc("Models, the largest first.")
    ]
    loaded: Annotated[tuple[LoadedModel, ...], doc("Model that the app loads on each device.")]
    size: Annotated[AppSize, doc("Size of an app with all models.")]


def plan_on_devices(
    spec: PackageSpec,
    say: ProgressReporter,
    *,
    every: bool = False,
    measured: Path | None = None,
) -> PlanResult:
    """Plan the models of a spec; without a number of rows, caches keep every token.

    every: if no device is named, plan for all devices instead of one of each kind. measured: a
    file of measurements of the only model. Raises UserError: all errors in the spec, together.
    """
    problems, report, names = Problems(), None, spec.devices.names
    with problems.caught():
        refuse_with_several(spec, measured=measured is not None)
        report = None if measured is None else read_measured(measured)
    with problems.caught():
        entries = catalogue(spec.devices.file)
        if report is not None:
            names = (*names, measured_device(report, entries).identifier)
        devices = named_devices(replace(spec.devices, names=names), entries)
    models = []
    for model_spec in spec.models:
        with problems.caught():
            models.append(find_model(model_spec, say, stated=True))
    problems.refuse()
    if not names:
        devices = entries.all_devices() if every else one_of_each_kind(entries.all_devices())
    return plan_models(spec, models, devices, entries, report)


def plan_models(
    spec: PackageSpec,
    models: Sequence[Model],
    devices: tuple[Device, ...],
    entries: Catalogue,
    report: BenchResult | None = None,
) -> PlanResult:
    """Plan the models of a spec on devices; UserError for all errors, together."""
    refuse_duplicates(models)
    planned, problems = [], Problems()
    for model_spec, model in zip(spec.models, models, strict=True):
        with problems.caught():
            workload = workload_of(model, model_spec.cache)
            planned.append(planned_model(workload, devices, entries, report))
    problems.refuse()
    return plan_result(planned)


def refuse_duplicates(models: Sequence[Model]) -> None:
    """Raise UserError if a model is given twice."""
    sources = []
    for model in models:
        source = (model.id, model.commit, model.folder)
        if source in sources:
            raise usage_error(f"{model.id} is given twice", "Give each model once.")
        sources.append(source)


def plan_result(models: Sequence[PlannedModel]) -> PlanResult:
    """Combine the plans of a package's models, which are for the same devices."""
    ordered = sorted(models, key=lambda model: model.plans[0].weights, reverse=True)
    rows = zip(*(model.devices for model in ordered), strict=True)
    names = [model.model for model in ordered]
    return PlanResult(
        models=tuple(ordered),
        loaded=tuple(loaded_model(names, fits) for fits in rows),
        size=app_size(sum(model.size.models for model in ordered)),
    )


def loaded_model(models: Sequence[str], fits: Sequence[DeviceFit]) -> LoadedModel:
    """Return the model that the app's `load()` chooses on a device.

    models: names, the largest first. fits: how each of them fits on this device.
    """
    device = fits[-1]
    for model, fit in zip(models, fits, strict=True):
        if fit.entitled.verdict in ("fits", "tight"):
            return LoadedModel(device.identifier, device.name, model, fit.entitled.verdict)
    return LoadedModel(device.identifier, device.name, None, device.entitled.verdict)


def planned_model(
    workload: Workload,
    devices: tuple[Device, ...],
    entries: Catalogue,
    report: BenchResult | None = None,
) -> PlannedModel:
    """Plan a model on the backends of all devices, and compare the plans with the devices.

    report: a device's measurements of this model, None without one.
    """
    measured = None
    if report is not None:  # first, because it may be refused
        measured = compare(report, workload, measured_device(report, entries))
    backends = tuple(dict.fromkeys(device.backend for device in devices)) or ("iphone",)
    plans = tuple(workload.plan(backend) for backend in backends)
    model = workload.model
    largest = lru_cache(partial(capacity, workload))  # many devices have the same limit
    return PlannedModel(
        model=model.id,
        commit=model.commit,
        model_type=model.config.model_type,
        layers=len(model.config.layers),
        evicting_layers=sum(cache is not None and cache.evicts for cache in workload.caches),
        max_kv=workload.max_kv or None,
        kv=plans[0].kv,
        context=plans[0].context,
        prefill_step=plans[0].prefill_step,
        plans=plans,
        size=app_size(model_bytes(model)),
        recall=recall_plan(workload),
        full_cache=full_cache(workload, devices),
        devices=tuple(
            device_fit(workload, device, largest(device.limit_entitled, device.backend))
            for device in devices
        ),
        advice=advice(workload),
        speed_rule=rules(),
        calibration=calibration(entries),
        measured=measured,
    )


def full_cache(workload: Workload, devices: Sequence[Device]) -> FullCache | None:
    """Return the cache that keeps every token and fits on the most devices.

    Of storages that fit on equally many devices, the one with the most bits is used. Returns
    None if no such cache fits, or if the planned rows already keep every token. Without a
    number of rows, the returned cache fits on more devices than the planned one.
    """
    if workload.max_kv >= workload.tokens:
        return None
    best = None
    most = 0 if workload.max_kv else sum(holds(workload, device) for device in devices)
    for kv in FULL:
        if kv not in token_bytes(workload.config):
            continue
        whole = workload.without_recall().with_max_kv(0).with_kv(kv)
        holding = tuple(device.identifier for device in devices if holds(whole, device))
        if len(holding) > most:
            best, most = FullCache(kv, holding), len(holding)
    return best


def holds(workload: Workload, device: Device) -> bool:
    """Return whether a plan fits on a device and leaves a tenth of its limit free."""
    total = workload.plan(device.backend).total
    return verdict(total, device.limit_entitled).verdict == "fits"


def device_fit(workload: Workload, device: Device, most: Capacity) -> DeviceFit:
    """Compare a plan with one device; most: the largest settings that fit on it."""
    plan = workload.plan(device.backend)
    entitled = verdict(plan.total, device.limit_entitled)
    over = entitled.verdict == "does not fit" and entitled.limit is not None
    numbers = (device.number(what) for what in (DEFAULT, ENTITLED, BANDWIDTH))
    return DeviceFit(
        identifier=device.identifier,
        name=device.title,
        chip=device.chip,
        ram=device.ram,
        backend=device.backend,
        needed=plan.total,
        default=verdict(plan.total, device.limit),
        entitled=entitled,
        speed=estimate(workload, device),
        largest=most,
        remedies=tuple(remedies(workload, entitled.limit or 0, device.backend)) if over else (),
        sources=tuple(number for number in numbers if number is not None),
    )


def capacity(workload: Workload, limit: int | None, backend: str) -> Capacity:
    """Return the largest settings that fit into a limit in bytes; an unknown limit is None."""
    if limit is None:
        return Capacity()
    model = known_fitting(workload, limit, backend)
    return Capacity(
        workload.largest_max_kv(limit, backend),
        workload.largest_context(limit, backend),
        model.name if model is not None else "",
    )


def one_of_each_kind(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return one device for each kind: devices with the same chip and the same numbers."""
    kinds: dict[Any, Device] = {}
    for device in devices:
        numbers = (device.limit, device.limit_entitled, device.bandwidth)
        kinds.setdefault((device.chip, *numbers), device)
    return tuple(kinds.values())


def remedies(workload: Workload, limit: int, backend: str) -> Iterator[str]:
    """Yield settings that fit into the limit; settings that harm answers least come first."""

    def fits(changed: Workload) -> bool:
        return changed.fits(limit, backend)

    if workload.recall is not None:
        files = replace(workload, archive_in_files=True)
        if not workload.archive_in_files and fits(files):
            yield "--archive files"
        if fits(workload.without_recall()):
            yield "--no-recall"
    for step in STEPS:
        if step < workload.step and fits(replace(workload, step=step)):
            yield f"--prefill-step {step}"
            break
    if workload.kv == "16":
        storages = token_bytes(workload.config)
        for kv in COMPACT:
            if kv in storages and fits(workload.with_kv(kv)):
                yield f"--kv {kv}"
                break
    rows = workload.largest_max_kv(limit, backend)
    if rows and (rows < workload.max_kv or not workload.max_kv):
        yield f"--max-kv {rows}"
    model = known_fitting(workload, limit, backend)
    if model is not None and workload.model.id not in (model.name, model.hub):
        yield f"--model {model.name}"


def refusal(workload: Workload, device: Device) -> UserError | None:
    """Return why a device cannot hold a plan even with both entitlements; None if it can."""
    plan = workload.plan(device.backend)
    limit = device.limit_entitled
    if limit is None or verdict(plan.total, limit).verdict != "does not fit":
        return None
    settings = tuple(remedies(workload, limit, device.backend))
    number = device.number(ENTITLED)
    kind = "" if number is None else f"{number.kind} "
    return memory_error(
        f"{workload.model.id} needs {gigabytes(plan.total)} GB, but the {kind}limit of an app "
        f"on {device.title} is {gigabytes(limit)} GB, even with both memory entitlements",
        (f"It fits with {', or '.join(settings)}." if settings else "No setting fits.")
        + " `h2o-pack plan` shows the memory of each part.",
        where=device.identifier,
    )


def devices_of_each(
    workloads: Sequence[Workload], devices: Sequence[Device]
) -> list[tuple[Device, ...]]:
    """Return the devices that can hold each of a package's models, as `holders` does."""
    refusals = [[refusal(workload, device) for device in devices] for workload in workloads]
    return holders(devices, refusals)


def holders(
    devices: Sequence[Device], refusals: Sequence[Sequence[UserError | None]]
) -> list[tuple[Device, ...]]:
    """Return the devices that do not refuse each model.

    refusals: for each model and device, why the device cannot hold the model; None if it can.
    Raises UserError: a device can hold no model, or no device can hold one of the models.
    """
    lines = (*refusals, *zip(*refusals, strict=True))
    problems = Problems()
    for line in lines:
        if line and all(line):
            problems.found += [error for error in line if error not in problems.found]
    problems.refuse()
    return [
        tuple(device for device, error in zip(devices, row, strict=True) if error is None)
        for row in refusals
    ]
