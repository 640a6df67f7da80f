"""Writes a planned package (generated files, models, Vendor) and checks it.

A run that is stopped leaves the complete earlier package or the complete new one, and the next
run continues from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from h2o_pack.bundling.bundle import add_adapter, add_pieces, add_resolved, bundle
from h2o_pack.bundling.delivery import AppSize, app_size
from h2o_pack.bundling.manifest import Manifest
from h2o_pack.bundling.manifest import write as write_manifest
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock, write
from h2o_pack.files.lock import Vendored
from h2o_pack.models.loading import try_model
from h2o_pack.package.prepare import resolved_files
from h2o_pack.package.render import AppState, render_files
from h2o_pack.package.system_prompt import add_system_prompt
from h2o_pack.parity.parity import try_texts
from h2o_pack.parity.parity_report import Level
from h2o_pack.plan.package_plan import ModelPlan, PackagePlan
from h2o_pack.progress import ProgressReporter, silent
from h2o_pack.vendoring import vendor as vendoring
from h2o_pack.vendoring.fetch import Origin
from h2o_pack.verify.check import Verification, compare_vendor, verify

HOST = "apple"


@dataclass(frozen=True)
class PackageResult:
    """The result of building a plan.

    files: the written files, relative to `folder`. app: what happened to the folder App.
    replaced: written files that the user had changed; the user's versions are in Replaced/.
    vendored: None if Vendor/ was not requested or could not be made. not_vendored: the error
    with which making Vendor/ failed. verification: None for a dry run. manifests: one per
    model; empty for a dry run. text: level 0 of parity for each model; empty if it was not
    asked for. notes: those that were not shown when the package was made before.
    """

    plan: PackagePlan
    folder: Path
    files: tuple[str, ...]
    app: AppState
    replaced: tuple[str, ...]
    vendored: Vendored | None = None
    not_vendored: UserError | None = None
    verification: Verification | None = None
    manifests: tuple[Manifest, ...] = ()
    text: tuple[Level, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> AppSize:
        """The size of the app; after a dry run, the planned size."""
        size = sum(manifest.size for manifest in self.manifests) or self.plan.size
        spec = self.plan.spec
        return app_size(size, apart=spec.delivery.apart)


def dry_run(plan: PackagePlan, folder: Path, *, new_app: bool = False) -> PackageResult:
    """Render the package without writing it."""
    write.refuse_output(folder)
    files, app = render_files(plan, folder, new_app=new_app)
    replaced = tuple(write.written(folder).changed(folder))
    notes = new_notes(plan, folder)
    return PackageResult(plan, folder.resolve(), tuple(files), app, replaced, notes=notes)


def new_notes(plan: PackagePlan, folder: Path) -> tuple[str, ...]:
    """Return the notes that were not shown when the package in this folder was made."""
    shown = lock.read(folder).notes if (folder / lock.NAME).exists() else ()
    return tuple(note for note in plan.notes if note not in shown)


def build(
    plan: PackagePlan,
    folder: Path,
    upstream: Path | Origin | None,
    say: ProgressReporter,
    *,
    new_app: bool = False,
    check_text: bool = False,
) -> PackageResult:
    """Write the package, bundle the models, fill Vendor/ and check all of it.

    upstream: the source of Vendor/, a folder with clones or a download; None for no Vendor/. If
    upstream's sources cannot be obtained, the package is complete except for Vendor/. new_app:
    write the newest scaffold of the app to App.new if there is an App folder. check_text: ask
    the app's libraries for text, if Swift and their sources are there.
    """
    say(f"writing {plan.package_name}")
    package = make_package(plan, folder, say, new_app=new_app)
    vendored, not_vendored = None, None
    if upstream is not None:
        try:
            vendored = fill_vendor(package.folder, upstream, say)
        except UserError as error:
            if error.code not in (ExitCode.NETWORK, ExitCode.TOOL):
                raise
            not_vendored = error
    say("checking the written files")
    checked = verify(package.folder, quick=True, say=say)
    package = replace(
        package, vendored=vendored, not_vendored=not_vendored, verification=checked
    )
    if not check_text or not_vendored is not None or checked.differences:
        return package
    return replace(package, text=tuple(try_texts(package.folder, upstream, say)))


def make_package(
    plan: PackagePlan, output: Path, say: ProgressReporter = silent, *, new_app: bool = False
) -> PackageResult:
    """Write a package, which replaces an earlier one; new_app: as in `build`."""
    with write.exclusive(output), write.replacing_package(output) as staging:
        files, app = render_files(plan, output, new_app=new_app)
        replaced = tuple(write.written(output).changed(output))
        notes = new_notes(plan, output)
        write.write_files(staging, files)
        manifests = tuple(
            add_model(model, plan.spec.app.system, staging, output, say)
            for model in plan.models
        )
        if plan.spec.delivery.download:
            manifests = tuple(add_pieces(staging, manifest, say) for manifest in manifests)
        for model, manifest in zip(plan.models, manifests, strict=True):
            write_manifest(staging, manifest, model.folder)
    folder = output.resolve()
    return PackageResult(
        plan, folder, tuple(files), app, replaced, manifests=manifests, notes=notes
    )


def add_model(
    plan: ModelPlan, system: str, staging: Path, output: Path, say: ProgressReporter
) -> Manifest:
    """Put one model into the package; unchanged files of the earlier package are linked."""
    resolved = resolved_files(plan, plan.model)
    manifest = bundle(plan.model, staging, say, earlier=output, subfolder=plan.folder)
    say(f"trying {plan.model.id}")
    try_model(plan.model, staging / plan.folder)
    chunk = plan.memory.prefill_step
    manifest = add_resolved(resolved, staging, manifest, chunk, plan.folder)
    if plan.source.adapter is not None:
        manifest = add_adapter(plan.source.adapter, staging, manifest)
    if system:
        manifest = add_system_prompt(plan, system, staging, manifest, output, say)
    return manifest


def fill_vendor(package: Path, upstream: Path | Origin, say: ProgressReporter) -> Vendored:
    """Make Vendor/, unless it exists and is complete and current."""
    record = lock.read(package)
    vendored = record.vendor
    if vendored is None:
        return vendoring.vendor(package, upstream, HOST, say)
    if is_complete(package, record):
        say("Vendor is complete")
        return vendored
    return vendoring.vendor(package, upstream, vendored.host, say, offline=vendored.offline)


def is_complete(package: Path, record: lock.Lock) -> bool:
    """Whether Vendor/ is what h2o-pack would make today."""
    is_current = record.vendor is not None and vendoring.current(record.vendor)
    return is_current and not compare_vendor(package, record).differences
