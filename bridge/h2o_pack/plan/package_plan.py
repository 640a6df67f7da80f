"""Decides what goes into a package: the model, its caches, its memory, the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from h2o_pack import naming
from h2o_pack.architectures.model import Model
from h2o_pack.bundling.app_size import check_app_size, model_bytes
from h2o_pack.config_errors import warnings_as_text
from h2o_pack.devices.catalogue import catalogue
from h2o_pack.devices.device import Catalogue, Device
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.files.layout import MODEL_FOLDER
from h2o_pack.memory import MemoryPlan
from h2o_pack.memory.estimate import archive_bits
from h2o_pack.memory.storages import storage_of
from h2o_pack.models.adapter import Adapter
from h2o_pack.models.chat_template import ChatTemplate
from h2o_pack.models.license_terms import ModelLicense
from h2o_pack.plan.advice import advice
from h2o_pack.plan.options import CacheOptions, cache_config, layer_caches, read_budgets
from h2o_pack.plan.request import Request
from h2o_py.budgets import Budgets
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigWarning

BACKENDS = {"phone": "iphone", "tablet": "ipad"}
"""Where a package may run, by the names of Swift's arguments."""

__all__ = ["CacheOptions", "Plan", "cache_config", "make_plan", "make_request"]


@dataclass(frozen=True)
class Plan:
    """All that the generated package depends on.

    cache: what the layers have in common. caches: one per layer, None where the layer keeps
    the model's own. memory: on the requested device where the model needs most. memory_of: on
    a phone and on a tablet, whatever was requested.
    asset_pack: whether the model comes to the device apart from the app. download: the address
    of the folder from which the app fetches it, "" where it is not so. upstream_version:
    "" is the default. archive_in_files: whether recall's archives are files.
    chat_template: the model's, None where it has none that can be used. system: the system
    prompt whose caches are computed, "" for none. adapter: is counted in the model's weights.
    options: with which all of it was asked for, as the lock keeps them. license: the model's.
    bundle_id and display_name: the app's identifier, and the name below its icon. folder:
    where the model lies in the package. others: the package's further models, from the second
    largest on, of which only what is a model's own counts. asked: what was said to be the
    model.
    """

    model: Model
    cache: H2OConfig
    memory: MemoryPlan
    memory_of: Mapping[str, MemoryPlan]
    package_name: str
    module_name: str
    warnings: tuple[str, ...]
    storage: str = "dense"
    group_size: int = 64
    budgets: Budgets | None = None
    caches: tuple[H2OConfig | None, ...] = ()
    asset_pack: bool = False
    download: str = ""
    upstream_version: str = ""
    archive_in_files: bool = False
    chat_template: ChatTemplate | None = None
    system: str = ""
    adapter: Adapter | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    license: ModelLicense = field(default_factory=ModelLicense)
    bundle_id: str = ""
    display_name: str = ""
    folder: str = MODEL_FOLDER
    others: tuple[Plan, ...] = ()
    asked: str = ""

    @property
    def each_model(self) -> tuple[Plan, ...]:
        """The plans of all models, the largest first."""
        return (self, *self.others)

    @property
    def apart(self) -> bool:
        """Whether the models reach the device apart from the app."""
        return self.asset_pack or bool(self.download)

    @property
    def size(self) -> int:
        """Bytes of this model's files, its adapter and the system prompt's caches, at most."""
        adapter = self.adapter.bytes if self.adapter else 0
        prompt = self.memory.caches if self.system else 0
        return model_bytes(self.model) + adapter + prompt

    @property
    def archive(self) -> str:
        """Where evicted tokens wait to be recalled: "memory" or "files", "" without recall."""
        if self.cache.recall is None:
            return ""
        return "files" if self.archive_in_files else "memory"


@dataclass(frozen=True)
class ReadOptions:
    """The options without a model: the cache, its warnings, the budgets and the devices."""

    cache: H2OConfig
    warnings: tuple[H2OConfigWarning, ...]
    budgets: Budgets | None
    devices: tuple[Device, ...]


