"""The plan of a package: its models with their caches, their memory, and the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from h2o_pack import naming
from h2o_pack.bundling.delivery import model_bytes
from h2o_pack.files.paths import MODEL_FOLDER
from h2o_pack.memory.storages import Storage
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.model import Model, ModelFile
from h2o_pack.models.adapter import Adapter
from h2o_pack.models.texts import ModelTexts
from h2o_pack.plan.advice import common_first
from h2o_pack.plan.workload import Workload
from h2o_pack.resolved.files import Resolved
from h2o_pack.spec import ModelSpec, PackageSpec
from h2o_py.budgets import Budgets
from h2o_py.config import H2OConfig


@dataclass(frozen=True)
class ModelSource:
    """A model that was found, with its texts and its adapter.

    model: its weights include the bytes of the adapter. turns: texts of first turns that
    contain the system prompt; empty without a system prompt. resolved: what Python resolved of
    the model's files; None if they could not be read before the download.
    """

    model: Model
    texts: ModelTexts = field(default_factory=ModelTexts)
    adapter: Adapter | None = None
    turns: tuple[str, ...] = ()
    resolved: Resolved | None = None

    @property
    def files(self) -> tuple[ModelFile, ...]:
        """The model's files in the package."""
        files = self.model.files
        return files if self.resolved is None else self.resolved.files(files)


@dataclass(frozen=True)
class ModelPlan:
    """The plan of one model of a package.

    memory: the plan that needs the most bytes, among the named devices that can hold the model.
    memory_of: the plans for any "phone" and any "tablet". folder: the model's
    folder in the package.
    """

    spec: ModelSpec
    source: ModelSource
    workload: Workload
    memory: MemoryPlan
    memory_of: Mapping[str, MemoryPlan]
    warnings: tuple[str, ...]
    folder: str = MODEL_FOLDER

    @property
    def model(self) -> Model:
        """The description of the model."""
        return self.source.model

    @property
    def cache(self) -> H2OConfig:
        """The configuration that all layers share; `workload` has the cache of each layer."""
        return self.workload.common

    @property
    def storage(self) -> Storage:
        """The storage of the rows."""
        return self.workload.storage

    @property
    def budgets(self) -> Budgets | None:
        """The budgets that differ from layer to layer; None if all budgets are equal."""
        return self.spec.cache.budgets

    @property
    def archive(self) -> str:
        """The place of recall's archive: "memory" or "files"; "" without recall."""
        return self.spec.cache.archive or ""


@dataclass(frozen=True)
class PackagePlan:
    """The values from which a package is generated.

    models: the largest first; `spec` has them in the same order.
    """

    spec: PackageSpec
    models: tuple[ModelPlan, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks on all models, the common ones first."""
        return tuple(common_first([(model.model.id, model.warnings) for model in self.models]))

    @property
    def title(self) -> str:
        """The name that the user gave, or the name of the largest model."""
        return self.spec.app.name or naming.model_display_name(self.models[0].model.id)

    @property
    def package_name(self) -> str:
        """The name in a form that SwiftPM, file systems and Xcode accept."""
        return naming.package_name(self.title)

    @property
    def folder_name(self) -> str:
        """The title as the name of a folder, and of the Xcode project."""
        return naming.file_name(self.title, self.package_name)

    @property
    def module_name(self) -> str:
        """The beginning of the name of the module with the models."""
        return naming.module_name(self.package_name)

    @property
    def display_name(self) -> str:
        """The name below the app's icon."""
        return naming.display_name(self.title, self.package_name)

    @property
    def bundle_id(self) -> str:
        """The app's identifier."""
        return self.spec.app.bundle_id or naming.bundle_id(self.package_name)

    @property
    def size(self) -> int:
        """An upper bound for the bytes of models, adapters and caches of a system prompt."""
        return sum(
            model_bytes(replace(model.model, files=model.source.files))
            + (model.source.adapter.bytes if model.source.adapter else 0)
            + (model.workload.plan("iphone").caches if self.spec.app.system else 0)
            for model in self.models
        )
