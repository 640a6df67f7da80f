"""Writes a package: its generated files and its model, in place of an earlier one at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from h2o_pack import assets
from h2o_pack.bundling.adapter import add_adapter
from h2o_pack.bundling.bundle import bundle
from h2o_pack.bundling.manifest import Manifest
from h2o_pack.bundling.pieces import add_pieces
from h2o_pack.bundling.trial import try_model
from h2o_pack.files import lock, write
from h2o_pack.files.content import Content
from h2o_pack.files.layout import VENDOR_FOLDER
from h2o_pack.package.app import AppState, earlier_app, without_offered
from h2o_pack.package.render import Earlier, digests, render, rendered_app
from h2o_pack.package.traces import existing_traces
from h2o_pack.plan.package_plan import Plan
from h2o_pack.progress import ProgressReporter, silent

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Package:
    """A package as written: its folder, generated files, what became of its app, its models.

    replaced: files of ours that the user had changed; they are in Replaced/ now.
    """

    folder: Path
    files: tuple[str, ...]
    app: AppState
    replaced: tuple[str, ...]
    manifests: tuple[Manifest, ...]


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
        manifests = tuple(add_model(each, staging, output, say) for each in plan.each_model)
        if plan.system:
            note_system_prompts(staging, manifests)
        if plan.download:
            manifests = tuple(add_pieces(staging, each, say) for each in manifests)
    return Package(output.resolve(), tuple(files), app, replaced, manifests)


def add_model(plan: Plan, staging: Path, output: Path, say: ProgressReporter) -> Manifest:
    """Put one model into the package, with its adapter and its system prompt's caches.

    output: the earlier package, from which files are taken over that are the same.
    """
    manifest = bundle(plan.model, staging, say, earlier=output, subfolder=plan.folder)
    say(f"trying {plan.model.id}")
    try_model(plan.model, staging / plan.folder)
    if plan.adapter is not None:
        manifest = add_adapter(plan.adapter, staging, manifest)
    if plan.system:
        from h2o_pack.prepared.system_prompt import prepare

        manifest = prepare(plan, staging, manifest, output, say)
    return manifest


def note_system_prompts(staging: Path, manifests: Sequence[Manifest]) -> None:
    """Write into the lock what the caches of the system prompt were computed from."""
    record = lock.read(staging)
    first, *rest = (manifest.system_prompt for manifest in manifests)
    others = zip(record.others, rest, strict=True)
    record = replace(
        record,
        system_prompt=first,
        others=tuple(replace(other, system_prompt=prompt) for other, prompt in others),
    )
    write.write_files(staging, {lock.NAME: record.to_json()})


def render_files(
    plan: Plan, output: Path, *, new_app: bool = False
) -> tuple[dict[str, Content], AppState]:
    """Return {path: content} of the files to write to `output`, and what becomes of its app."""
    app = earlier_app(output, wanted=new_app)
    earlier = Earlier(existing_vendor(output), app, existing_traces(output))
    files = render(plan, assets.root(), TEMPLATES, earlier)
    state = app.state(digests(rendered_app(plan, assets.root())))
    return without_offered(files, output), state


def existing_vendor(output: Path) -> lock.Vendored | None:
    """Return how the Vendor/ folder of an earlier package was made, if there is one."""
    return lock.read(output).vendor if (output / VENDOR_FOLDER).is_dir() else None
