"""Finds the models that a package is asked for, and plans it; nothing is written."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path

from h2o_pack import naming
from h2o_pack.architectures.model import Model
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.files import lock
from h2o_pack.models.adapter import Adapter
from h2o_pack.naming import check_bundle_id
from h2o_pack.package.request import PackageRequest
from h2o_pack.package.several import refuse_with_several, together
from h2o_pack.plan.package_plan import Plan, ReadOptions, make_plan, read_options
from h2o_pack.progress import ProgressReporter


def prepare(request: PackageRequest, say: ProgressReporter) -> Plan:
    """Find the models and plan the package; nothing is written.

    Raises:
        UserError: all that is wrong with the request, together.

    """
    from h2o_pack.facts import pins
    from h2o_pack.hub.resolve import resolve
    from h2o_pack.package.replay import kept_options
    from h2o_pack.prepared.checks import read_system

    refuse_with_several(request)
    problems = Problems()
    with problems.caught():
        if request.download:
            request = replace(request, download=server_of(request))
    with problems.caught():
        if request.bundle_id:
            check_bundle_id(request.bundle_id)
    with problems.caught():
        pins(request.upstream_version)
    with problems.caught():
        given = read_options(request.cache)
    with problems.caught():
        system = read_system(request.system)
    models = []
    for each in request.models:
        with problems.caught():
            say(f"reading the headers of {each.model}")
            models.append(
                resolve(
                    each.model,
                    revision=request.revision,
                    assume_full_attention=request.assume_full_attention,
                )
            )
    problems.refuse()
    plans = []
    for asked, model in zip(request.models, models, strict=True):
        with problems.caught():
            read = given if asked.cache == request.cache else read_options(asked.cache)
            asked_so = replace(request, model=asked.model, cache=asked.cache)
            plans.append(plan_model(model, asked_so, read, system, say))
    problems.refuse()
    plan = together(plans)
    request = replace(request, bundle_id=bundle_id_of(plan, request))
    return replace(plan, bundle_id=request.bundle_id, options=kept_options(request))


def server_of(request: PackageRequest) -> str:
    """Check the address from which the app fetches its model; no asset pack brings it too."""
    from h2o_pack.bundling.server import check_server

    if request.asset_pack:
        raise UserError(
            "--asset-pack and --download are two ways for one model to reach the device",
            remedy="Give one of them.",
            code=ExitCode.USAGE,
        )
    return check_server(request.download)


def bundle_id_of(plan: Plan, request: PackageRequest) -> str:
    """Return the app's identifier: as asked for, as it was before, or the maker's own.

    Two people who package the same model get two identifiers.
    """
    output = request.output or Path(plan.package_name)
    earlier = lock.read(output).options if os.path.lexists(output / lock.NAME) else {}
    maker = f"{platform.node()}:{os.path.expanduser('~')}"  # noqa: PTH111 - that may fail
    kept = str(earlier.get("bundle_id", ""))
    return request.bundle_id or kept or naming.bundle_id(plan.package_name, maker)


def plan_model(
    model: Model,
    request: PackageRequest,
    given: ReadOptions,
    system: str,
    say: ProgressReporter,
) -> Plan:
    """Plan a package of one model."""
    from h2o_pack.package.model_texts import read_model_texts
    from h2o_pack.prepared.checks import check_system

    refuse_missing_type(model, request.upstream_version)
    adapter = None if request.adapter is None else adapter_of(request.adapter, model)
    if adapter is not None:
        model = adapted(model, adapter)
    problems = Problems()
    with problems.caught():
        plan = make_plan(
            model,
            request.cache,
            request.name,
            asset_pack=request.asset_pack,
            download=request.download,
            given=given,
        )
    with problems.caught():
        texts = read_model_texts(model)
    with problems.caught():
        check_headers(model, say)
    problems.refuse()
    plan = replace(
        plan,
        asked=request.model,
        upstream_version=request.upstream_version,
        chat_template=texts.template,
        license=texts.license,
        system=system,
        adapter=adapter,
        warnings=(*plan.warnings, *texts.remarks),
    )
    if system:
        check_system(plan, texts.unusable)
    return plan


def check_headers(model: Model, say: ProgressReporter) -> None:
    """Refuse a model whose tensors are not those that mlx_lm needs."""
    from h2o_pack.models.loading import check_loads

    if model.headers is not None and not model.assumed:
        say(f"checking that {model.id} loads")
        check_loads(model.headers, model.id)


def adapter_of(folder: Path, model: Model) -> Adapter:
    """Read an adapter, and check it against the model's tensors."""
    from h2o_pack.models.adapter import check_fits, read_adapter, shapes_of
    from h2o_pack.models.safetensors import total

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
    from h2o_pack.facts import architectures, upstream_versions

    known = architectures().get(model.config.model_type)
    version = upstream_version or next(iter(upstream_versions()))
    if known is None or not known.upstream_versions or version in known.upstream_versions:
        return
    raise UserError(
        f'mlx-swift-lm {version} has no language model of type "{known.model_type}"',
        where=model.id,
        remedy=f"Give --upstream-version {known.upstream_versions[-1]}.",
        code=ExitCode.MODEL,
    )
