"""Finds the models that a package is asked for, and plans it; nothing is written."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path

from h2o_pack import naming
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.files import lock
from h2o_pack.model import Model
from h2o_pack.models import chat_template, generation_config, license_terms
from h2o_pack.models.adapter import Adapter
from h2o_pack.models.files import is_notice
from h2o_pack.plan.device_fit import named_devices
from h2o_pack.plan.package_plan import (
    ModelSource,
    ModelTexts,
    PackagePlan,
    plan_package,
    title_of,
)
from h2o_pack.plan.workload import cache_config
from h2o_pack.progress import ProgressReporter
from h2o_pack.spec import DeliverySpec, ModelSpec, PackageSpec, refuse_with_several

NO_TEMPLATE = (
    "the model has no chat template: a session gives it plain lines, which only a model "
    "without training for chat goes on with well."
)
CORRECT_IT = (
    "A session cannot reply with it: correct it in a local copy of the model and give that "
    "folder as --model."
)


def read_model_texts(model: Model) -> ModelTexts:
    """Read and check what a model says of itself; nothing where the hub cannot be asked.

    Raises:
        UserError: all that is wrong in generation_config.json, or a file that is none.

    """
    from h2o_pack.hub.resolve import read_small

    where = str(model.folder or model.id)
    notices = [
        file.path
        for file in model.files
        if is_notice(file.path) and file.size <= license_terms.LARGEST
    ]
    largest = {
        **dict.fromkeys(chat_template.FILES, chat_template.LARGEST),
        generation_config.FILE: generation_config.LARGEST,
        **dict.fromkeys(notices, license_terms.LARGEST),
    }
    files = read_small(model, largest)
    if files is None:
        return ModelTexts()
    problems, template = Problems(where), None
    with problems.caught():
        template = chat_template.find_template(files, where)
    with problems.caught():
        if generation_config.FILE in files:
            data = files[generation_config.FILE]
            generation_config.check(data, model.config.vocabulary, where)
    problems.refuse()
    terms = license_terms.read_license({name: files[name] for name in notices})
    remarks = tuple(filter(None, [license_terms.remark(terms)]))
    if template is None:
        return ModelTexts(license=terms, remarks=(NO_TEMPLATE, *remarks))
    problem = template.problem()
    if problem:
        unusable = f"the chat template in {template.file} {problem}"
        return ModelTexts(None, unusable, terms, (f"{unusable}. {CORRECT_IT}", *remarks))
    return ModelTexts(template, license=terms, remarks=remarks)


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
    from h2o_pack.facts import pins
    from h2o_pack.hub.resolve import find_model
    from h2o_pack.package.system_prompt import check_system

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


def checked_delivery(spec: DeliverySpec) -> DeliverySpec:
    """Check the address from which the app fetches its model; no asset pack brings it too."""
    from h2o_pack.bundling.delivery import check_server

    if not spec.download:
        return spec
    if spec.asset_pack:
        raise UserError(
            "--asset-pack and --download are two ways for one model to reach the device",
            remedy="Give one of them.",
            code=ExitCode.USAGE,
        )
    return DeliverySpec(download=check_server(spec.download))


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
    from h2o_pack.package.prepare import read_model_texts

    refuse_missing_type(model, upstream)
    adapter = None if spec.adapter is None else adapter_of(spec.adapter, model)
    texts = ModelTexts()
    with problems.caught():
        texts = read_model_texts(model)
    with problems.caught():
        check_headers(model, say)
    return ModelSource(model if adapter is None else adapted(model, adapter), texts, adapter)


def check_headers(model: Model, say: ProgressReporter) -> None:
    """Refuse a model whose tensors are not those that mlx_lm needs."""
    from h2o_pack.models.loading import check_loads

    if model.headers is not None and not model.assumed:
        say(f"checking that {model.id} loads")
        check_loads(model.headers, model.id)


def adapter_of(folder: Path, model: Model) -> Adapter:
    """Read an adapter, and check it against the model's tensors."""
    from h2o_pack.models.adapter import check_fits, read_adapter, shapes_of
    from h2o_pack.models.tensors import total

    adapter = read_adapter(folder, len(model.config.layers))
    if model.headers is not None:
        check_fits(adapter, shapes_of(total(model.headers.tensors)), model.id)
    return adapter


def adapted(model: Model, adapter: Adapter) -> Model:
    """Return the model with the adapter's bytes among those of its weights."""
    weights = replace(
        model.weights,
        bytes=model.weights.bytes + adapter.bytes,
        bytes_per_token=model.weights.bytes_per_token + adapter.bytes,
    )
    return replace(model, weights=weights)


def refuse_missing_type(model: Model, upstream_version: str) -> None:
    """Refuse a model of a type that the upstream version does not have."""
    from h2o_pack.facts import swift_models, upstream_versions

    known = swift_models().get(model.config.model_type)
    if known is None or known.is_in(upstream_version):
        return
    version = upstream_version or next(iter(upstream_versions()))
    raise UserError(
        f'mlx-swift-lm {version} has no language model of type "{known.model_type}"',
        where=model.id,
        remedy=f"Give --upstream-version {known.upstream_versions[-1]}.",
        code=ExitCode.MODEL,
    )
