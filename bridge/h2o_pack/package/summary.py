"""What `ios` and `vendor` did, for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from h2o_pack.bundling.app_size import AppSize
from h2o_pack.bundling.manifest import Manifest
from h2o_pack.choice.result import Choice
from h2o_pack.files.lock import EditedFile, PreparedPrompt, Vendored
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.models.adapter import Adapter
from h2o_pack.models.license_terms import ModelLicense
from h2o_pack.package.app import STATES, AppState
from h2o_pack.package.build import PackageResult
from h2o_pack.plan.package_plan import Plan
from h2o_pack.results import Count, ErrorEntry, Result, doc, error_entries
from h2o_py.config import H2OConfig

Choices = Mapping[str, Choice]
"""What was chosen for each `--model`, "" where none was given."""


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

    path: Annotated[str, doc("Relative to the model's folder.")]
    size: Annotated[Count, doc("Bytes.")]


@dataclass(frozen=True)
class StatedLicense:
    """What the model's files say of its license."""

    id: Annotated[str, doc("As the model card has it; empty where it names none.")]
    link: Annotated[str, doc("As the model card has it; empty where it has none.")]
    files: Annotated[tuple[str, ...], doc("Texts of license and notices in its folder.")]

    @classmethod
    def of(cls, found: ModelLicense) -> StatedLicense | None:
        """Return what was found, None for nothing."""
        if not (found.id or found.texts):
            return None
        return cls(found.id, found.link, tuple(found.texts))

    def __str__(self) -> str:
        return f"{self.id or 'not named'} ({', '.join(self.files) or 'no text of it in Model'})"


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A model of the package."""

    folder: Annotated[str, doc("Where it lies in the package.")]
    model: Annotated[str, doc("Hub id, alias or folder name.")]
    commit: Annotated[str, doc("Its commit on the hub; empty for a local one.")]
    config: Annotated[H2OConfig, doc("Its cache's settings, all defaults filled in.")]
    kv: Annotated[
        str, doc("How rows are stored: bits of all, or of recent (r) and other (h) rows.")
    ]
    group_size: Annotated[
        Count, doc("Elements of quantized rows that share a scale and a bias.")
    ]
    archive: Annotated[str, doc("Where recall keeps what is evicted; empty without recall.")]
    memory: Annotated[MemoryPlan, doc("As `h2o-pack plan --json` has it.")]
    files: Annotated[tuple[PackagedFile, ...], doc("Its files, in its folder.")]
    license: Annotated[StatedLicense | None, doc("Its license; null where none was found.")]
    system_prompt: Annotated[
        PreparedPrompt | None,
        doc("What the caches of the system prompt were computed from; null without them."),
    ]
    adapter: Annotated[Adapter | None, doc("The LoRA adapter in its folder; null without one.")]
    warnings: Annotated[tuple[str, ...], doc("What works but may serve badly.")]
    choice: Annotated[
        Choice | None, doc("What was chosen of it and its cache; null if all was given.")
    ]


@dataclass(frozen=True, kw_only=True)
class IosResult(Result):
    """The package that was made."""

    package: Annotated[Path, doc("The package's folder.")]
    written: Annotated[bool, doc("False after a dry run.")]
    name: Annotated[str, doc("The package's name.")]
    module: Annotated[str, doc("The Swift module with the models.")]
    bundle_id: Annotated[str, doc("The app's identifier, where its scaffold is written.")]
    display_name: Annotated[str, doc("What stands below the app's icon.")]
    models: Annotated[tuple[PackagedModel, ...], doc("The largest first.")]
    size: Annotated[AppSize, doc("Of the app.")]
    asset_pack: Annotated[
        bool, doc("Whether the model comes to the device apart from the app.")
    ]
    download: Annotated[
        str,
        doc("The address from which the app fetches its model; empty where it does not."),
    ]
    files: Annotated[tuple[str, ...], doc("Files written, relative to the folder.")]
    app: Annotated[
        AppState,
        doc("What became of App: " + "; ".join(f"{k}: {v}" for k, v in STATES.items()) + "."),
    ]
    replaced: Annotated[
        tuple[str, ...],
        doc("Generated files that had been changed; the changed ones are in Replaced/."),
    ]
    vendor: Annotated[
        VendorResult | None, doc("What Vendor/ holds; null where it was not filled.")
    ]
    errors: Annotated[
        tuple[ErrorEntry, ...],
        doc("Why Vendor/ could not be filled; the exit code is its code."),
    ]


@dataclass(frozen=True, kw_only=True)
class PackagesResult(Result):
    """The packages of h2o-pack.toml, up to the first that failed."""

    packages: Annotated[tuple[IosResult, ...], doc("In the order of the file.")]


def ios_result(made: PackageResult, choices: Choices = MappingProxyType({})) -> IosResult:
    """Return what was made as --json prints it, with what was chosen for it."""
    plan, failed = made.plan, made.not_vendored
    return IosResult(
        package=made.folder,
        written=made.verification is not None,
        name=plan.package_name,
        module=f"{plan.module_name}Model",
        bundle_id=plan.bundle_id,
        display_name=plan.display_name,
        models=tuple(
            packaged(each, manifest, choices)
            for each, manifest in zip_longest(plan.each_model, made.manifests)
        ),
        size=made.size,
        asset_pack=plan.asset_pack,
        download=plan.download,
        files=made.files,
        app=made.app,
        replaced=made.replaced,
        vendor=None if made.vendored is None else vendor_result(made.folder, made.vendored),
        errors=error_entries([failed] if failed else []),
    )


def packaged(plan: Plan, manifest: Manifest | None, choices: Choices) -> PackagedModel:
    """Return what a result says of a model; without a manifest it is not written yet."""
    files = plan.model.files if manifest is None else manifest.files
    return PackagedModel(
        folder=plan.folder,
        model=plan.model.id,
        commit=plan.model.commit,
        config=plan.cache,
        kv=plan.storage,
        group_size=plan.group_size,
        archive=plan.archive,
        memory=plan.memory,
        files=tuple(PackagedFile(each.path, each.size) for each in files),
        license=StatedLicense.of(plan.license),
        system_prompt=None if manifest is None else manifest.system_prompt,
        adapter=plan.adapter,
        warnings=plan.warnings,
        choice=choices.get(plan.asked),
    )


def vendor_result(package: Path, vendored: Vendored) -> VendorResult:
    """Return what was vendored as --json prints it."""
    return VendorResult(
        package=package,
        host=vendored.host,
        commits=vendored.commits,
        edited=vendored.files,
        offline=vendored.offline,
    )
