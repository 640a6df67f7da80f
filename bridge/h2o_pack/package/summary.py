"""What `ios` and `vendor` did, for people and for machines."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from h2o_pack.choice.result import Choice
from h2o_pack.choice.tables import print_choice
from h2o_pack.files.layout import MODEL_FOLDER, SYSTEM_PROMPT
from h2o_pack.files.lock import EditedFile, PreparedPrompt, Vendored
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.models.adapter import Adapter
from h2o_pack.models.license_terms import ModelLicense
from h2o_pack.package.app import STATES, AppState
from h2o_pack.package.build import PackageResult
from h2o_pack.plan.package_plan import Plan
from h2o_pack.results import Count, ErrorEntry, Result, doc, error_entries
from h2o_py.config import H2OConfig
from h2o_py.storages import STORAGE_BITS

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class VendorResult(Result):
    """What Vendor/ holds."""

    package: Annotated[Path, doc("The package's folder.")]
    host: Annotated[str, doc("Where the package will be built: apple or linux.")]
    commits: Annotated[
        dict[str, str],
        doc("The commit of each upstream package; empty where a folder without git was given."),
    ]
    edited: Annotated[tuple[EditedFile, ...], doc("Files that an edit changed.")]
    offline: Annotated[bool, doc("Whether it holds all that SwiftPM would fetch.")]


@dataclass(frozen=True)
class PackagedFile:
    """A file of the model."""

    path: Annotated[str, doc("Relative to Model/.")]
    size: Annotated[Count, doc("Bytes.")]


@dataclass(frozen=True)
class StatedLicense:
    """What the model's files say of its license."""

    id: Annotated[str, doc("As the model card has it; empty where it names none.")]
    link: Annotated[str, doc("As the model card has it; empty where it has none.")]
    files: Annotated[tuple[str, ...], doc("Texts of license and notices in Model/.")]

    @classmethod
    def of(cls, found: ModelLicense) -> StatedLicense | None:
        """Return what was found, None for nothing."""
        if not (found.id or found.texts):
            return None
        return cls(found.id, found.link, tuple(found.texts))

    def __str__(self) -> str:
        return f"{self.id or 'not named'} ({', '.join(self.files) or 'no text of it in Model'})"


@dataclass(frozen=True, kw_only=True)
class IosResult(Result):
    """The package that was made."""

    package: Annotated[Path, doc("The package's folder.")]
    written: Annotated[bool, doc("False after a dry run.")]
    name: Annotated[str, doc("The package's name.")]
    module: Annotated[str, doc("The Swift module with the model.")]
    model: Annotated[str, doc("Hub id, alias or folder name.")]
    commit: Annotated[str, doc("The model's commit on the hub; empty for a local one.")]
    config: Annotated[H2OConfig, doc("The cache's settings, all defaults filled in.")]
    kv: Annotated[
        str, doc("How rows are stored: bits of all, or of recent (r) and other (h) rows.")
    ]
    group_size: Annotated[
        Count, doc("Elements of quantized rows that share a scale and a bias.")
    ]
    archive: Annotated[str, doc("Where recall keeps what is evicted; empty without recall.")]
    bundle_id: Annotated[str, doc("The app's identifier, where its scaffold is written.")]
    display_name: Annotated[str, doc("What stands below the app's icon.")]
    asset_pack: Annotated[
        bool, doc("Whether the model comes to the device apart from the app.")
    ]
    memory: Annotated[MemoryPlan, doc("As `h2o-pack plan --json` has it.")]
    files: Annotated[tuple[str, ...], doc("Files written, relative to the folder.")]
    app: Annotated[
        AppState,
        doc("What became of App: " + "; ".join(f"{k}: {v}" for k, v in STATES.items()) + "."),
    ]
    replaced: Annotated[
        tuple[str, ...],
        doc("Generated files that had been changed; the changed ones are in Replaced/."),
    ]
    model_files: Annotated[tuple[PackagedFile, ...], doc("Files of the model, in Model/.")]
    model_bytes: Annotated[Count, doc("Bytes of the bundled files.")]
    license: Annotated[StatedLicense | None, doc("The model's; null where none was found.")]
    system_prompt: Annotated[
        PreparedPrompt | None,
        doc("What the caches of the system prompt were computed from; null without them."),
    ]
    adapter: Annotated[Adapter | None, doc("The LoRA adapter in Model/; null without one.")]
    vendor: Annotated[
        VendorResult | None, doc("What Vendor/ holds; null where it was not filled.")
    ]
    errors: Annotated[
        tuple[ErrorEntry, ...],
        doc("Why Vendor/ could not be filled; the exit code is its code."),
    ]
    warnings: Annotated[tuple[str, ...], doc("What works but may serve badly.")]
    choice: Annotated[
        Choice | None, doc("What was chosen of the model and cache; null if all was given.")
    ]