def read_options(options: CacheOptions) -> ReadOptions:
    """Make the cache's configuration, and read the budgets and find the devices named.

    Raises:
        UserError: all that is wrong with them, together.

    """
    problems = Problems()
    with problems.caught():
        cache, found = cache_config(options)
    with problems.caught():
        budgets = read_budgets(options)
    with problems.caught():
        known = catalogue(options.device_file)
        devices = named_devices(options.devices, known) if options.devices else ()
    problems.refuse()
    return ReadOptions(cache, found, budgets, devices)


def make_plan(
    model: Model,
    options: CacheOptions,
    name: str | None = None,
    *,
    asset_pack: bool = False,
    download: str = "",
    given: ReadOptions | None = None,
) -> Plan:
    """Check the options against the model, the cache and the devices.

    given: the options, if they were read already.

    Raises:
        UserError: names the flag, the file or the device; all that is wrong together.

    """
    given = given or read_options(options)
    cache, budgets, devices = given.cache, given.budgets, given.devices
    request = make_request(model, options, cache, budgets)
    problems = Problems()
    with problems.caught():
        check_app_size(
            (model.id,), model_bytes(model), asset_pack=asset_pack, download=bool(download)
        )
    with problems.caught():
        require_fit(request, devices)
    problems.refuse()
    backends = {device.backend for device in devices} or {"iphone"}
    memory = max((request.plan(each) for each in sorted(backends)), key=lambda plan: plan.total)
    wanted = name or naming.model_display_name(model.id)
    package = naming.package_name(wanted)
    found = [each for each in given.warnings if each.code != "short_recent_window"]
    storage = storage_of(options.kv, model.config, archive_bits=archive_bits((cache,)))
    return Plan(
        model=model,
        cache=cache,
        memory=memory,
        memory_of={name: request.plan(backend) for name, backend in BACKENDS.items()},
        package_name=package,
        module_name=naming.module_name(package),
        warnings=(
            *model.remarks,
            *warnings_as_text(found),
            *advice(request),
            *naming.name_remarks(wanted),
        ),
        storage=storage.name,
        group_size=storage.group_size,
        budgets=budgets,
        caches=request.caches,
        asset_pack=asset_pack,
        download=download,
        archive_in_files=request.archive_in_files,
        bundle_id=naming.bundle_id(package),
        display_name=naming.display_name(wanted, package),
    )


def make_request(
    model: Model, options: CacheOptions, cache: H2OConfig, budgets: Budgets | None
) -> Request:
    """Check the options against the model; return what memory is planned for."""
    context = model.config.context
    problems = Problems()
    with problems.caught():
        require_tokens(options.max_kv, context, "--max-kv", model)
    with problems.caught():
        if options.context is not None:
            require_tokens(options.context, context, "--context", model)
    with problems.caught():
        require_tokens(min(options.prefill_step, context), context, "--prefill-step", model)
    with problems.caught():
        storage_of(options.kv, model.config, archive_bits=archive_bits((cache,)))
    with problems.caught():
        caches = layer_caches(model.config, cache, budgets)
    problems.refuse()
    return Request(
        model=model,
        caches=caches,
        kv=options.kv,
        context=options.context,
        step=options.prefill_step,
        archive_in_files=options.archive_in_files,
    )


def require_tokens(value: int, most: int, flag: str, model: Model) -> None:
    """Refuse a number of tokens below 1 or above what the model can attend to."""
    if 1 <= value <= most:
        return
    raise UserError(
        f"{flag} must be between 1 and {most}, got {value}",
        where=f"{model.folder or model.id}/config.json",
        remedy=f"{model.id} can attend to {most} tokens."
        if value > most
        else "Give a number of tokens.",
        code=ExitCode.USAGE,
    )


def named_devices(names: tuple[str, ...], known: Catalogue) -> tuple[Device, ...]:
    """Find the devices that were asked for."""
    problems = Problems()
    found: list[Device] = []
    for name in names:
        with problems.caught():
            found += known.find(name)
    problems.refuse()
    return tuple(dict.fromkeys(found))


def require_fit(request: Request, devices: tuple[Device, ...]) -> None:
    """Refuse a plan that does not fit on one of the devices; the error names all of them."""
    if not devices:
        return
    from h2o_pack.models.catalogue import catalogue as known_models
    from h2o_pack.plan.remedies import require

    models, problems = known_models(), Problems()
    for device in devices:
        with problems.caught():
            require(request, models, device)
    problems.refuse()
