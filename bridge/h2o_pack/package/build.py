"""What `ios` does: resolve, plan, generate, bundle, vendor, verify.

Each step ends whole: a run that is stopped leaves the earlier package or the new one, and
the next run goes on from what it finds.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path

from h2o_pack import naming
from h2o_pack.architectures.model import Model
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.files import lock, write
from h2o_pack.files.lock import PreparedPrompt, Vendored
from h2o_pack.models.adapter import Adapter
from h2o_pack.naming import check_bundle_id
from h2o_pack.package.app import AppState
from h2o_pack.package.request import PackageRequest
from h2o_pack.plan.package_plan import Plan, make_plan, read_options
from h2o_pack.progress import ProgressReporter
from h2o_pack.vendoring.fetch import Origin
from h2o_pack.verify.differences import Verification

HOST = "apple"


@dataclass(frozen=True)
class PackageResult:
    """What became of a request.

    files: those written, relative to `folder`. replaced: those among them that the user had
    changed, whose versions are in Replaced/. vendored: None where that was not asked for, or
    failed as `not_vendored` says. verification: None for a dry run. system_prompt: the one
    whose caches are in the package.
    """

    plan: Plan
    folder: Path
    files: tuple[str, ...]
    app: AppState
    replaced: tuple[str, ...]
    vendored: Vendored | None = None
    not_vendored: UserError | None = None
    verification: Verification | None = None
    system_prompt: PreparedPrompt | None = None


def prepare(request: PackageRequest, say: ProgressReporter) -> Plan:
    """Find the model and plan the package; nothing is written.

    Raises:
        UserError: all that is wrong with the request, together.

    """
    from h2o_pack.facts import pins
    from h2o_pack.hub.resolve import resolve
    from h2o_pack.package.model_texts import read_model_texts
    from h2o_pack.package.replay import kept_options
    from h2o_pack.prepared.checks import check_system, read_system

    problems = Problems()
    with problems.caught():
        if request.bundle_id:
            check_bundle_id(request.bundle_id)
    with problems.caught():
        pins(request.upstream_version)
    with problems.caught():
        given = read_options(request.cache)
    with problems.caught():
        system = read_system(request.system)
    with problems.caught():
        say(f"reading the headers of {request.model}")
        model = resolve(
            request.model,
            revision=request.revision,
            assume_full_attention=request.assume_full_attention,
        )
    problems.refuse()
    refuse_missing_type(model, request.upstream_version)
    adapter = None if request.adapter is None else adapter_of(request.adapter, model)
    if adapter is not None:
        model = adapted(model, adapter)
    with problems.caught():
        plan = make_plan(
            model, request.cache, request.name, asset_pack=request.asset_pack, given=given
        )
        request = replace(request, bundle_id=bundle_id_of(plan, request))
    with problems.caught():
        texts = read_model_texts(model)
    with problems.caught():
        check_headers(model, say)
    problems.refuse()
    plan = replace(
        plan,
        upstream_version=request.upstream_version,
        chat_template=texts.template,
        license=texts.license,
        system=system,
        options=kept_options(request),
        adapter=adapter,
        bundle_id=request.bundle_id,
        warnings=(*plan.warnings, *texts.remarks),
    )
    if system:
        check_system(plan, texts.unusable)
    return plan


def bundle_id_of(plan: Plan, request: PackageRequest) -> str:
    """Return the app's identifier: as asked for, as it was before, or the maker's own.

    Two people who package the same model get two identifiers.
    """
    output = request.output or Path(plan.package_name)
    earlier = lock.read(output).options if os.path.lexists(output / lock.NAME) else {}
    maker = f"{platform.node()}:{os.path.expanduser('~')}"  # noqa: PTH111 - that may fail
    kept = str(earlier.get("bundle_id", ""))
    return request.bundle_id or kept or naming.bundle_id(plan.package_name, maker)


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


def dry_run(plan: Plan, request: PackageRequest) -> PackageResult:
    """Render the package without writing it."""
    from h2o_pack.package.contents import render_files

    output = request.output or Path(plan.package_name)
    files, app = render_files(plan, output, new_app=request.new_app)
    replaced = tuple(write.written(output).changed(output))
    return PackageResult(plan, output.resolve(), tuple(files), app, replaced)


def build(plan: Plan, request: PackageRequest, say: ProgressReporter) -> PackageResult:
    """Write the package, bundle the model, fill Vendor/ and check all of it.

    Upstream that cannot be had leaves a package that is whole but for Vendor/.
    """
    from h2o_pack.package.contents import make_package
    from h2o_pack.verify.check import verify

    output = request.output or Path(plan.package_name)
    say(f"writing {plan.package_name}")
    package = make_package(plan, output, say, new_app=request.new_app)
    vendored, not_vendored = None, None
    if request.upstream is not None:
        try:
            vendored = fill_vendor(package.folder, request.upstream, say)
        except UserError as error:
            if error.code not in (ExitCode.NETWORK, ExitCode.TOOL):
                raise
            not_vendored = error
    say("checking what was written")
    checked = verify(package.folder, quick=True, say=say)
    return PackageResult(
        plan,
        package.folder,
        package.files,
        package.app,
        package.replaced,
        vendored,
        not_vendored,
        checked,
        package.manifest.system_prompt,
    )


def fill_vendor(package: Path, upstream: Path | Origin, say: ProgressReporter) -> Vendored:
    """Make Vendor/, unless the one that is there was made so already and is whole."""
    from h2o_pack.vendoring.vendor import current, vendor
    from h2o_pack.verify.vendor import compare_vendor

    record = lock.read(package)
    kept = record.vendor
    made_so = kept is not None and current(kept, record.upstream_version)
    if kept is not None and made_so and not compare_vendor(package, record).differences:
        say("Vendor is as it should be")
        return kept
    host, offline = (kept.host, kept.offline) if kept else (HOST, False)
    return vendor(package, upstream, host, say, offline=offline)
