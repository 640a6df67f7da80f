"""Workloads, whose memory is planned: a model, each layer's cache, the longest conversation."""

from __future__ import annotations

import dataclasses
import warnings
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from h2o_pack.config_errors import OF_RECALL, flag, user_errors
from h2o_pack.errors import Problems, usage_error
from h2o_pack.facts import KnownModel, best_first
from h2o_pack.memory import terms
from h2o_pack.memory.estimate import fits, lasting_bytes, plan_memory
from h2o_pack.memory.planned_run import PlannedRun, backends
from h2o_pack.memory.storages import (
    DENSE_BITS,
    Storage,
    archive_bits,
    find_storage,
    fits_archive,
    storage_of,
)
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.model import Model, ModelConfig
from h2o_pack.models.catalogue import as_model, catalogue
from h2o_pack.spec import CacheSpec
from h2o_py.budgets import Budgets, parse_budgets
from h2o_py.config import POLICIES, H2OConfig, H2ORecall, without_warnings
from h2o_py.errors import H2OConfigWarning
from h2o_py.files import read_file

OF_BUDGETS = ("heavy_budget", "recent_budget")
"""Settings of the policy that a file of budgets sets for each layer."""


def cache_config(spec: CacheSpec) -> tuple[H2OConfig, tuple[H2OConfigWarning, ...]]:
    """Make the cache's configuration, and collect its warnings.

    Without a number of rows it keeps every token. Raises UserError: the settings are not valid
    together.
    """
    refuse_stated_twice(spec)
    if spec.max_kv is None:
        refuse_without_eviction(spec)
        return H2OConfig.unbounded(), ()
    with warnings.catch_warnings(record=True) as records, user_errors():
        warnings.simplefilter("always")
        settings = {**spec.settings, "recall": recall_config(spec)}
        config = POLICIES[spec.policy](spec.max_kv, **settings)
    messages = (record.message for record in records)
    return config, tuple(m for m in messages if isinstance(m, H2OConfigWarning))


def of_eviction(spec: CacheSpec) -> list[str]:
    """Return the flags of the given options that only caches with a bound have."""
    recent = find_storage(spec.storage).recent
    options = {
        f"--kv {spec.kv}": recent is not None,
        "--policy": spec.policy != CacheSpec.policy,
        "--budgets": spec.budgets is not None,
        "--recall": spec.recall,
        "--archive": spec.archive is not None,
    }
    flags = [name for name, value in options.items() if value]
    return flags + [flag(name) for name in (*spec.recall_settings, *spec.settings)]


def refuse_without_eviction(spec: CacheSpec) -> None:
    """Raise UserError for options that only caches with a bound have."""
    if flags := of_eviction(spec):
        raise usage_error(
            f"{' and '.join(flags)} {'is' if len(flags) == 1 else 'are'} only for caches "
            "that evict",
            "Give --max-kv too.",
        )


def recall_config(spec: CacheSpec) -> H2ORecall | None:
    """Return the settings of recall; None without recall.

    Raises UserError: settings of recall are given with --no-recall, or are not valid.
    """
    settings = spec.recall_settings
    if spec.recall:
        return H2ORecall(**{OF_RECALL[name].name: value for name, value in settings.items()})
    if spec.archive is not None:
        settings["archive"] = spec.archive
    if settings:
        flags = " and ".join(map(flag, settings))
        raise usage_error(
            f"{flags} {'has' if len(settings) == 1 else 'have'} no effect without recall",
            "Leave out --no-recall.",
        )
    return None


def read_budgets(path: Path | None) -> Budgets | None:
    """Read the file of budgets, if one was given; UserError if it cannot be used."""
    if path is None:
        return None
    try:
        with user_errors():
            return parse_budgets(read_file(path), str(path))
    except OSError as error:
        raise usage_error(
            f"cannot read the budgets: {error.strerror}",
            "Give the file that `h2o-pack profile --budgets` wrote.",
            where=str(path),
        ) from error


