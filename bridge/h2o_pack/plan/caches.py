"""What the spec of a cache becomes: one configuration, and the cache of each layer."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack.config_errors import OF_RECALL, config_warnings, flag, user_errors
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.spec import CacheSpec
from h2o_py.budgets import Budgets, load_budgets
from h2o_py.config import POLICIES, H2OConfig
from h2o_py.errors import H2OConfigWarning
from h2o_py.recall import H2ORecall

if TYPE_CHECKING:
    from h2o_pack.architectures.model import ModelConfig

OF_BUDGETS = ("heavy_budget", "recent_budget")
"""Settings of the policy that a file of budgets has for each layer."""


def cache_config(spec: CacheSpec) -> tuple[H2OConfig, tuple[H2OConfigWarning, ...]]:
    """Make the cache's configuration and collect what it warns about.

    Raises:
        UserError: the settings do not fit together, or say what the budgets say.

    """
    refuse_stated_twice(spec)
    with warnings.catch_warnings(record=True) as caught, user_errors():
        warnings.simplefilter("always")
        settings = {**spec.settings, "recall": recall_config(spec)}
        config = POLICIES[spec.policy](spec.max_kv or 0, **settings)
    return config, config_warnings(caught)


def recall_config(spec: CacheSpec) -> H2ORecall | None:
    """Return the settings of recall, None without it.

    Raises:
        UserError: there are some without recall.

    """
    settings = spec.recall_settings
    if spec.recall:
        return H2ORecall(**{OF_RECALL[name].name: value for name, value in settings.items()})
    if spec.archive != "memory":
        settings["archive"] = spec.archive
    if settings:
        flags = " and ".join(map(flag, settings))
        raise UserError(
            f"{flags} {'is' if len(settings) == 1 else 'are'} for recall",
            remedy="Give --recall too.",
            code=ExitCode.USAGE,
        )
    return None


def read_budgets(path: Path | None) -> Budgets | None:
    """Read the file of budgets, if one was given.

    Raises:
        UserError: it cannot be read or used.

    """
    if path is None:
        return None
    try:
        with user_errors():
            return load_budgets(path)
    except OSError as error:
        raise UserError(
            f"the budgets cannot be read: {error.strerror}",
            where=str(path),
            remedy="Give the file that `h2o-pack budgets` wrote.",
            code=ExitCode.USAGE,
        ) from error


def refuse_stated_twice(spec: CacheSpec) -> None:
    """Refuse settings that the budgets state for each layer."""
    stated = [flag(name) for name in OF_BUDGETS if name in spec.settings]
    if spec.budgets is not None and stated:
        raise UserError(
            f"{' and '.join(stated)}: the file of --budgets says this for each layer",
            where=spec.budgets.source,
            remedy=f"Leave out {' and '.join(stated)}, or --budgets.",
            code=ExitCode.USAGE,
        )


def layer_caches(
    config: ModelConfig, common: H2OConfig, budgets: Budgets | None
) -> tuple[H2OConfig | None, ...]:
    """The cache of each layer, None where the layer keeps the model's own.

    Raises:
        UserError: the budgets are another model's, or do not fit into max_kv.

    """
    evicting = [layer.kind == "full" for layer in config.layers]
    with user_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `cache_config` and the plan's advice report them
        if budgets is not None:
            budgets.check_layers(evicting, config.model_type)
            refuse_other_rows(budgets, evicting, common.max_size)
        return tuple(
            (common.of_layer(index) if budgets is None else budgets.config_of(index, common))
            if evicts
            else None
            for index, evicts in enumerate(evicting)
        )


def refuse_other_rows(budgets: Budgets, evicting: list[bool], max_kv: int) -> None:
    """Refuse rows that a file of budgets overrules: where it has those of every layer.

    Raises:
        UserError: the rows are not the average of the file's.

    """
    sizes = [
        layer.max_size
        for layer in budgets.layers
        if layer is not None and layer.max_size is not None
    ]
    if len(sizes) < sum(evicting):
        return
    average = round(sum(sizes) / len(sizes))
    if abs(average - max_kv) > 1:
        raise UserError(
            f"--max-kv {max_kv}: the file of --budgets keeps {average} rows on average",
            where=budgets.source,
            remedy=f"Give --max-kv {average}, or make budgets for {max_kv} with "
            "`h2o-pack budgets`.",
            code=ExitCode.USAGE,
        )
