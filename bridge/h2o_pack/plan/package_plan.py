"""The plan of a package: its models with their caches, their memory, and the names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from h2o_pack import naming
from h2o_pack.bundling.delivery import check_app_size, model_bytes
from h2o_pack.bundling.manifest import RESERVED, folded
from h2o_pack.config_errors import flag
from h2o_pack.devices.catalogue import Device
from h2o_pack.errors import Problems, UserError
from h2o_pack.files.paths import MODEL_FOLDER
from h2o_pack.memory.storages import Storage
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.model import Model
from h2o_pack.models.adapter import Adapter
from h2o_pack.models.catalogue import catalogue as model_catalogue
from h2o_pack.models.texts import ModelTexts
from h2o_pack.plan.advice import advice
from h2o_pack.plan.device_fit import refusal, refuse_twice
from h2o_pack.plan.workload import Workload, workload_of
from h2o_pack.spec import ModelSpec, PackageSpec
from h2o_py.budgets import Budgets
from h2o_py.config import H2OConfig

BACKENDS = {"phone": "iphone", "tablet": "ipad"}
"""Where a package may run, by the names of Swift's arguments."""


@dataclass(frozen=True)
class ModelSource:
    """A model that was found, with all that a package takes of it.

    model: the adapter's bytes are counted in its weights.
    """

    model: Model
    texts: ModelTexts = field(default_factory=ModelTexts)
    adapter: Adapter | None = None


@dataclass(frozen=True)
class ModelPlan:
    """A model of a package.

    memory: on those of the named devices that can hold the model, where it needs most.
    memory_of: on a phone and on a tablet, whatever was named. folder: where the model lies in
    the package.
    """

    spec: ModelSpec
    source: ModelSource
    workload: Workload
    memory: MemoryPlan
    memory_of: Mapping[str, MemoryPlan]
    warnings: tuple[str, ...]
    folder: str = MODEL_FOLDER

    @property
    def model(self) -> Model:
        """What is known of the model."""
        return self.source.model

    @property
    def cache(self) -> H2OConfig:
        """What the layers have in common; `workload` has the cache of each."""
        if self.workload.common is None:
            raise TypeError("a package's caches have a bound")
        return self.workload.common

    @property
    def storage(self) -> Storage:
        """How rows are stored."""
        return self.workload.storage

    @property
    def budgets(self) -> Budgets | None:
        """The budgets that differ per layer."""
        return self.spec.cache.budgets

    @property
    def archive(self) -> str:
        """Where evicted tokens wait to be recalled: "memory" or "files", "" without recall."""
        return self.spec.cache.archive if self.cache.recall is not None else ""


@dataclass(frozen=True)
class PackagePlan:
    """All that the generated package depends on. models: the largest first, as in `spec`."""

    spec: PackageSpec
    models: tuple[ModelPlan, ...]

    @property
    def title(self) -> str:
        """The name as asked for, or that of the largest model."""
        return title_of(self.spec, self.models[0].model)

    @property
    def package_name(self) -> str:
        """The name that SwiftPM, file systems and Xcode take."""
        return naming.package_name(self.title)

    @property
    def module_name(self) -> str:
        """The start of the name of the module with the models."""
        return naming.module_name(self.package_name)

    @property
    def display_name(self) -> str:
        """The name below the app's icon."""
        return naming.display_name(self.title, self.package_name)

    @property
    def bundle_id(self) -> str:
        """The app's identifier."""
        return self.spec.app.bundle_id or naming.bundle_id(self.package_name)

    @property
    def size(self) -> int:
        """Bytes of all models' files, at most."""
        return sum(
            files_bytes(self.spec, model.source, model.workload) for model in self.models
        )


