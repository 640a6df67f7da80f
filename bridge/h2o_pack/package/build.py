"""What `ios` does with a plan: generate, bundle, vendor, verify.

Each step ends whole: a run that is stopped leaves the earlier package or the new one, and
the next run goes on from what it finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from h2o_pack.bundling.app_size import AppSize, app_size
from h2o_pack.bundling.manifest import Manifest
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock, write
from h2o_pack.files.lock import Vendored
from h2o_pack.package.app import AppState
from h2o_pack.package.request import PackageRequest
from h2o_pack.plan.package_plan import Plan
from h2o_pack.progress import ProgressReporter
from h2o_pack.vendoring.fetch import Origin
from h2o_pack.verify.differences import Verification

HOST = "apple"


@dataclass(frozen=True)
class PackageResult:
    """What became of a request.

    files: those written, relative to `folder`. replaced: those among them that the user had
    changed, whose versions are in Replaced/. vendored: None where that was not asked for, or
    failed as `not_vendored` says. verification: None for a dry run. manifests: of each model,
    none for a dry run.
    """

    plan: Plan
    folder: Path
    files: tuple[str, ...]
    app: AppState
    replaced: tuple[str, ...]
    vendored: Vendored | None = None
    not_vendored: UserError | None = None
    verification: Verification | None = None
    manifests: tuple[Manifest, ...] = ()

    @property
    def size(self) -> AppSize:
        """Of the app; for a dry run as planned."""
        models = self.manifests or self.plan.each_model
        return app_size(sum(each.size for each in models), apart=self.plan.apart)


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
        package.manifests,
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