def refuse_stated_twice(spec: CacheSpec) -> None:
    """Raise UserError for options that a file of budgets sets for each layer."""
    flags = [flag(name) for name in OF_BUDGETS if name in spec.settings]
    if spec.budgets is not None and flags:
        raise usage_error(
            f"{' and '.join(flags)} cannot be given with --budgets, because its file has a "
            "value for each layer",
            f"Leave out {' and '.join(flags)}, or leave out --budgets.",
            where=spec.budgets.source,
        )


def layer_caches(
    config: ModelConfig, common: H2OConfig, budgets: Budgets | None, storage: Storage
) -> tuple[H2OConfig | None, ...]:
    """Return the H2O cache of each layer, None for layers that keep mlx_lm's cache.

    Without a bound, mlx_lm's cache keeps every token in 16 bits. Raises UserError: the budgets
    do not match the model.
    """
    if not common.evicts and storage.is_dense:
        return (None,) * len(config.layers)
    evicting = [layer.kind == "full" for layer in config.layers]
    with user_errors(), without_warnings():
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
    """Raise UserError if --max-kv is not the average of the rows in a file of budgets.

    This applies only to a file that sets the rows of every layer.
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
        raise usage_error(
            f"--max-kv {max_kv} contradicts the file of --budgets, which keeps {average} "
            "rows on average",
            f"Give --max-kv {average}, or make budgets for {max_kv} rows with "
            "`h2o-pack profile --budgets`.",
            where=budgets.source,
        )


ROWS = 64  # the largest max_kv is rounded down to a multiple of this
TOKENS = 256  # the largest context is rounded down to a multiple of this: caches grow by it


@dataclass(frozen=True)
class Workload(PlannedRun):
    """A run, with its plan and the settings that its caches have in common.

    common, warnings: the configuration that all caches share and its warnings.
    """

    common: H2OConfig = field(default_factory=H2OConfig.unbounded, compare=False)
    warnings: tuple[H2OConfigWarning, ...] = field(default=(), compare=False)

    @property
    def recall(self) -> H2ORecall | None:
        """The settings of recall in the first layer that recalls; None if no layer recalls."""
        return next((cache.recall for cache in self.caches if cache and cache.recall), None)

    @property
    def max_kv(self) -> int:
        """Rows of a layer that evicts, on average; 0 if none does."""
        sizes = [cache.max_size for cache in self.caches if cache and cache.evicts]
        return round(sum(sizes) / len(sizes)) if sizes else 0

    def plan(self, backend: str) -> MemoryPlan:
        """Return the memory plan on a backend, by its name in facts/backends.toml."""
        return plan_memory(self, backends()[backend])

    def fits(self, limit: int, backend: str) -> bool:
        """Return whether the planned memory on a backend is at most `limit` bytes."""
        return fits(self, backends()[backend], limit)

    def with_max_kv(self, rows: int) -> Workload:
        """Return the workload with `rows` rows per layer and default budgets.

        0 makes caches that keep every token, in 16 bits if the storage needs a bound.
        """
        common = default_config(rows, self.recall)
        needs_bound = not rows and self.storage.recent is not None
        changed = dataclasses.replace(self, kv="16" if needs_bound else self.kv, common=common)
        caches = layer_caches(self.config, common, None, changed.storage)
        return dataclasses.replace(changed, caches=caches)

    def with_kv(self, kv: str) -> Workload:
        """Return the workload with the same rows in another storage."""
        changed = dataclasses.replace(self, kv=kv)
        return changed if self.max_kv else changed.with_max_kv(0)

    def with_context(self, tokens: int) -> Workload:
        """Return the workload for conversations of `tokens` tokens."""
        return dataclasses.replace(self, context=tokens)

    def without_recall(self) -> Workload:
        """Return the workload without recall."""
        with without_warnings():
            caches = tuple(
                cache and dataclasses.replace(cache, recall=None) for cache in self.caches
            )
        return dataclasses.replace(self, caches=caches, archive_in_files=False)

    def largest_max_kv(self, limit: int, backend: str) -> int:
        """Return the most rows per layer that fit into the limit, a multiple of 64, or 0.

        This assumes conversations with more tokens than rows, so that the caches are full. An
        archive is as large as after the longest conversation of this workload.
        """
        most = self.config.context
        longest = self.with_context(2 * most)
        more = lasting_bytes(longest, terms.ARCHIVE) - lasting_bytes(self, terms.ARCHIVE)

        def holds(rows: int) -> bool:
            bounded = self.with_max_kv(rows)
            endless = bounded.with_context(2 * most)
            return endless.fits(limit + more, backend) and bounded.fits(limit, backend)

        return largest(most, holds, ROWS)

    def largest_context(self, limit: int, backend: str) -> int:
        """Return the most tokens that fit with caches that keep every token; 0 if none do."""
        unbounded = self.with_max_kv(0)
        return largest(
            self.config.context,
            lambda tokens: unbounded.with_context(tokens).fits(limit, backend),
            TOKENS,
        )

    def of_model(self, model: Model) -> Workload:
        """Return a workload with the same settings for another model."""
        return dataclasses.replace(self, model=model, caches=()).with_max_kv(self.max_kv)


@lru_cache(maxsize=1024)
def default_config(rows: int, recall: H2ORecall | None = None) -> H2OConfig:
    """Return the configuration of caches with default budgets; 0 rows: of all tokens."""
    if not rows:
        return H2OConfig.unbounded()
    with without_warnings():
        return H2OConfig(max_size=rows, recall=recall)


def known_fitting(workload: Workload, limit: int, backend: str) -> KnownModel | None:
    """Return the best model of the catalogue that fits with the same settings, or None."""
    fitting = (entry for entry, own in of_known_models(workload) if own.fits(limit, backend))
    return next(fitting, None)


@lru_cache(maxsize=8)
def of_known_models(workload: Workload) -> tuple[tuple[KnownModel, Workload], ...]:
    """Return workloads with the same settings for the catalogue's models, the best first."""
    models = [(entry, as_model(entry)) for entry in best_first(catalogue())]
    return tuple((entry, workload.of_model(model)) for entry, model in models if model)


