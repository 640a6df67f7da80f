"""The results of `ios`, `update` and `vendor`: their types for JSON, and their tables."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from h2o_pack.bundling.delivery import AppSize
from h2o_pack.bundling.manifest import Manifest, PreparedPrompt
from h2o_pack.choice.choice import Choice, print_chosen
from h2o_pack.files.lock import EditedFile, Vendored
from h2o_pack.files.paths import APP_FOLDER, SYSTEM_PROMPT, from_here
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.models.adapter import Adapter
from h2o_pack.models.texts import ModelLicense
from h2o_pack.package.build import PackageResult
from h2o_pack.package.render import STATES, XCODE, AppState
from h2o_pack.parity.parity_report import EQUAL, Level, sentence
from h2o_pack.plan.package_plan import ModelPlan
from h2o_pack.plan.plan_tables import size_sentence
from h2o_pack.printing import caption
from h2o_pack.results import Count, ErrorEntry, Result, doc, error_entries
from h2o_py.config import H2OConfig
from h2o_py.policy_fields import LARGEST
from h2o_py.storages import STORAGE_BITS

Choices = Mapping[str, Choice]
"""The choice for each `--model`; the key is "" if no model was given."""


@dataclass(frozen=True, kw_only=True)
class VendorResult(Result):
    """The content of Vendor/."""

    package: Annotated[Path, doc("Folder of the package.")]
    host: Annotated[str, doc("System on which the package will be built: apple or linux.")]
    commits: Annotated[
        dict[str, str],
        doc("Commit of each upstream package; empty if --upstream gave a folder without git."),
    ]
    edited: Annotated[tuple[EditedFile, ...], doc("Files that an edit changed.")]
    offline: Annotated[bool, doc("Whether Vendor contains everything that a build needs.")]


@dataclass(frozen=True)
class PackagedFile:
    """A file in the folder of a model."""

    path: Annotated[str, doc("Path in the model's folder.")]
    size: Annotated[Count, doc("Bytes of the file.")]


@dataclass(frozen=True)
class StatedLicense:
    """The license that the model's files state."""

    id: Annotated[str, doc("License id on the model card; empty without one.")]
    link: Annotated[str, doc("License link on the model card; empty without one.")]
    files: Annotated[
        tuple[str, ...],
        doc("Files in the model's folder with texts of the license and notices."),
    ]

    @classmethod
    def of(cls, model_license: ModelLicense) -> StatedLicense | None:
        """Return the license in the form of a result; None if the model has none."""
        if not (model_license.id or model_license.texts):
            return None
        return cls(model_license.id, model_license.link, tuple(model_license.texts))

    def __str__(self) -> str:
        return (
            f"{self.id or 'not named'} ({', '.join(self.files) or 'its text is not in Model'})"
        )


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """One model of the package, with its cache and its files."""

    folder: Annotated[str, doc("Folder of the model in the package.")]
    model: Annotated[str, doc("Hub id, short name or folder name.")]
    commit: Annotated[str, doc("Commit on the hub; empty for a local model.")]
    config: Annotated[H2OConfig, doc("Settings of the model's cache, including defaults.")]
    kv: Annotated[
        str, doc("Storage of rows: bits of all rows, or of recent (r) and other (h) rows.")
    ]
    group_size: Annotated[
        Count, doc("Elements of quantized rows that share a scale and a bias.")
    ]
    archive: Annotated[str, doc("Where recall keeps evicted tokens; empty without recall.")]
    memory: Annotated[MemoryPlan, doc("Memory plan, as in `h2o-pack plan --json`.")]
    files: Annotated[tuple[PackagedFile, ...], doc("Files of the model in its folder.")]
    license: Annotated[
        StatedLicense | None, doc("License of the model; null if its files name none.")
    ]
    system_prompt: Annotated[
        PreparedPrompt | None,
        doc("Origin of the system prompt's caches; null without a system prompt."),
    ]
    adapter: Annotated[Adapter | None, doc("LoRA adapter in the folder; null without one.")]
    warnings: Annotated[tuple[str, ...], doc("Settings that work but may give poor results.")]
    choice: Annotated[
        Choice | None,
        doc("How the model and its cache were chosen; null if all options were given."),
    ]


