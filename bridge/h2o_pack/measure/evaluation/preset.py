"""Presets: which contenders read which samples, from TOML and changed by options."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

from h2o_pack.errors import usage_error
from h2o_pack.files.toml import parse_toml
from h2o_pack.measure.evaluation.contenders import find_contender
from h2o_pack.measure.evaluation.tasks import Way

PRESETS = ("chat", "text")
Task = Literal["read", "chat"]
Equal = Literal["rows", "bytes"]
Count = Annotated[int, Meta(ge=1)]
Some = Meta(min_length=1)


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """Contenders that are compared in one table.

    id: key in JSON. title: the table's heading. contenders: names
    (`measure.evaluation.contenders`); the full cache is added to every table. budgets: rows per
    KV head, as numbers or as shares of the length such as "1/4". equal: "rows" gives all
    contenders the same number of rows; "bytes" gives each as many rows as fit into the bytes of
    the default policy with 16-bit rows, including its ledger. baseline: the contender that the
    others are compared with. lengths: tokens of a sample, if not the experiment's.
    """

    id: str
    title: str
    contenders: tuple[str, ...]
    budgets: tuple[str, ...]
    baseline: str
    equal: Equal = "rows"
    lengths: tuple[Count, ...] = ()


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    """Samples of one kind, and the groups of contenders that read them.

    id: key in JSON. title: the heading of the section on the page. task: "read" lets the model
    read text token by token; "chat" lets it read conversations as prompts and asks in each of
    the `ways` (`measure.evaluation.chat_tasks`). lengths: tokens of a sample. samples: how many
    per seed. decoys: number of other facts of the same form in a conversation. groups: the
    tables.
    """

    id: str
    title: str
    task: Task
    lengths: Annotated[tuple[Count, ...], Some]
    samples: Count
    groups: tuple[Group, ...] = field(name="group")
    decoys: int = 0
    ways: tuple[Way, ...] = ()


class Quick(Struct, frozen=True, forbid_unknown_fields=True):
    """What `--quick` runs of a preset: one sample per seed, in the first group of `groups`."""

    seeds: tuple[int, ...]
    lengths: tuple[Count, ...]
    groups: tuple[str, ...]
    contenders: tuple[str, ...]
    ways: tuple[Way, ...] = ()


class Preset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The experiments of one run, and their settings.

    batch: texts that are read at once. float32: whether the model computes in float32; even
    then, bytes are counted for 16-bit rows.
    """

    name: str = ""
    title: str
    seeds: Annotated[tuple[int, ...], Some]
    experiments: Annotated[tuple[Experiment, ...], Some] = field(name="experiment")
    quick: Quick
    batch: Count = 8
    float32: bool = False

    def shortened(self) -> Preset:
        """Return what `--quick` runs."""
        quick = self.quick
        experiments = tuple(
            structs.replace(
                experiment,
                lengths=quick.lengths,
                samples=1,
                ways=quick.ways,
                groups=tuple(
                    structs.replace(group, contenders=quick.contenders, budgets=("1/8",))
                    for group in experiment.groups
                    if group.id in quick.groups
                ),
            )
            for experiment in self.experiments
        )
        return structs.replace(self, seeds=quick.seeds, experiments=experiments)

    def changed(self, *, seeds: tuple[int, ...] = (), batch: int = 0, **changes: Any) -> Preset:
        """Return the preset with a user's changes; an empty value or 0 changes nothing.

        changes: values of fields of every experiment and group; with `lengths`, groups that
        have lengths of their own are left out. Raises UserError: a contender is unknown, or a
        budget is neither a number of rows nor a share.
        """
        names = changes.get("contenders", ())
        changes["contenders"] = tuple(find_contender(name).name for name in names)
        for budget in changes.get("budgets", ()):
            rows_of(budget, 1)
        experiments = tuple(
            _changed(experiment, dict(changes)) for experiment in self.experiments
        )
        return structs.replace(
            self, experiments=experiments, **_present(seeds=seeds, batch=batch)
        )


def _present(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if value}


def _changed(experiment: Experiment, changes: dict[str, Any]) -> Experiment:
    of_group = {name: changes.pop(name, ()) for name in ("budgets", "contenders")}
    names = of_group["contenders"]
    groups = []
    for group in experiment.groups:
        if changes.get("lengths") and group.lengths:
            continue
        has_baseline = not names or group.baseline in names
        baseline = group.baseline if has_baseline else names[0]
        groups.append(structs.replace(group, baseline=baseline, **_present(**of_group)))
    return structs.replace(experiment, groups=tuple(groups), **_present(**changes))


def rows_of(budget: str, length: int) -> int:
    """Return a budget's rows per KV head at a length in tokens.

    Raises UserError: the budget is neither a number of rows nor a share of the length.
    """
    try:
        share = Fraction(budget)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if share <= 0:
        raise usage_error(
            f'the budget "{budget}" is neither a number of rows nor a share of the length',
            "Give a number such as 256, or a share such as 1/4.",
        )
    return round(share * length) if "/" in budget else int(share)


@cache
def load_preset(name: str) -> Preset:
    """Load one of `PRESETS`."""
    file = resources.files(__package__) / "presets" / f"{name}.toml"
    preset = parse_toml(file.read_text("utf-8"), Preset, f"{name}.toml")
    return structs.replace(preset, name=name)