def workload_of(model: Model, spec: CacheSpec, *, drops_thoughts: bool = False) -> Workload:
    """Return the workload whose memory is planned.

    drops_thoughts: whether the model's chat template leaves thoughts out of later turns. Raises
    UserError: all settings that are invalid for this model, together.
    """
    spec = spec.filled()
    if spec.recall and spec.archive_bits is None and not fits_archive(model.config):
        spec = dataclasses.replace(spec, archive_bits=DENSE_BITS)
    config, remarks = cache_config(spec)
    context = model.config.context
    problems = Problems()
    with problems.caught():
        if spec.max_kv is not None:
            require_tokens(spec.max_kv, context, "--max-kv", model)
    with problems.caught():
        if spec.context is not None:
            require_tokens(spec.context, context, "--context", model)
    with problems.caught():
        require_tokens(min(spec.prefill_step, context), context, "--prefill-step", model)
    with problems.caught():
        storage = storage_of(spec.storage, model.config, archive_bits((config,)))
        caches = layer_caches(model.config, config, spec.budgets, storage)
    problems.refuse()
    return Workload(
        model=model,
        caches=caches,
        kv=storage.name,
        context=spec.context,
        step=spec.prefill_step,
        archive_in_files=spec.archive_in_files,
        drops_thoughts=drops_thoughts,
        common=config,
        warnings=remarks,
    )


def require_tokens(value: int, most: int, flag: str, model: Model) -> None:
    """Raise UserError for a number of tokens below 1 or above `most`, the model's context."""
    if 1 <= value <= most:
        return
    raise usage_error(
        f"{flag} must be between 1 and {most}, got {value}",
        f"The model {model.id} can attend to {most} tokens."
        if value > most
        else "Give a number of tokens.",
        where=f"{model.folder or model.id}/config.json",
    )


def largest(most: int, fits: Callable[[int], bool], step: int) -> int:
    """Return the largest multiple of `step` up to `most` that fits; 0 if none does.

    fits: whether a value fits; every smaller one than a value that fits must fit too.
    """
    values = range(step, most + 1, step)
    return step * bisect_left(values, 1, key=lambda value: not fits(value))
