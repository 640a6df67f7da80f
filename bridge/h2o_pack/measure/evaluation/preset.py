"""What is run: experiments on samples, read from a preset's TOML and changed by options."""

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

    id: key in JSON. title: of the table. contenders: names (`measure.evaluation.contenders`);
    the full cache is always there. budgets: rows of a KV head, as numbers or as shares of the
    length such as "1/4". equal: "rows": all keep as many rows; "bytes": as many as take the
    bytes of the default policy with 16-bit rows, ledger and all. baseline: what the others are
    compared with.
    """

    id: str
    title: str
    contenders: tuple[str, ...]
    budgets: tuple[str, ...]
    equal: Equal = "rows"
    baseline: str = "sinks_recent"


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    """Samples of one kind, and who reads them.

    id: key in JSON. title: of the section. task: "read" text token by token and ask; "prompts":
    read it as prompts and ask in `ways`; "chat": the same in conversations
    (`measure.evaluation.chat_tasks`); or "speed": generate and take the time. lengths: tokens
    of a sample; for speed, of the prompt. samples: for each seed; for speed, runs. ask:
    "nothing"; "one": a sample has one fact, its depth the next of `depths`; "all": it has one
    at each depth, all asked on copies of the cache; "turns": the same, one after another.
    depths: of facts, 0 the beginning of the text, 1 its end. decoys: with "one", and in
    conversations: facts of the same form besides, spread over the text. digits: of each fact's
    number. ways: of asking, where text is read as prompts or in conversations. seeds: of its
    samples; none for the preset's. generate: for speed: tokens to generate. groups: the tables.
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
        """Return how the sample of a number is built."""
        if self.ask == "nothing":
            return Shape(length)
        if self.ask == "one":
            spread = tuple((i + 0.5) / self.decoys for i in range(self.decoys))
            depths = (self.depths[number % len(self.depths)], *spread)
            facts = tuple(range(len(depths))) if self.task == "prompts" else (0,)
            return Shape(length, depths, facts, digits=self.digits)
        facts = tuple((number + i) % len(self.depths) for i in range(len(self.depths)))
        return Shape(length, self.depths, facts, self.ask == "turns", self.digits)


class Preset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run.

    models: what mlx_lm loads, or "demo"; one report each. text: held out from the demo model's
    training. batch: samples that are read at once. float32: whether the model computes in it;
    bytes are those of 16-bit rows also then.
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
        """Return the preset with a user's changes; what is empty or 0 keeps its value.

        experiments: ids of those to run. seeds: also of experiments that have their own.
        changes: to each experiment and group, by the names of their fields. Raises UserError:
        an experiment or a contender is unknown, or a budget is none.
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
    """Return a budget's rows, a number or a share of the length; UserError if it is neither."""
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
    """Load a preset of the package, or of a TOML file; UserError names what is wrong."""
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
    """Read a preset's TOML; UserError names the source and the entry."""
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
    """Refuse what types cannot."""
    for experiment in preset.experiments:
        where = f"experiment {experiment.id}"
        if experiment.ask != "nothing" and not experiment.depths:
            raise usage_error(f"{where}: depths is missing", "Facts stand at depths.")
        if (experiment.task in ("prompts", "chat")) != bool(experiment.ways):
            raise usage_error(
                f'{where}: ways belong to the tasks "prompts" and "chat"',
                "Give both, or neither.",
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
