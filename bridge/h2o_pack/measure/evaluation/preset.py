"""Presets: experiments on samples, read from TOML and changed by command-line options."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

from h2o_pack.errors import ExitCode, UserError, nearest, usage_error
from h2o_pack.files.text import read_text
from h2o_pack.files.toml import Blame, parse_toml
from h2o_pack.measure.evaluation.contenders import UNBOUNDED, find_contender
from h2o_pack.measure.evaluation.tasks import Shape, Way
from h2o_pack.measure.text import Part

Ask = Literal["nothing", "one", "all", "turns"]
Task = Literal["read", "prompts", "chat", "speed"]
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
    others are compared with.
    """

    id: str
    title: str
    contenders: tuple[str, ...]
    budgets: tuple[str, ...]
    equal: Equal = "rows"
    baseline: str = "sinks_recent"


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    """Samples of one kind, and the groups of contenders that read them.

    id: key in JSON. title: the heading of the section on the page. task: "read" lets the model
    read text token by token and then asks; "prompts" reads text as prompts and asks in each of
    the `ways`; "chat" does the same with conversations (`measure.evaluation.chat_tasks`);
    "speed" measures the time to generate. lengths: tokens of a sample, or of the prompt for
    "speed". samples: how many per seed, or how many runs for "speed". ask: "nothing" asks no
    question; "one" puts one fact into a sample, at the next of the `depths`; "all" puts one at
    each depth and asks for each on a copy of the cache; "turns" asks for them one after
    another. depths: places of the facts, from 0, the beginning of the text, to 1, its end.
    decoys: number of other facts of the same form, spread over the text, for "one" and for
    conversations. digits: how many digits each fact's number has. ways: how to ask, for
    "prompts" and "chat". seeds: the samples' seeds; empty to use the preset's. generate: how
    many tokens to generate for "speed". groups: the tables.
    """

    id: str
    title: str
    lengths: Annotated[tuple[Count, ...], Some]
    samples: Count
    groups: tuple[Group, ...] = field(name="group")
    task: Task = "read"
    ask: Ask = "nothing"
    depths: tuple[float, ...] = ()
    decoys: int = 0
    digits: Count = 4
    ways: tuple[Way, ...] = ()
    seeds: tuple[int, ...] = ()
    generate: int = 200

    def shape(self, length: int, number: int) -> Shape:
        """Return how to build a sample; number: its place among the samples of a seed."""
        if self.ask == "nothing":
            return Shape(length)
        if self.ask == "one":
            spread = tuple((i + 0.5) / self.decoys for i in range(self.decoys))
            depths = (self.depths[number % len(self.depths)], *spread)
            facts = tuple(range(len(depths))) if self.task == "prompts" else (0,)
            return Shape(length, depths, facts, self.digits)
        facts = tuple((number + i) % len(self.depths) for i in range(len(self.depths)))
        return Shape(length, self.depths, facts, self.digits)


class Preset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The experiments of one run, and their settings.

    models: names that mlx_lm loads, or "demo"; each model has its own report. text: which
    held-out text is read, source code or prose. batch: samples that are read at once. float32:
    whether the model computes in float32; even then, bytes are counted for 16-bit rows.
    """

    format: Literal[1]
    name: str = ""
    title: str
    models: Annotated[tuple[str, ...], Some]
    seeds: Annotated[tuple[int, ...], Some]
    experiments: Annotated[tuple[Experiment, ...], Some] = field(name="experiment")
    text: Part = "source"
    batch: Count = 8
    float32: bool = False

    def changed(
        self,
        *,
        experiments: Sequence[str] = (),
        models: tuple[str, ...] = (),
        seeds: tuple[int, ...] = (),
        batch: int = 0,
        **changes: Any,
    ) -> Preset:
        """Return the preset with a user's changes; an empty value or 0 changes nothing.

        experiments: ids of the experiments to run. seeds: these also replace the seeds of
        experiments. changes: values of fields of every experiment and group. Raises UserError:
        an experiment or a contender is unknown, or a budget is neither a number of rows nor a
        share.
        """
        ids = [experiment.id for experiment in self.experiments]
        for name in experiments:
            if name not in ids:
                raise usage_error(
                    f'the preset has no experiment "{name}"',
                    f"{nearest(name, ids)}Choose from: {', '.join(ids)}.",
                )
        preset = structs.replace(
            self,
            experiments=tuple(
                _changed(experiment, {"seeds": seeds, **changes})
                for experiment in self.experiments
                if not experiments or experiment.id in experiments
            ),
            **_present(models=models, seeds=seeds, batch=batch),
        )
        _check(preset)
        return preset


def _present(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if value}


def _changed(experiment: Experiment, changes: dict[str, Any]) -> Experiment:
    of_group = {name: changes.pop(name, ()) for name in ("budgets", "contenders")}
    names = of_group["contenders"]
    groups = []
    for group in experiment.groups:
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


def names() -> list[str]:
    """Return the names of the presets that come with the package."""
    files = (resources.files(__package__) / "presets").iterdir()
    return sorted(file.name[:-5] for file in files if file.name.endswith(".toml"))


@cache
def load_preset(name: str) -> Preset:
    """Load a preset by name from the package, or from a user's TOML file.

    Raises UserError: there is no such preset or file, or it is not valid.
    """
    path = Path(name)
    if path.suffix == ".toml":
        return parse(read_text(path, "Give a preset's TOML file."), path.stem, name)
    if name not in names():
        raise usage_error(
            f'there is no preset "{name}"',
            f"{nearest(name, names())}Choose from: {', '.join(names())}, or give a TOML file.",
        )
    file = resources.files(__package__) / "presets" / f"{name}.toml"
    return parse(file.read_text("utf-8"), name, f"{name}.toml")


def parse(text: str, name: str, source: str) -> Preset:
    """Read a preset from TOML text.

    source: where the text is from, for errors. Raises UserError, which names the source and the
    entry: the text is not a valid preset.
    """
    blame = Blame("Compare with a preset of h2o-pack, such as demo.toml.", ExitCode.USAGE)
    preset = structs.replace(parse_toml(text, Preset, source, blame), name=name)
    try:
        _check(preset)
    except UserError as error:
        raise UserError(
            error.what, where=source, remedy=error.remedy, code=error.code
        ) from None
    return preset


def _check(preset: Preset) -> None:
    """Raise UserError for mistakes in a preset that its types allow."""
    for experiment in preset.experiments:
        where = f"experiment {experiment.id}"
        if experiment.ask != "nothing" and not experiment.depths:
            raise usage_error(
                f"{where}: depths is missing", "List the depths at which facts are put."
            )
        if (experiment.task in ("prompts", "chat")) != bool(experiment.ways):
            raise usage_error(
                f'{where}: the tasks "prompts" and "chat" need ways, and other tasks have none',
                "Add or remove ways, or choose another task.",
            )
        for group in experiment.groups:
            for name in (*group.contenders, group.baseline):
                find_contender(name)
            if group.baseline not in (*group.contenders, UNBOUNDED):
                raise usage_error(
                    f"{where}: the baseline {group.baseline} is not a contender",
                    "Add it to the contenders, or choose one of them.",
                )
            for budget in group.budgets:
                rows_of(budget, 1)
