"""Writes a package: its generated files and its model, in place of an earlier one at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from h2o_pack import assets
from h2o_pack.bundling.adapter import add_adapter
from h2o_pack.bundling.bundle import bundle
from h2o_pack.bundling.manifest import Manifest
from h2o_pack.bundling.trial import try_model
from h2o_pack.files import lock, write
from h2o_pack.files.layout import MODEL_FOLDER, VENDOR_FOLDER
from h2o_pack.package.app import AppState, earlier_app, without_offered
from h2o_pack.package.render import Earlier, render, scaffold_digests
from h2o_pack.plan.package_plan import Plan
from h2o_pack.progress import ProgressReporter, silent

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Package:
    """A package as written: its folder, generated files, what became of its app, its model.

    replaced: files of ours that the user had changed; they are in Replaced/ now.
    """

    folder: Path
    files: tuple[str, ...]
    app: AppState
    replaced: tuple[str, ...]
    manifest: Manifest


def make_package(
    plan: Plan, output: Path, say: ProgressReporter = silent, *, new_app: bool = False
) -> Package:
    """Write a package to `output`, in place of an earlier one of ours.

    new_app: write the app's scaffold to App.new where there is an app.
    """
    with write.exclusive(output), write.replacing_package(output) as staging:
        files, app = render_files(plan, output, new_app=new_app)
        replaced = tuple(write.written(output).changed(output))
        write.write_files(staging, files)
        manifest = bundle(plan.model, staging, say, earlier=output)
        say(f"trying {plan.model.id}")
        try_model(plan.model, staging / MODEL_FOLDER)
        if plan.adapter is not None:
            manifest = add_adapter(plan.adapter, staging, manifest)
        if plan.system:
            manifest = add_system_prompt(plan, staging, manifest, output, say)
    return Package(output.resolve(), tuple(files), app, replaced, manifest)


def add_system_prompt(
    plan: Plan, staging: Path, bundled: Manifest, output: Path, say: ProgressReporter
) -> Manifest:
    """Compute the caches of the system prompt, or keep those of the package at `output`."""
    from h2o_pack.prepared.system_prompt import prepare

    manifest = prepare(plan, staging, bundled, output, say)
    record = replace(lock.read(staging), system_prompt=manifest.system_prompt)
    write.write_files(staging, {lock.NAME: record.to_json()})
    return manifest


def render_files(
    plan: Plan, output: Path, *, new_app: bool = False
) -> tuple[dict[str, str], AppState]:
    """Return {path: text} of the files to write to `output`, and what becomes of its app."""
    app = earlier_app(output, wanted=new_app)
    files = render(plan, assets.root(), TEMPLATES, Earlier(existing_vendor(output), app))
    state = app.state(scaffold_digests(plan, assets.root()))
    return without_offered(files, output), state


def existing_vendor(output: Path) -> lock.Vendored | None:
    """Return how the Vendor/ folder of an earlier package was made, if there is one."""
    return lock.read(output).vendor if (output / VENDOR_FOLDER).is_dir() else None
