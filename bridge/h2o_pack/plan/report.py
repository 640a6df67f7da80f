"""A plan beside the devices: which can hold it, how fast they are, and what else would fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from h2o_pack.bundling.app_size import AppSize, app_size, model_bytes
from h2o_pack.devices.device import Catalogue, Device
from h2o_pack.devices.facts import (
    BANDWIDTH,
    DEFAULT,
    ENTITLED,
    MeasuredMargin,
    Number,
    What,
)
from h2o_pack.facts import KnownModel
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.plan.advice import advice
from h2o_pack.plan.measured import SeenMemory
from h2o_pack.plan.recall import RecallPlan, read_seconds, recall_plan, with_recalls
from h2o_pack.plan.remedies import remedies
from h2o_pack.plan.request import Request, known_fitting
from h2o_pack.plan.speed import Calibration, Speed, calibration, estimate, rules
from h2o_pack.plan.verdict import Verdict, verdict
from h2o_pack.results import Count, Result, doc


@dataclass(frozen=True)
class Capacity:
    """What fits with both entitlements; 0 and empty where nothing does, or nobody knows."""

    max_kv: Annotated[Count, doc("Most rows per layer.")] = 0
    context: Annotated[Count, doc("Longest conversation with the model's own cache.")] = 0
    model: Annotated[str, doc("Largest known model with the same settings.")] = ""


@dataclass(frozen=True)
class DeviceFit:
    """The plan on one device."""

    identifier: Annotated[str, doc("Of the device.")]
    name: Annotated[str, doc("With the storage where that matters.")]
    chip: Annotated[str, doc("Of the device.")]
    backend: Annotated[str, doc("Which of the plans.")]
    needed: Annotated[Count, doc("Bytes.")]
    default: Annotated[Verdict, doc("Against the limit of any app.")]
    entitled: Annotated[Verdict, doc("Against the limit with both memory entitlements.")]
    speed: Annotated[
        Speed | None, doc("null where the bandwidth is unknown or the model is tiny.")
    ]
    recall_seconds: Annotated[
        float | None,
        doc("To read what one recall reads; null without recall or where nobody knows."),
    ]
    largest: Annotated[Capacity, doc("What fits at most.")]
    remedies: Annotated[
        tuple[str, ...], doc("Options with which it would fit, if it does not.")
    ]
    sources: Annotated[tuple[Number, ...], doc("Of the limits and the bandwidth.")]
    margin: Annotated[
        MeasuredMargin | None, doc("Part of what is needed; null: the plan's own margin.")
    ] = None

    def source(self, what: What) -> Number | None:
        """The number that was used; None where nobody has found one."""
        return next((each for each in self.sources if each.what == what), None)


@dataclass(frozen=True, kw_only=True)
class PlanResult(Result):
    """The memory of a model on devices."""

    model: Annotated[str, doc("Hub id, alias or folder name.")]
    commit: Annotated[str, doc("On the hub; empty for folders.")]
    model_type: Annotated[str, doc("As config.json names it.")]
    layers: Annotated[Count, doc("Decoder layers.")]
    evicting_layers: Annotated[Count, doc("Layers with a cache that evicts.")]
    max_kv: Annotated[int | None, doc("Rows per layer; null for the model's own cache.")]
    kv: Annotated[str, doc("Precision of rows.")]
    context: Annotated[Count, doc("Tokens of the longest conversation.")]
    prefill_step: Annotated[Count, doc("Tokens of a prompt that the model is given at once.")]
    plans: Annotated[tuple[MemoryPlan, ...], Meta(min_length=1), doc("One per backend.")]
    size: Annotated[AppSize, doc("Of an app with this model alone in it.")]
    recall: Annotated[RecallPlan | None, doc("What recall costs; null without it.")]
    devices: Annotated[tuple[DeviceFit, ...], doc("The devices that were asked for.")]
    advice: Annotated[tuple[str, ...], doc("What to know beforehand.")]
    speed_rule: Annotated[Mapping[str, float], doc("The constants of the estimate.")]
    calibration: Annotated[
        tuple[Calibration, ...], doc("The estimate against published speeds.")
    ]
    measured: Annotated[
        SeenMemory | None, doc("What a device reported, beside the plan; null without.")
    ] = None


def make_report(
    request: Request,
    devices: tuple[Device, ...],
    known: Catalogue,
    models: tuple[KnownModel, ...],
) -> PlanResult:
    """Plan on every backend that the devices have, and hold each device against it."""
    backends = tuple(dict.fromkeys(device.backend for device in devices)) or ("iphone",)
    plans = tuple(request.plan(backend) for backend in backends)
    model, recall = request.model, recall_plan(request)
    return PlanResult(
        model=model.id,
        commit=model.commit,
        model_type=model.config.model_type,
        layers=len(model.config.layers),
        evicting_layers=sum(each is not None for each in request.caches),
        max_kv=request.max_kv or None,
        kv=plans[0].kv,
        context=plans[0].context,
        prefill_step=plans[0].prefill_step,
        plans=plans,
        size=app_size(model_bytes(model)),
        recall=recall,
        devices=tuple(device_fit(request, device, models, recall) for device in devices),
        advice=advice(request),
        speed_rule=rules(),
        calibration=calibration(known),
    )


def device_fit(
    request: Request,
    device: Device,
    models: tuple[KnownModel, ...],
    recall: RecallPlan | None = None,
) -> DeviceFit:
    """Hold one device against the plan."""
    request = request.on(device)
    plan = request.plan(device.backend)
    entitled = verdict(plan.total, device.limit_entitled)
    over = entitled.verdict == "does not fit" and entitled.limit is not None
    numbers = (device.number(what) for what in (DEFAULT, ENTITLED, BANDWIDTH))
    return DeviceFit(
        identifier=device.identifier,
        name=device.title,
        chip=device.chip,
        backend=device.backend,
        needed=plan.total,
        default=verdict(plan.total, device.limit),
        entitled=entitled,
        speed=with_recalls(estimate(request.model, plan, device), recall, device),
        recall_seconds=None if recall is None else read_seconds(recall, device),
        largest=capacity(request, entitled.limit, device.backend, models),
        remedies=tuple(remedies(request, models, entitled.limit or 0, device.backend))
        if over
        else (),
        sources=tuple(number for number in numbers if number is not None),
        margin=device.margin,
    )


def capacity(
    request: Request, limit: int | None, backend: str, models: tuple[KnownModel, ...]
) -> Capacity:
    """What fits at most into a limit."""
    if limit is None:
        return Capacity()
    known = known_fitting(request, models, limit, backend)
    return Capacity(
        request.largest_max_kv(limit, backend),
        request.largest_context(limit, backend),
        known.name if known is not None else "",
    )


def one_of_each_kind(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """One device per chip and memory: the others of its kind have the same numbers."""
    found: dict[Any, Device] = {}
    for each in devices:
        numbers = (each.limit, each.limit_entitled, each.bandwidth, each.margin)
        found.setdefault((each.chip, *numbers), each)
    return tuple(found.values())
