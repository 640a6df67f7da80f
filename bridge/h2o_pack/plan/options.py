"""The cache as a user asks for it, and what it becomes for each layer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from h2o_pack.config_errors import OF_RECALL, config_warnings, flag, user_errors
from h2o_pack.errors import ExitCode, UserError
from h2o_py.budgets import Budgets, load_budgets
from h2o_py.config import POLICIES, H2OConfig
from h2o_py.errors import H2OConfigWarning
from h2o_py.recall import H2ORecall

if TYPE_CHECKING:
    from h2o_pack.architectures.model import ModelConfig

Archive = Literal["memory", "files"]
OF_BUDGETS = ("heavy_budget", "recent_budget")
"""Settings of the policy that a file of budgets has for each layer."""
PREFILL_STEP = 512  # mlx-swift-lm's prefillStepSize


@dataclass(frozen=True)
class CacheOptions:
    """The cache as asked for.

    max_kv, context and prefill_step are in tokens. policy: a name of `NAMED_POLICIES`.
    settings: those that differ from the policy's defaults, by their names in H2OConfig. kv:
    how rows are stored. budgets: file of budgets that differ per layer. context: the longest
    conversation that memory is planned for. prefill_step: tokens of a prompt that the model
    reads at once. devices: names of those that must hold the model, device_file: a user's file
    of devices. recall: whether evicted rows come back from an archive; recall_rows,
    recall_every, archive_bits, archive and archive_limit, the bytes of a layer's archive, are
    its settings.
    """

    max_kv: int
    policy: str = "standard"
    settings: Mapping[str, Any] = field(default_factory=dict)
    kv: str = "dense"
    budgets: Path | None = None
    context: int | None = None
    prefill_step: int = PREFILL_STEP
    devices: tuple[str, ...] = ()
    device_file: Path | None = None
    recall: bool = False
    recall_rows: int | None = None
    recall_every: int | None = None
    archive_bits: int | None = None
    archive_limit: int | None = None
    archive: Archive = "memory"

    @property
    def archive_in_files(self) -> bool:
        """Whether what is evicted waits in files, and not in memory."""
        return self.recall and self.archive == "files"


def cache_config(options: CacheOptions) -> tuple[H2OConfig, tuple[H2OConfigWarning, ...]]:
    """Make the cache's configuration and collect what it warns about."""
    with warnings.catch_warnings(record=True) as caught, user_errors():
        warnings.simplefilter("always")
        settings = {**options.settings, "recall": recall_settings(options)}
        config = POLICIES[options.policy](options.max_kv, **settings)
    return config, config_warnings(caught)


def recall_settings(options: CacheOptions) -> H2ORecall | None:
    """Return the settings of recall, None without it.

    Raises:
        UserError: there are some without recall.

    """
    given: dict[str, Any] = {
        name: value for name in OF_RECALL if (value := getattr(options, name)) is not None
    }
    if not options.recall:
        if options.archive != "memory":
            given["archive"] = options.archive
        if given:
            flags = " and ".join(map(flag, given))
            raise UserError(
                f"{flags} {'is' if len(given) == 1 else 'are'} for recall",
                remedy="Give --recall too.",
                code=ExitCode.USAGE,
            )
        return None
    return H2ORecall(**{OF_RECALL[name].name: value for name, value in given.items()})


def read_budgets(options: CacheOptions) -> Budgets | None:
    """Read the file of budgets, if one was given.

    Raises:
        UserError: it cannot be read or used, or a setting says the same as it does.

    """
    if options.budgets is None:
        return None
    stated = [flag(name) for name in OF_BUDGETS if name in options.settings]
    if stated:
        raise UserError(
            f"{' and '.join(stated)}: the file of --budgets says this for each layer",
            where=str(options.budgets),
            remedy=f"Leave out {' and '.join(stated)}, or --budgets.",
            code=ExitCode.USAGE,
        )
    try:
        with user_errors():
            return load_budgets(options.budgets)
    except OSError as error:
        raise UserError(
            f"the budgets cannot be read: {error.strerror}",
            where=str(options.budgets),
            remedy="Give the file that `h2o-pack budgets` wrote.",
            code=ExitCode.USAGE,
        ) from error


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
        each.max_size
        for each in budgets.layers
        if each is not None and each.max_size is not None
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
