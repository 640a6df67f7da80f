"""Several models of one package on devices, and which of them its app loads on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from h2o_pack.architectures.model import Model
from h2o_pack.bundling.app_size import AppSize, app_size
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.plan.report import DeviceFit, PlanResult
from h2o_pack.plan.verdict import Fit
from h2o_pack.results import Result, doc

WITH_REVISION = "Write ID@REVISION as --model."
ALL_ALIKE = "Leave it out: all layers then have max-kv rows."


@dataclass(frozen=True)
class LoadedModel:
    """What the app loads on a device with both memory entitlements."""

    identifier: Annotated[str, doc("Of the device.")]
    name: Annotated[str, doc("With the storage where that matters.")]
    model: Annotated[
        str | None, doc("The largest that fits; null where none does or the limit is unknown.")
    ]
    verdict: Annotated[Fit, doc("Of that model; of the smallest one where none fits.")]


@dataclass(frozen=True, kw_only=True)
class PlansResult(Result):
    """The memory of several models of one package on devices."""

    models: Annotated[tuple[PlanResult, ...], Meta(min_length=2), doc("The largest first.")]
    loaded: Annotated[tuple[LoadedModel, ...], doc("For each device.")]
    size: Annotated[AppSize, doc("Of an app with all of them.")]


def plans_result(reports: Sequence[PlanResult]) -> PlansResult:
    """Put the plans of several models for the same devices into one result."""
    ordered = sorted(reports, key=lambda each: each.plans[0].weights, reverse=True)
    rows = zip(*(each.devices for each in ordered), strict=True)
    names = [each.model for each in ordered]
    return PlansResult(
        models=tuple(ordered),
        loaded=tuple(loaded(names, fits) for fits in rows),
        size=app_size(sum(each.size.models for each in ordered)),
    )


def loaded(models: Sequence[str], fits: Sequence[DeviceFit]) -> LoadedModel:
    """Return which of the models an app takes on a device, as its `load()` decides there.

    models and fits: the largest model first.
    """
    device = fits[-1]
    for model, fit in zip(models, fits, strict=True):
        if fit.entitled.verdict in ("fits", "tight"):
            return LoadedModel(device.identifier, device.name, model, fit.entitled.verdict)
    return LoadedModel(device.identifier, device.name, None, device.entitled.verdict)


def refuse_options(models: int, ways: Mapping[str, tuple[object, str]]) -> None:
    """Refuse options that are for one model where several are given.

    ways: the value and a remedy for each option.
    """
    for flag, (value, remedy) in ways.items():
        if value:
            raise UserError(
                f"{flag} is for a package with one model, and {models} are given",
                remedy=remedy,
                code=ExitCode.USAGE,
            )


def refuse_twice(models: Sequence[Model]) -> None:
    """Refuse a model that is given twice."""
    given = []
    for model in models:
        place = (model.id, model.commit, model.folder)
        if place in given:
            raise UserError(
                f"{model.id} is given twice",
                remedy="Give each model once.",
                code=ExitCode.USAGE,
            )
        given.append(place)
