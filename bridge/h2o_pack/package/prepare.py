"""Makes the plan of a package from a spec without open settings; writes nothing.

`prepare` checks the spec, finds its models and reads their files; `plan_package` plans them.
All errors are reported together.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from h2o_pack import naming
from h2o_pack.bundling.delivery import check_app_size
from h2o_pack.bundling.manifest import RESERVED, folded
from h2o_pack.config_errors import flag
from h2o_pack.devices.catalogue import Device, named_devices
from h2o_pack.errors import Problems, network_error
from h2o_pack.files import lock
from h2o_pack.files.paths import MODEL_FOLDER
from h2o_pack.hub.resolve import find_model, read_small
from h2o_pack.model import Model
from h2o_pack.models.adapter import adapted
from h2o_pack.models.files import text_files
from h2o_pack.models.loading import check_loads
from h2o_pack.models.texts import ModelTexts, first_turns, read_texts
from h2o_pack.package.system_prompt import check_system
from h2o_pack.plan.advice import advice
from h2o_pack.plan.device_fit import devices_of_each, refuse_duplicates
from h2o_pack.plan.package_plan import ModelPlan, ModelSource, PackagePlan
from h2o_pack.plan.workload import cache_config, workload_of
from h2o_pack.progress import ProgressReporter
from h2o_pack.resolved.files import READ, Resolved, resolve_files
from h2o_pack.spec import PackageSpec, refuse_with_several

BACKENDS = {"phone": "iphone", "tablet": "ipad"}
"""The backends for which each package has a plan, by the names of Swift's arguments."""


def prepare(
    spec: PackageSpec,
    say: ProgressReporter,
    output: Path | None = None,
    problems: Problems | None = None,
) -> PackagePlan:
    """Find the models and plan the package.

    output: the package's folder; an earlier package in it decides the app's identifier.
    problems: errors that were already found. Raises UserError: these and all errors in the
    spec, together.
    """
    refuse_with_several(spec)
    problems = problems or Problems()
    with problems.caught():
        if spec.app.bundle_id:
            naming.check_bundle_id(spec.app.bundle_id)
    with problems.caught():
        cache_config(spec.models[0].cache)
    with problems.caught():
        devices = named_devices(spec.devices)
    models = []
    for model_spec in spec.models:
        with problems.caught():
            models.append(find_model(model_spec, say))
    problems.refuse()
    sources, file_problems = [], Problems()
    for model_spec, base in zip(spec.models, models, strict=True):
        texts, turns, resolved = ModelTexts(), list[str](), None
        with file_problems.caught():
            texts, resolved = read_model(base)
        with file_problems.caught():
            turns = first_turns(texts, spec.app.system, base.id) if spec.app.system else []
        with file_problems.caught():
            if base.contents is not None:
                say(f"checking that {base.id} loads")
                check_loads(base.contents)
        with problems.caught():
            model, adapter = adapted(base, model_spec.adapter)
            sources.append(ModelSource(model, texts, adapter, tuple(turns), resolved))
    if len(sources) == len(models):
        with problems.caught():
            # `Path.home` may raise, unlike `expanduser`.
            maker = f"{platform.node()}:{os.path.expanduser('~')}"  # noqa: PTH111
            plan = plan_package(spec, sources, devices, output, maker)
            for model_plan in plan.models:
                if model_plan.source.turns:
                    check_system(model_plan)
    problems.found += file_problems.found
    problems.refuse()
    return plan


def read_model(model: Model) -> tuple[ModelTexts, Resolved | None]:
    """Return the texts of a model's makers, and what Python resolves of the model's files.

    They are empty and None if the hub cannot be reached. Raises UserError: all errors in the
    files.
    """
    files = read_small(model, {**text_files(model.files), **READ})
    if files is None:
        return ModelTexts(), None
    texts = read_texts(files, model)
    return texts, resolve_files(model, texts, files)


