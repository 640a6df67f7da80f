"""The plan of a package: its models with their caches, their memory, and the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from h2o_pack import naming
from h2o_pack.bundling.delivery import model_bytes
from h2o_pack.files.paths import MODEL_FOLDER
from h2o_pack.memory.storages import Storage
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.model import Model
from h2o_pack.models.adapter import Adapter
from h2o_pack.models.texts import ModelTexts
from h2o_pack.plan.workload import Workload
from h2o_pack.spec import ModelSpec, PackageSpec
from h2o_py.budgets import Budgets
from h2o_py.config import H2OConfig


@dataclass(frozen=True)
class ModelSource:
    """A model that was found, with all that a package takes of it.

    model: the adapter's bytes are counted in its weights. turns: texts of first turns with the
    system prompt, none where none is asked for.
    """

    model: Model
    texts: ModelTexts = field(default_factory=ModelTexts)
    adapter: Adapter | None = None
    turns: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelPlan:
    """A model of a package.

    memory: on those of the named devices that can hold the model, where it needs most.
    memory_of: on a phone and on a tablet, whatever was named. folder: where the model lies in
    the package.
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
        """What is known of the model."""
        return self.source.model

    @property
    def cache(self) -> H2OConfig:
        """What the layers have in common; `workload` has the cache of each."""
        if self.workload.common is None:
            raise TypeError("a package's caches have a bound")
        return self.workload.common

    @property
    def storage(self) -> Storage:
        """How rows are stored."""
        return self.workload.storage

    @property
    def budgets(self) -> Budgets | None:
        """The budgets that differ per layer."""
        return self.spec.cache.budgets

    @property
    def archive(self) -> str:
        """Where evicted tokens wait to be recalled: "memory" or "files", "" without recall."""
        return self.spec.cache.archive if self.cache.recall is not None else ""


@dataclass(frozen=True)
class PackagePlan:
    """All that the generated package depends on. models: the largest first, as in `spec`."""

    spec: PackageSpec
    models: tuple[ModelPlan, ...]

    @property
    def title(self) -> str:
        """The name as asked for, or that of the largest model."""
        return self.spec.app.name or naming.model_display_name(self.models[0].model.id)

    @property
    def package_name(self) -> str:
        """The name that SwiftPM, file systems and Xcode take."""
        return naming.package_name(self.title)

    @property
    def module_name(self) -> str:
        """The start of the name of the module with the models."""
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
        """Bytes of all models' files, their adapters and a system prompt's caches, at most."""
        return sum(
            model_bytes(model.model)
            + (model.source.adapter.bytes if model.source.adapter else 0)
            + (model.workload.plan("iphone").caches if self.spec.app.system else 0)
            for model in self.models
        )