def plan_package(
    spec: PackageSpec, sources: Sequence[ModelSource], devices: Sequence[Device] = ()
) -> PackagePlan:
    """Check a spec against its models and its devices.

    spec: with nothing open. sources: of each model of it. devices: those that the spec names.

    Raises:
        UserError: names the flag, the file or the device; all that is wrong together.

    """
    refuse_twice([source.model for source in sources])
    problems = Problems()
    pairs = sorted(
        zip((model.filled() for model in spec.models), sources, strict=True),
        key=lambda pair: pair[1].model.weights.bytes,
        reverse=True,
    )
    workloads = []
    for model, source in pairs:
        with problems.caught():
            drops = source.texts.drops_thoughts
            workloads.append(workload_of(source.model, model.cache, drops_thoughts=drops))
    problems.refuse()
    holding: list[tuple[Device, ...]] = []
    with problems.caught():
        holding = devices_of_each(workloads, devices)
    with problems.caught():
        sizes = (
            files_bytes(spec, source, workload)
            for (_, source), workload in zip(pairs, workloads, strict=True)
        )
        check_app_size([source.model.id for _, source in pairs], sum(sizes), spec.delivery)
    problems.refuse()
    folders = folders_of([source.model.id for _, source in pairs])
    remarks = naming.name_remarks(title_of(spec, pairs[0][1].model))
    models = tuple(
        plan_model(model, source, workload, of_model, folder, remarks)
        for (model, source), workload, of_model, folder in zip(
            pairs, workloads, holding, folders, strict=True
        )
    )
    return PackagePlan(replace(spec, models=tuple(model for model, _ in pairs)), models)


def plan_model(
    spec: ModelSpec,
    source: ModelSource,
    workload: Workload,
    devices: Iterable[Device],
    folder: str,
    remarks: tuple[str, ...],
) -> ModelPlan:
    """Plan one model for the devices that can hold it. remarks: on the package's name."""
    backends = {device.backend for device in devices} or {"iphone"}
    unwise = [each for each in workload.warnings if each.code != "short_recent_window"]
    return ModelPlan(
        spec=spec,
        source=source,
        workload=workload,
        memory=max(map(workload.plan, sorted(backends)), key=lambda plan: plan.total),
        memory_of={name: workload.plan(backend) for name, backend in BACKENDS.items()},
        warnings=(
            *source.model.remarks,
            *(each.text(flag) for each in unwise),
            *advice(workload),
            *remarks,
            *source.texts.remarks,
        ),
        folder=folder,
    )


def title_of(spec: PackageSpec, model: Model) -> str:
    """Return the package's name as asked for, or that of its largest model."""
    return spec.app.name or naming.model_display_name(model.id)


def files_bytes(spec: PackageSpec, source: ModelSource, workload: Workload) -> int:
    """Return the bytes of a model's files, its adapter and a system prompt's caches at most."""
    adapter = source.adapter.bytes if source.adapter else 0
    prompt = workload.plan("iphone").caches if spec.app.system else 0
    return model_bytes(source.model) + adapter + prompt


def devices_of_each(
    workloads: Sequence[Workload], devices: Sequence[Device]
) -> list[tuple[Device, ...]]:
    """Return the devices that can hold each of a package's models.

    Raises:
        UserError: a device can hold none of them, or a model is for none of the devices.

    """
    known = model_catalogue()
    refusals = [
        [refusal(workload, known, device) for device in devices] for workload in workloads
    ]
    return holders(devices, refusals)


def holders(
    devices: Sequence[Device], refusals: Sequence[Sequence[UserError | None]]
) -> list[tuple[Device, ...]]:
    """Return the devices that do not refuse each model.

    refusals: for each model, why each device cannot hold it; None where it can.

    Raises:
        UserError: why a device holds no model, or why no device holds a model.

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


def folders_of(models: Sequence[str]) -> list[str]:
    """Return a folder in the package for each model; Apple's disks keep their names apart."""
    if len(models) == 1:
        return [MODEL_FOLDER]
    taken = {folded(RESERVED)}
    folders = []
    for model in models:
        wanted = name = naming.package_name(naming.model_display_name(model))
        number = 1
        while folded(name) in taken:
            number += 1
            name = f"{wanted}-{number}"
        taken.add(folded(name))
        folders.append(f"{MODEL_FOLDER}/{name}")
    return folders
