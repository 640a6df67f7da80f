"""Plans of packages whose models need not be found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from h2o_pack.devices.catalogue import catalogue, named_devices
from h2o_pack.model import Model
from h2o_pack.package.prepare import plan_package
from h2o_pack.plan.device_fit import (
    PlanResult,
    one_of_each_kind,
    plan_models,
)
from h2o_pack.plan.package_plan import ModelSource, PackagePlan
from h2o_pack.plan.workload import Workload, workload_of
from h2o_pack.spec import AppSpec, CacheSpec, DevicesSpec, ModelSpec, PackageSpec


def plan_of(
    models: Model | Sequence[Model],
    cache: CacheSpec,
    name: str | None = None,
    *,
    devices: tuple[str, ...] = (),
    **parts: Any,
) -> PackagePlan:
    """Plan a package of one model or of several with the same cache.

    parts: further fields of the spec.
    """
    found = (models,) if isinstance(models, Model) else tuple(models)
    spec = PackageSpec(
        models=tuple(ModelSpec(model.id, cache) for model in found),
        app=AppSpec(name=name),
        devices=DevicesSpec(devices),
        **parts,
    )
    sources = [ModelSource(model) for model in found]
    return plan_package(spec, sources, named_devices(spec.devices))


def workload(model: Model, cache: CacheSpec) -> Workload:
    """Return what memory is planned for."""
    return workload_of(model, cache)


def on_devices(
    models: Model | Sequence[Model], cache: CacheSpec, *devices: str, every: bool = False
) -> PlanResult:
    """Plan models on the named devices; by default on one of each kind, or on all."""
    found = (models,) if isinstance(models, Model) else tuple(models)
    known = catalogue()
    chosen = named_devices(DevicesSpec(devices), known)
    if not devices:
        chosen = known.all_devices() if every else one_of_each_kind(known.all_devices())
    spec = PackageSpec(tuple(ModelSpec(model.id, cache) for model in found))
    return plan_models(spec, found, chosen, known)
