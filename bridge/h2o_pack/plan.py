"""Decides what goes into a package: the model, its cache's budgets, the names."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_pack import naming
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.memory import plan_memory

if TYPE_CHECKING:
    from h2o_pack.memory import MemoryPlan
    from h2o_pack.models.resolve import ResolvedModel
    from h2o_py.budgets import Budgets
    from h2o_py.config import H2OConfig

FLAGS = {
    "max_size": "--max-kv",
    "sink_size": "--sink-size",
    "heavy_budget": "--heavy-budget",
    "recent_budget": "--recent-budget",
    "observation_window": "--observation-window",
    "pinned": "--pin",
}


@dataclass(frozen=True)
class CacheOptions:
    """The cache as asked for; None leaves a value to the cache's own default.

    max_kv, budgets and observation_window are in tokens; pinned ranges are
    half-open positions.
    """

    max_kv: int
    sink_size: int | None = None
    heavy_budget: int | None = None
    recent_budget: int | None = None
    score: str | None = None
    decay: float | None = None
    novelty: float | None = None
    pinned: tuple[tuple[int, int], ...] = ()
    observation_window: int | None = None


@dataclass(frozen=True)
class Plan:
    """All that the generated package depends on."""

    model: ResolvedModel
    cache: H2OConfig
    memory: MemoryPlan
    package_name: str
    module_name: str
    warnings: tuple[str, ...]
    storage: str = "dense"
    group_size: int = 64
    budgets: Budgets | None = None


def make_plan(model: ResolvedModel, options: CacheOptions, name: str | None = None) -> Plan:
    """Check the options against the model and the cache; UserError names the flag."""
    cache, remarks = cache_config(options)
    context = model.config.context
    if options.max_kv > context:
        raise UserError(
            f"--max-kv {options.max_kv} is more than the {context} tokens that "
            f"{model.id} can attend to",
            where=str(model.path / "config.json"),
            remedy=f"Lower --max-kv to {context} or less.",
            code=ExitCode.USAGE,
        )
    package = naming.package_name(name or naming.model_display_name(model.id))
    return Plan(
        model=model,
        cache=cache,
        memory=plan_memory(model, cache),
        package_name=package,
        module_name=naming.module_name(package),
        warnings=remarks,
    )


def cache_config(options: CacheOptions) -> tuple[H2OConfig, tuple[str, ...]]:
    """Make the cache's configuration and collect what it warns about."""
    from h2o_py.config import H2OConfig

    given = {
        key: value
        for key, value in vars(options).items()
        if key not in ("max_kv", "pinned") and value is not None
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            config = H2OConfig(max_size=options.max_kv, pinned=options.pinned, **given)
        except ValueError as error:
            what, _, remedy = with_flags(str(error)).partition(". ")
            raise UserError(
                what.rstrip("."),
                remedy=remedy or "See `h2o-pack ios --help`.",
                code=ExitCode.USAGE,
            ) from error
    return config, tuple(with_flags(str(each.message)) for each in caught)


def with_flags(text: str) -> str:
    """Name the command line's flags where the cache names its parameters."""
    for parameter, flag in FLAGS.items():
        text = text.replace(parameter, flag)
    return text
