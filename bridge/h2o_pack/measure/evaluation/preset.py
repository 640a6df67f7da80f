"""What is run: experiments on samples, read from a preset's TOML or made from options."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from h2o_pack.measure.evaluation.contenders import contender
from h2o_pack.measure.evaluation.samples import Shape
from h2o_pack.measure.evaluation.toml import loads

FORMAT = 1
Ask = Literal["nothing", "one", "all", "turns"]
Task = Literal["read", "speed"]
Equal = Literal["rows", "bytes"]


@dataclass(frozen=True)
class Group:
    """Contenders that are compared in one table.

    Args:
        id: key in JSON.
        title: of the table.
        contenders: names (`measure.evaluation.contenders`); the full cache is always there.
        budgets: rows of a KV head, as numbers or as shares of the length such as "1/4".
        equal: "rows": all keep as many rows; "bytes": as many as take the bytes of the
            default policy with 16-bit rows, ledger and all.
        baseline: what the others are compared with.

    """

    id: str
    title: str
    contenders: tuple[str, ...]
    budgets: tuple[str, ...]
    equal: Equal = "rows"
    baseline: str = "sinks_recent"


@dataclass(frozen=True)
class Experiment:
    """Samples of one kind, and who reads them.

    Args:
        id: key in JSON.
        title: of the section.
        task: "read" text and ask, or "speed": generate and take the time.
        lengths: tokens of a sample; for speed, of the prompt.
        samples: for each seed; for speed, runs.
        ask: "nothing"; "one": a sample has one fact, its depth the next of `depths`;
            "all": it has one at each depth, all asked on copies of the cache; "turns": the
            same, one after another.
        depths: of facts, 0 the beginning of the text, 1 its end.
        decoys: with "one": facts of the same form besides, spread over the text.
        generate: for speed: tokens to generate.
        paper: numbers of the paper's tables that this one repeats (paper.toml).
        groups: the tables.

    """

    id: str
    title: str
    lengths: tuple[int, ...]
    samples: int
    groups: tuple[Group, ...]
    task: Task = "read"
    ask: Ask = "nothing"
    depths: tuple[float, ...] = ()
    decoys: int = 0
    generate: int = 200
    paper: tuple[int, ...] = ()

    def shape(self, length: int, number: int) -> Shape:
        """How the sample of a number is built."""
        if self.ask == "nothing":
            return Shape(length)
        if self.ask == "one":
            spread = tuple((i + 0.5) / self.decoys for i in range(self.decoys))
            return Shape(length, (self.depths[number % len(self.depths)], *spread), (0,))
        asked = tuple((number + i) % len(self.depths) for i in range(len(self.depths)))
        return Shape(length, self.depths, asked, self.ask == "turns")


@dataclass(frozen=True)
class Preset:
    """A run.

    Args:
        name: what it was asked for by.
        title: for people.
        models: what mlx_lm loads, or "demo"; one report each.
        text: "source" or "prose" (held out from the embedded model), or "tulu".
        seeds: of the samples.
        batch: samples that are read at once.
        experiments: in order.

    """

    name: str
    title: str
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    experiments: tuple[Experiment, ...]
    text: str = "source"
    batch: int = 8

    def changed(
        self,
        *,
        models: tuple[str, ...] = (),
        seeds: tuple[int, ...] = (),
        samples: int | None = None,
        lengths: tuple[int, ...] = (),
        budgets: tuple[str, ...] = (),
        contenders: tuple[str, ...] = (),
        batch: int | None = None,
        generate: int | None = None,
        experiments: tuple[str, ...] = (),
    ) -> Preset:
        """The preset with a user's wishes; what is empty or None stays.

        Raises:
            ValueError: an experiment, a contender or a number cannot be.

        """
        ids = [each.id for each in self.experiments]
        for name in experiments:
            if name not in ids:
                raise ValueError(f"experiment = {name!r} is unknown. {_near(name, ids)}")
        kept = [each for each in self.experiments if not experiments or each.id in experiments]
        changed = []
        for each in kept:
            groups = each.groups
            if budgets:
                groups = tuple(dataclasses.replace(g, budgets=budgets) for g in groups)
            if contenders:
                groups = tuple(
                    dataclasses.replace(
                        g,
                        contenders=contenders,
                        baseline=g.baseline if g.baseline in contenders else contenders[0],
                    )
                    for g in groups
                )
            wishes: dict[str, Any] = {"samples": samples, "generate": generate}
            wishes |= {"lengths": lengths or None}
            given = {name: value for name, value in wishes.items() if value is not None}
            changed.append(dataclasses.replace(each, groups=groups, **given))
        made = dataclasses.replace(
            self,
            experiments=tuple(changed),
            models=models or self.models,
            seeds=seeds or self.seeds,
            batch=self.batch if batch is None else batch,
        )
        _check(made)
        return made


def rows_of(budget: str, length: int) -> int:
    """Rows of a budget: itself, or a share of the length.

    Raises:
        ValueError: it is neither.

    """
    try:
        share = Fraction(budget)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if share <= 0:
        raise ValueError(f"budget = {budget!r} is no number of rows and no share such as 1/4.")
    return round(share * length) if "/" in budget else int(share)


def names() -> list[str]:
    """The presets that come with the package."""
    found = (resources.files(__package__) / "presets").iterdir()
    return sorted(each.name[:-5] for each in found if each.name.endswith(".toml"))


@cache
def load_preset(name: str) -> Preset:
    """A preset of the package, or of a TOML file.

    Raises:
        ValueError: there is none of the name, or the file is not one; names the entry.

    """
    path = Path(name)
    if path.suffix == ".toml":
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"preset = {name!r} cannot be read ({error}).") from None
        return parse(text, path.stem, name)
    if name not in names():
        raise ValueError(f"preset = {name!r} is unknown. {_near(name, names())}")
    return parse(
        (resources.files(__package__) / "presets" / f"{name}.toml").read_text("utf-8"),
        name,
        f"{name}.toml",
    )


def parse(text: str, name: str, source: str) -> Preset:
    """A preset from its TOML; `source` is what errors call it."""
    document = loads(text)
    if document.pop("format", None) != FORMAT:
        raise ValueError(f"{source}: format must be {FORMAT}.")
    experiments = []
    for i, entry in enumerate(document.pop("experiment", [])):
        where = f"{source}: experiment[{i}]"
        groups = tuple(
            _made(Group, group, f"{where}.group[{j}]")
            for j, group in enumerate(entry.pop("group", []))
        )
        experiments.append(_made(Experiment, {**entry, "groups": groups}, where))
    preset: Preset = _made(
        Preset, {**document, "name": name, "experiments": tuple(experiments)}, source
    )
    try:
        _check(preset)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    return preset


def _made(cls: Any, entry: Mapping[str, Any], where: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key in entry:
        if key not in fields:
            raise ValueError(f"{where}: {key!r} is no setting. {_near(key, list(fields))}")
    for key, field in fields.items():
        if field.default is dataclasses.MISSING and key not in entry:
            raise ValueError(f"{where}: {key} is missing.")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    return cls(**values)


def _check(preset: Preset) -> None:
    """Refuse what no run can do."""
    if not preset.experiments or not preset.models or not preset.seeds:
        raise ValueError("experiments, models and seeds must each have an entry.")
    if preset.batch < 1:
        raise ValueError(f"batch = {preset.batch} must be 1 or more.")
    for each in preset.experiments:
        if each.ask not in get_args(Ask) or each.task not in get_args(Task):
            raise ValueError(f"{each.id}: ask = {each.ask!r} or task = {each.task!r} is none.")
        if each.samples < 1 or not each.lengths or min(each.lengths) < 1:
            raise ValueError(f"{each.id}: samples and lengths must be 1 or more.")
        if each.ask != "nothing" and not each.depths:
            raise ValueError(f"{each.id}: facts need depths.")
        for group in each.groups:
            if group.equal not in get_args(Equal):
                raise ValueError(f"{each.id}: equal = {group.equal!r} is not rows or bytes.")
            for name in (*group.contenders, group.baseline):
                contender(name)
            if group.baseline not in (*group.contenders, "full"):
                raise ValueError(f"{each.id}: baseline {group.baseline!r} does not take part.")
            for budget in group.budgets:
                rows_of(budget, 1)


def _near(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return (f"Did you mean {close[0]!r}? " if close else "") + f"Known: {', '.join(known)}."
