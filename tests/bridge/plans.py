"""Plans of packages whose models need not be found."""

from collections.abc import Sequence
from typing import Any

from h2o_pack.devices.catalogue import catalogue, named_devices
from h2o_pack.files.write import Content
from h2o_pack.model import Model
from h2o_pack.package.prepare import plan_package
from h2o_pack.package.render import render
from h2o_pack.plan.device_fit import PlanResult, one_of_each_kind, plan_models
from h2o_pack.plan.package_plan import ModelSource, PackagePlan
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
    models = (models,) if isinstance(models, Model) else tuple(models)
    spec = PackageSpec(
        models=tuple(ModelSpec(model.id, cache) for model in models),
        app=AppSpec(name=name),
        devices=DevicesSpec(devices),
        **parts,
    )
    sources = [ModelSource(model) for model in models]
    return plan_package(spec, sources, named_devices(spec.devices))


def rendered(plan: PackagePlan) -> dict[str, Content]:
    """Return {path: content} of the generated files of a package."""
    return render(plan)[0]


def on_devices(
    models: Model | Sequence[Model], cache: CacheSpec, *devices: str, every: bool = False
) -> PlanResult:
    """Plan models on the named devices; by default on one of each kind, or on all."""
    models = (models,) if isinstance(models, Model) else tuple(models)
    known_devices = catalogue()
    selection = named_devices(DevicesSpec(devices), known_devices)
    if not devices:
        selection = (
            known_devices.all_devices()
            if every
            else one_of_each_kind(known_devices.all_devices())
        )
    spec = PackageSpec(tuple(ModelSpec(model.id, cache) for model in models))
    return plan_models(spec, models, selection, known_devices)
