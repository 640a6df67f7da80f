"""Finds the models that a package is asked for, and plans it; nothing is written."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path

from h2o_pack import naming
from h2o_pack.bundling.delivery import checked_delivery
from h2o_pack.devices.catalogue import named_devices
from h2o_pack.errors import Problems
from h2o_pack.facts import pins, refuse_missing_type
from h2o_pack.files import lock
from h2o_pack.hub.resolve import find_model, read_small
from h2o_pack.model import Model
from h2o_pack.models.adapter import adapted
from h2o_pack.models.loading import check_loads
from h2o_pack.models.texts import ModelTexts, read_texts, text_files
from h2o_pack.package.system_prompt import check_system
from h2o_pack.plan.package_plan import ModelSource, PackagePlan, plan_package, title_of
from h2o_pack.plan.workload import cache_config
from h2o_pack.progress import ProgressReporter
from h2o_pack.spec import ModelSpec, PackageSpec, refuse_with_several


def prepare(
    spec: PackageSpec,
    say: ProgressReporter,
    output: Path | None = None,
    problems: Problems | None = None,
) -> PackagePlan:
    """Find the models and plan the package; nothing is written.

    output: the package's folder, where an earlier one may have the app's identifier. problems:
    those found already, which are raised with the others.

    Raises:
        UserError: all that is wrong with the spec, together.

    """
    refuse_with_several(spec)
    problems = problems or Problems()
    with problems.caught():
        spec = replace(spec, delivery=checked_delivery(spec.delivery))
    with problems.caught():
        if spec.app.bundle_id:
            naming.check_bundle_id(spec.app.bundle_id)
    with problems.caught():
        pins(spec.upstream)
    with problems.caught():
        cache_config(spec.models[0].cache)
    with problems.caught():
        devices = named_devices(spec.devices)
    models = []
    for wanted in spec.models:
        with problems.caught():
            models.append(find_model(wanted, say))
    problems.refuse()
    sources, of_files = [], Problems()
    for wanted, model in zip(spec.models, models, strict=True):
        with problems.caught():
            sources.append(read_source(wanted, model, spec.upstream, of_files, say))
    if len(sources) < len(models):
        problems.refuse()
    largest = max((source.model for source in sources), key=lambda model: model.weights.bytes)
    app = replace(spec.app, bundle_id=bundle_id_of(spec, largest, output))
    with problems.caught():
        plan = plan_package(replace(spec, app=app), sources, devices)
        if spec.app.system:
            for model_plan in plan.models:
                check_system(model_plan, spec.app.system)
    problems.found += of_files.found
    problems.refuse()
    return plan


def bundle_id_of(spec: PackageSpec, largest: Model, output: Path | None) -> str:
    """Return the app's identifier: as asked for, as it was before, or the maker's own.

    Two people who package the same model get two identifiers.
    """
    package = naming.package_name(title_of(spec, largest))
    folder = output or Path(package)
    earlier = ""
    if os.path.lexists(folder / lock.NAME):
        app = lock.read(folder).spec.get("app", {})
        earlier = str(app.get("bundle_id", "")) if isinstance(app, dict) else ""
    maker = f"{platform.node()}:{os.path.expanduser('~')}"  # noqa: PTH111 - that may fail
    return spec.app.bundle_id or earlier or naming.bundle_id(package, maker)


def read_source(
    spec: ModelSpec,
    model: Model,
    upstream: str,
    problems: Problems,
    say: ProgressReporter,
) -> ModelSource:
    """Read what a package takes of a model, and check that mlx_lm can load it.

    problems: gets what is wrong with the model's texts and tensors.

    Raises:
        UserError: the upstream version lacks its type, or the adapter does not fit it.

    """
    refuse_missing_type(model.config.model_type, upstream, model.id)
    adapter, texts = None, ModelTexts()
    if spec.adapter is not None:
        model, adapter = adapted(model, spec.adapter)
    with problems.caught():
        files = read_small(model, text_files(model))
        texts = ModelTexts() if files is None else read_texts(files, model)
    with problems.caught():
        if model.headers is not None and not model.assumed:
            say(f"checking that {model.id} loads")
            check_loads(model.headers, model.id)
    return ModelSource(model, texts, adapter)