@dataclass(frozen=True, kw_only=True)
class IosResult(Result):
    """The package that was made."""

    package: Annotated[Path, doc("Folder of the package.")]
    written: Annotated[bool, doc("Whether the package was written; false after a dry run.")]
    name: Annotated[str, doc("Name of the package.")]
    module: Annotated[str, doc("Swift module with the models.")]
    bundle_id: Annotated[str, doc("Identifier of the app.")]
    display_name: Annotated[str, doc("Name below the app's icon.")]
    models: Annotated[tuple[PackagedModel, ...], doc("Models, the largest first.")]
    size: Annotated[AppSize, doc("Size of the app.")]
    asset_pack: Annotated[bool, doc("Whether Apple hosts the model separately from the app.")]
    download: Annotated[
        str,
        doc(
            "Address from which the app downloads its model; empty if the model is in the app."
        ),
    ]
    files: Annotated[tuple[str, ...], doc("Written files, relative to the package's folder.")]
    app: Annotated[
        AppState,
        doc(
            "State of the folder App: "
            + "; ".join(f"{k}: {v}" for k, v in STATES.items())
            + "."
        ),
    ]
    replaced: Annotated[
        tuple[str, ...],
        doc("Generated files that the user had changed; the changed files are in Replaced/."),
    ]
    vendor: Annotated[
        VendorResult | None, doc("Content of Vendor/; null if Vendor was not made.")
    ]
    text: Annotated[
        tuple[Level, ...],
        doc(
            "Level 0 of parity for each model: what the app's libraries for text answer; empty "
            "if it was not asked for."
        ),
    ]
    errors: Annotated[
        tuple[ErrorEntry, ...],
        doc("Why Vendor/ could not be made; the first error gives the exit code."),
    ]


@dataclass(frozen=True, kw_only=True)
class PackagesResult(Result):
    """The packages of h2o-pack.toml that were made before the first failure."""

    packages: Annotated[tuple[IosResult, ...], doc("Packages in the order of the file.")]


def ios_result(result: PackageResult, choices: Choices = MappingProxyType({})) -> IosResult:
    """Return the package and the choices made for it, as --json prints them."""
    plan, failed = result.plan, result.not_vendored
    return IosResult(
        package=result.folder,
        written=result.verification is not None,
        name=plan.package_name,
        module=f"{plan.module_name}Model",
        bundle_id=plan.bundle_id,
        display_name=plan.display_name,
        models=tuple(
            packaged(model, manifest, choices)
            for model, manifest in zip_longest(plan.models, result.manifests)
        ),
        size=result.size,
        asset_pack=plan.spec.delivery.asset_pack,
        download=plan.spec.delivery.download,
        files=result.files,
        app=result.app,
        replaced=result.replaced,
        vendor=None
        if result.vendored is None
        else vendor_result(result.folder, result.vendored),
        text=result.text,
        errors=error_entries([failed] if failed else []),
    )


def packaged(plan: ModelPlan, manifest: Manifest | None, choices: Choices) -> PackagedModel:
    """Return the result for one model; manifest: None if the model was not written."""
    files = plan.source.files if manifest is None else manifest.files
    return PackagedModel(
        folder=plan.folder,
        model=plan.model.id,
        commit=plan.model.commit,
        config=plan.cache,
        kv=plan.storage.name,
        group_size=plan.storage.group_size,
        archive=plan.archive,
        memory=plan.memory,
        files=tuple(PackagedFile(file.path, file.size) for file in files),
        license=StatedLicense.of(plan.source.texts.license),
        system_prompt=None if manifest is None else manifest.system_prompt,
        adapter=plan.source.adapter,
        warnings=plan.warnings,
        choice=choices.get(plan.spec.model or "", choices.get("")),
    )


def vendor_result(package: Path, vendored: Vendored) -> VendorResult:
    """Return the vendored folder as --json prints it."""
    return VendorResult(
        package=package,
        host=vendored.host,
        commits=vendored.commits,
        edited=vendored.files,
        offline=vendored.offline,
    )


def print_result(result: PackageResult, choices: Choices, console: Console) -> None:
    """Show the choice, the package or the dry run, notes, and the next commands to run."""
    if result.not_vendored is not None:
        console.print(
            f"{from_here(result.folder)} is complete except for Vendor: run the command again",
            markup=False,
        )
        return
    for choice in choices.values():
        print_chosen(choice, console)
        caption("`h2o-pack plan` shows the other models and caches.", console)
    print_package(result, console)
    for path in result.replaced:
        caption(
            f"note: you had changed {path}: your version is in Replaced",
            console,
            "",
        )
    for note in result.notes:
        caption(f"note: {note}", console, "")
    if result.verification is None:
        console.print("nothing was written: this was a dry run")
        return
    for difference in result.verification.differences:
        caption(f"differs: {difference}", console, "")
    print_text(result.text, console)
    console.print("next:")
    for step in next_steps(result):
        console.print(f"  {step}", markup=False, soft_wrap=True)


def next_steps(result: PackageResult) -> Iterator[str]:
    """Yield the commands that follow, and what to upload."""
    folder = from_here(result.folder)
    package = shlex.quote(str(folder))
    if result.vendored is None:
        yield f"h2o-pack vendor {package}"
    app = folder / APP_FOLDER
    project = next(iter(sorted(app.glob(f"*{XCODE}"))), app)
    yield f"open {shlex.quote(str(project))}"
    yield f"h2o-pack parity {package}"
    if result.plan.spec.delivery.download:
        yield f"upload {package}/Model to {result.plan.spec.delivery.download}"