def resolved_files(plan: ModelPlan, model: Model) -> Resolved:
    """Return what Python resolves of a planned model's files.

    model: that of the plan, or the same with a folder. Raises UserError: the plan was made
    without the files, and the hub still cannot be reached.
    """
    resolved = plan.source.resolved or read_model(model)[1]
    if resolved is None:
        raise network_error(
            f"the hub cannot be reached to read the files of {model.id}",
            "Run the command again when the hub can be reached.",
        )
    return resolved


def plan_package(
    spec: PackageSpec,
    sources: Sequence[ModelSource],
    devices: Sequence[Device] = (),
    output: Path | None = None,
    maker: str = "",
) -> PackagePlan:
    """Plan a package, and check that its settings fit its models and devices.

    spec: without open settings. output: see `prepare`. maker: a text that distinguishes this
    user from others, for the app's identifier; "" for an identifier without it. Raises
    UserError: all errors, together.
    """
    refuse_duplicates([source.model for source in sources])
    pairs = sorted(
        zip((model.filled() for model in spec.models), sources, strict=True),
        key=lambda pair: pair[1].model.weights.bytes,
        reverse=True,
    )
    names = [source.model.id for _, source in pairs]
    folders = folders_of(names)
    title = spec.app.name or naming.model_display_name(names[0])
    app = replace(spec.app, bundle_id=bundle_id_of(spec, title, output, maker))
    problems, workloads = Problems(), []
    for model_spec, source in pairs:
        with problems.caught():
            drops = source.resolved is not None and source.resolved.chat.drops_thoughts
            workloads.append(workload_of(source.model, model_spec.cache, drops_thoughts=drops))
    problems.refuse()
    holding: Sequence[Sequence[Device]] = [()] * len(pairs)
    with problems.caught():
        holding = devices_of_each(workloads, devices)
    models = []
    for (model_spec, source), workload, holders, folder in zip(
        pairs, workloads, holding, folders, strict=True
    ):
        backends = {device.backend for device in holders} or {"iphone"}
        unwise = [
            warning for warning in workload.warnings if warning.code != "short_recent_window"
        ]
        models.append(
            ModelPlan(
                spec=model_spec,
                source=source,
                workload=workload,
                memory=max(map(workload.plan, sorted(backends)), key=lambda plan: plan.total),
                memory_of={name: workload.plan(backend) for name, backend in BACKENDS.items()},
                warnings=(
                    *source.model.remarks,
                    *(warning.text(flag) for warning in unwise),
                    *advice(workload),
                    *naming.name_remarks(title),
                    *source.texts.remarks,
                    *(source.resolved.remarks if source.resolved else ()),
                ),
                folder=folder,
            )
        )
    model_specs = tuple(model for model, _ in pairs)
    plan = PackagePlan(replace(spec, models=model_specs, app=app), tuple(models))
    with problems.caught():
        check_app_size(names, plan.size, spec.delivery)
    problems.refuse()
    return plan


def bundle_id_of(spec: PackageSpec, title: str, output: Path | None, maker: str) -> str:
    """Return the app's identifier: the user's, the earlier package's, or a new one."""
    package = naming.package_name(title)
    folder = output or Path(naming.file_name(title, package))
    earlier = ""
    if os.path.lexists(folder / lock.NAME):
        app = lock.read(folder).spec.get("app", {})
        earlier = str(app.get("bundle_id", "")) if isinstance(app, dict) else ""
    own = naming.bundle_id(package, maker) if maker else ""
    return spec.app.bundle_id or earlier or own


def folders_of(models: Sequence[str]) -> list[str]:
    """Return a folder in the package for each model; the names differ in more than case."""
    if len(models) == 1:
        return [MODEL_FOLDER]
    names = {folded(RESERVED)}
    folders = []
    for model in models:
        base = name = naming.package_name(naming.model_display_name(model))
        number = 1
        while folded(name) in names:
            number += 1
            name = f"{base}-{number}"
        names.add(folded(name))
        folders.append(f"{MODEL_FOLDER}/{name}")
    return folders
