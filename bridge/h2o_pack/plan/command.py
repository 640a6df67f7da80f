"""What `plan` does: choose devices, plan, write a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from h2o_pack.architectures.model import Model
from h2o_pack.config_errors import flag
from h2o_pack.devices.catalogue import catalogue
from h2o_pack.devices.device import Catalogue, Device
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.files.text import writing
from h2o_pack.models.catalogue import catalogue as model_catalogue
from h2o_pack.plan.measured import MeasuredMemory, beside
from h2o_pack.plan.options import CacheOptions, cache_config, read_budgets
from h2o_pack.plan.package_plan import make_request, named_devices
from h2o_pack.plan.page import page
from h2o_pack.plan.report import PlanResult, make_report, one_of_each_kind
from h2o_pack.plan.several import (
    ALL_ALIKE,
    WITH_REVISION,
    PlansResult,
    plans_result,
    refuse_options,
    refuse_twice,
)

OF_EVICTION = ("kv", "policy", "budgets", "recall")


def find_devices(
    names: tuple[str, ...], own: Path | None, *, every: bool
) -> tuple[Catalogue, tuple[Device, ...]]:
    """Find the devices that were asked for: named ones, all, or one of each kind."""
    known = catalogue(own)
    if not names:
        return known, known.all_devices() if every else one_of_each_kind(known.all_devices())
    return known, named_devices(names, known)


def report(
    model: Model,
    options: CacheOptions,
    known: Catalogue,
    devices: tuple[Device, ...],
    *,
    bounded: bool,
) -> PlanResult:
    """Plan a model; not bounded with its own caches, which grow with the text."""
    if not bounded:
        refuse_cache_options(options)
        options = replace(options, max_kv=model.config.context)
    config, _ = cache_config(options)
    request = make_request(model, options, config, read_budgets(options))
    if not bounded:
        request = request.with_max_kv(0)
    return make_report(request, devices, known, model_catalogue())


def refuse_of_one(models: Sequence[str], *, revision: str, measured: Path | None) -> None:
    """Refuse options that are for one model where several are asked for."""
    if len(models) > 1:
        ways: dict[str, tuple[object, str]] = {
            "--revision": (revision, WITH_REVISION),
            "--measured": (measured, "Give the one model that the device reported."),
        }
        refuse_options(len(models), ways)


def report_several(
    models: Sequence[Model],
    options: CacheOptions,
    known: Catalogue,
    devices: tuple[Device, ...],
    *,
    bounded: bool,
) -> PlansResult:
    """Plan several models of one package with the same options.

    Raises:
        UserError: a model is there twice, or what is wrong with any of them, together.

    """
    refuse_twice(models)
    refuse_options(len(models), {"--budgets": (options.budgets, ALL_ALIKE)})
    reports, problems = [], Problems()
    for model in models:
        with problems.caught():
            reports.append(report(model, options, known, devices, bounded=bounded))
    problems.refuse()
    return plans_result(reports)


def with_measured(report: PlanResult, measured: MeasuredMemory, known: Catalogue) -> PlanResult:
    """Put a device's report beside the plan for its backend."""
    (device, *_) = known.find(measured.device)
    plan = next(each for each in report.plans if each.backend == device.backend)
    return replace(report, measured=beside(measured, plan))


def refuse_cache_options(options: CacheOptions) -> None:
    """Refuse what needs a cache that evicts."""
    usual = CacheOptions(max_kv=options.max_kv)
    given = [
        f"--{name}" for name in OF_EVICTION if getattr(options, name) != getattr(usual, name)
    ]
    given += [flag(name) for name in options.settings]
    if given:
        flags = " and ".join(given)
        raise UserError(
            f"{flags} {'is' if len(given) == 1 else 'are'} for caches that evict",
            remedy="Give --max-kv too.",
            code=ExitCode.USAGE,
        )


def write_page(made: PlanResult | PlansResult, path: Path) -> None:
    """Write a plan as an HTML page."""
    with writing(path, "the page", "Give --html a file in a folder that you may write to."):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(made), "utf-8")