def print_text(levels: Sequence[Level], console: Console) -> None:
    """Show whether the app's libraries for text agree with Python's, and what differs."""
    for level in levels:
        name = f"{level.model}: " if level.model else ""
        if level.not_run:
            caption(f"{name}text {level.not_run}", console, "")
            continue
        for case in level.cases:
            if case.first_difference is not None:
                caption(
                    f"{name}text, {case.name}: {sentence(case.first_difference)}", console, ""
                )
        if level.verdict == EQUAL:
            count = sum(case.comparisons for case in level.cases)
            text = (
                f"{name}text: the app's libraries agree with Python's in {count:,} comparisons"
            )
            caption(text, console, "")


def print_package(result: PackageResult, console: Console) -> None:
    """Show a table of the package and its models, one column per model."""
    plan, several = result.plan, len(result.plan.models) > 1
    table = Table(
        title=escape(str(from_here(result.folder))), title_justify="left", show_header=False
    )
    models = [
        model_rows(model, manifest, system=bool(plan.spec.app.system))
        for model, manifest in zip_longest(plan.models, result.manifests)
    ]
    labels = dict.fromkeys(label for rows in models for label in rows)
    for label in labels:
        table.add_row(label, *(escape(rows.get(label, "-")) for rows in models))
    if several:
        console.print(table)
        table = Table(show_header=False)
    table.add_row("module", f"{plan.module_name}Model, with H2OKit")
    own = sum(len(model.source.files) for model in plan.models)
    table.add_row(
        "files",
        f"{len(result.files)} generated, {own} of the model{'s' if several else ''}",
    )
    table.add_row("size", size_sentence(result.size))
    table.add_row(
        "app", escape(f"{plan.display_name} ({plan.bundle_id}): {STATES[result.app]}")
    )
    console.print(table)


def model_rows(plan: ModelPlan, manifest: Manifest | None, *, system: bool) -> dict[str, str]:
    """Return the table's lines about a model, by their titles.

    manifest: the manifest of the model's folder; None if nothing was written. system: whether
    the package has a system prompt.
    """
    config, cache, memory = plan.model.config, plan.cache, plan.memory
    sizes = {layer.max_size for layer in plan.workload.caches if layer} or {cache.max_size}
    own = f", {min(sizes)} to {max(sizes)} by layer" if len(sizes) > 1 else ""
    kept = (
        f"{cache.max_size} tokens per layer{own}: {cache.sink_size} first, "
        f"{cache.heavy_budget} heavy, {cache.recent_budget} recent"
        if cache.evicts
        else "every token"
    )
    archived = f", archive {memory.archive / 1e6:,.1f}" if memory.archive else ""
    rows = {
        "model": f"{plan.model.id} ({config.model_type}, {len(config.layers)} layers, "
        f"{config.kv_heads} KV heads of {config.head_dim})",
        "cache": f"{kept}; {STORAGE_BITS[plan.storage.name].meaning}",
    }
    if cache.recall is not None:
        recall = cache.recall
        read = "all" if recall.reach == LARGEST else f"{recall.reach}"
        rows["recall"] = (
            f"a generated token reads {read} archived tokens per head, "
            f"{len(plan.workload.archives)} layers, archive in {plan.archive} in "
            f"{recall.archive_bits} bits"
        )
    rows["memory"] = (
        f"{memory.total / 1e6:,.0f} MB: weights {memory.weights / 1e6:,.0f}, "
        f"caches {memory.caches / 1e6:,.1f}{archived}; `h2o-pack plan` has each term"
    )
    model_license = StatedLicense.of(plan.source.texts.license)
    rows["license"] = str(model_license) if model_license else "none found"
    adapter = plan.source.adapter
    if adapter is not None:
        rows["adapter"] = (
            f"{adapter.type} of rank {adapter.rank} in the last "
            f"{adapter.layers} layers, {adapter.bytes / 1e6:,.1f} MB"
        )
    if system:
        prompt = manifest.system_prompt if manifest else None
        count = f"{prompt.tokens} tokens" if prompt else "read when the package is written"
        rows["system"] = f"{count}; caches of the prompt are in {plan.folder}/{SYSTEM_PROMPT}"
    return rows


def print_vendored(package: Path, vendored: Vendored, console: Console) -> None:
    """Show the host of Vendor/ and the number of edited files per upstream package."""
    console.print(f"{package / 'Vendor'} is made for the host {vendored.host}", markup=False)
    edited = Counter(file.path.partition("/")[0] for file in vendored.files)
    for name, count in edited.items():
        console.print(f"  edited files of {name}: {count}", markup=False)