def ios_result(made: PackageResult, choice: Choice | None = None) -> IosResult:
    """Return what was made as --json prints it, with what was chosen for it."""
    plan, failed = made.plan, made.not_vendored
    return IosResult(
        package=made.folder,
        written=made.verification is not None,
        name=plan.package_name,
        module=f"{plan.module_name}Model",
        model=plan.model.id,
        commit=plan.model.commit,
        config=plan.cache,
        kv=plan.storage,
        group_size=plan.group_size,
        archive=plan.archive,
        bundle_id=plan.bundle_id,
        display_name=plan.display_name,
        asset_pack=plan.asset_pack,
        memory=plan.memory,
        files=made.files,
        app=made.app,
        replaced=made.replaced,
        model_files=tuple(PackagedFile(each.path, each.size) for each in plan.model.files),
        model_bytes=model_bytes(plan),
        license=StatedLicense.of(plan.license),
        system_prompt=made.system_prompt,
        adapter=plan.adapter,
        vendor=None if made.vendored is None else vendor_result(made.folder, made.vendored),
        errors=error_entries([failed] if failed else []),
        warnings=plan.warnings,
        choice=choice,
    )


def model_bytes(plan: Plan) -> int:
    """Bytes of the model's files."""
    return sum(each.size for each in plan.model.files)


def print_made(made: PackageResult, choice: Choice | None, console: Console) -> None:
    """Show what was chosen, what was made or would be, and what can be done with it.

    A package without the Vendor/ that was asked for is no success.
    """
    if made.not_vendored is not None:
        console.print(
            f"{made.folder} is whole but for Vendor: run the same command again", markup=False
        )
        return
    from rich.markup import escape
    from rich.table import Table

    if choice is not None:
        print_choice(choice, console)
    plan = made.plan
    config, cache = plan.model.config, plan.cache
    table = Table(title=escape(str(made.folder)), title_justify="left", show_header=False)
    table.add_row(
        "model",
        escape(
            f"{plan.model.id} ({config.model_type}, {len(config.layers)} layers, "
            f"{config.kv_heads} KV heads of {config.head_dim})"
        ),
    )
    sizes = {each.max_size for each in plan.caches if each} or {cache.max_size}
    own = f", {min(sizes)} to {max(sizes)} by layer" if len(sizes) > 1 else ""
    stored = STORAGE_BITS[plan.storage].meaning
    archived = f", archive {held / 1e6:,.1f}" if (held := plan.memory.archive) else ""
    table.add_row(
        "cache",
        f"{cache.max_size} tokens per layer{own}: {cache.sink_size} first, "
        f"{cache.heavy_budget} heavy, {cache.recent_budget} recent; {stored}",
    )
    if cache.recall is not None:
        every = cache.recall.every
        when = f" at prompts and every {every} tokens" if every else ""
        recalling = sum(1 for each in plan.caches if each and each.recall_rows)
        table.add_row(
            "recall",
            f"up to {cache.recall_rows} rows{when}, {recalling} layers, archive in "
            f"{plan.archive} in "
            f"{cache.recall.archive_bits} bits",
        )
    table.add_row(
        "memory",
        f"{plan.memory.total / 1e6:,.0f} MB: weights {plan.memory.weights / 1e6:,.0f}, "
        f"caches {plan.memory.caches / 1e6:,.1f}{archived}; `h2o-pack plan` has each term",
    )
    table.add_row("module", f"{plan.module_name}Model, with H2OKit")
    table.add_row(
        "files",
        f"{len(made.files)} generated, {len(plan.model.files)} of the model "
        f"({model_bytes(plan) / 1e6:,.1f} MB)",
    )
    stated = StatedLicense.of(plan.license)
    table.add_row("license", escape(str(stated)) if stated else "none found")
    if plan.adapter is not None:
        table.add_row(
            "adapter",
            f"{plan.adapter.type} of rank {plan.adapter.rank} in the last "
            f"{plan.adapter.layers} layers, {plan.adapter.bytes / 1e6:,.1f} MB",
        )
    if plan.system:
        prepared = made.system_prompt
        count = f"{prepared.tokens} tokens" if prepared else "read when the package is written"
        table.add_row("system", f"{count}; its caches are in {MODEL_FOLDER}/{SYSTEM_PROMPT}")
    table.add_row("app", escape(f"{plan.display_name} ({plan.bundle_id}): {STATES[made.app]}"))
    console.print(table)
    for path in made.replaced:
        console.print(
            f"note: you had changed {path}, which is written anew; yours is in Replaced",
            markup=False,
            soft_wrap=False,
        )
    for warning in plan.warnings:
        console.print(f"note: {warning}", markup=False, soft_wrap=False)
    if made.verification is None:
        console.print("nothing was written: this was a dry run")
        return
    for each in made.verification.differences:
        console.print(f"differs: {each}", markup=False, soft_wrap=False)
    folder = shlex.quote(str(made.folder))
    project = shlex.quote(f"{made.folder}/App/Chat.xcodeproj")
    steps = f"h2o-pack parity {folder}; open {project}"
    if made.vendored is None:
        steps = f"h2o-pack vendor {folder}; {steps}"
    console.print(f"next: {steps}", markup=False)


def vendor_result(package: Path, vendored: Vendored) -> VendorResult:
    """Return what was vendored as --json prints it."""
    return VendorResult(
        package=package,
        host=vendored.host,
        commits=vendored.commits,
        edited=vendored.files,
        offline=vendored.offline,
    )


def print_vendored(package: Path, vendored: Vendored, console: Console) -> None:
    """Show what was vendored."""
    console.print(f"{package / 'Vendor'} is made for the host {vendored.host}", markup=False)
    for file in vendored.files:
        console.print(f"  edited: {file.path}", markup=False)
