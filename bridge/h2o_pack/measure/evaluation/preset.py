"""What is run: experiments on samples, read from a preset's TOML and changed by options."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field, inspect, structs

from h2o_pack.errors import UserError, nearest
from h2o_pack.files.text import read_text, usage_error
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


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    """Samples of one kind, and who reads them.

    Args:
        id: key in JSON.
        title: of the section.
        task: "read" text token by token and ask; "prompts": read it as prompts and ask in
            `ways`; "chat": the same in conversations (`measure.evaluation.chat_tasks`); or
            "speed": generate and take the time.
        lengths: tokens of a sample; for speed, of the prompt.
        samples: for each seed; for speed, runs.
        ask: "nothing"; "one": a sample has one fact, its depth the next of `depths`;
            "all": it has one at each depth, all asked on copies of the cache; "turns": the
            same, one after another.
        depths: of facts, 0 the beginning of the text, 1 its end.
        decoys: with "one", and in conversations: facts of the same form besides, spread over
            the text.
        digits: of each fact's number.
        ways: of asking, where text is read as prompts or in conversations.
        seeds: of its samples; none for the preset's.
        generate: for speed: tokens to generate.
        groups: the tables.

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
            asked = tuple(range(len(depths))) if self.task == "prompts" else (0,)
            return Shape(length, depths, asked, digits=self.digits)
        asked = tuple((number + i) % len(self.depths) for i in range(len(self.depths)))
        return Shape(length, self.depths, asked, self.ask == "turns", self.digits)


class Preset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run.

    Args:
        name: what it was asked for by.
        title: for people.
        models: what mlx_lm loads, or "demo"; one report each.
        text: "source" or "prose", held out from the demo model's training.
        seeds: of the samples.
        batch: samples that are read at once.
        float32: whether the model computes in it; bytes are those of 16-bit rows also then.
        experiments: in order.

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

    def changed(self, changes: PresetChanges) -> Preset:
        """Return the preset with a user's changes applied.

        Raises:
            UserError: an experiment or a contender is unknown, or a budget is none.

        """
        ids = [each.id for each in self.experiments]
        for name in changes.experiments:
            if name not in ids:
                raise usage_error(
                    f'the preset has no experiment "{name}"',
                    f"{nearest(name, ids)}Choose from: {', '.join(ids)}.",
                )
        made = structs.replace(
            self,
            experiments=tuple(
                _changed(each, changes)
                for each in self.experiments
                if not changes.experiments or each.id in changes.experiments
            ),
            models=changes.models or self.models,
            seeds=changes.seeds or self.seeds,
            batch=changes.batch or self.batch,
        )
        _check(made)
        return made


class PresetChanges(Struct, frozen=True, kw_only=True):
    """A user's changes to a preset; empty, or 0, keeps the preset's value.

    The fields are those of `Preset`, `Experiment` and `Group` that have the same names.
    """

    models: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    samples: int = 0
    lengths: tuple[int, ...] = ()
    budgets: tuple[str, ...] = ()
    contenders: tuple[str, ...] = ()
    batch: int = 0
    generate: int = 0
    experiments: tuple[str, ...] = ()


def _changed(experiment: Experiment, changes: PresetChanges) -> Experiment:
    groups = []
    for group in experiment.groups:
        names = changes.contenders or group.contenders
        kept = not changes.contenders or group.baseline in names
        groups.append(
            structs.replace(
                group,
                budgets=changes.budgets or group.budgets,
                contenders=names,
                baseline=group.baseline if kept else names[0],
            )
        )
    return structs.replace(
        experiment,
        groups=tuple(groups),
        samples=changes.samples or experiment.samples,
        seeds=changes.seeds or experiment.seeds,
        lengths=changes.lengths or experiment.lengths,
        generate=changes.generate or experiment.generate,
    )


def rows_of(budget: str, length: int) -> int:
    """Return the rows of a budget: itself, or a share of the length.

    Raises:
        UserError: it is neither.

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
    found = (resources.files(__package__) / "presets").iterdir()
    return sorted(each.name[:-5] for each in found if each.name.endswith(".toml"))


@cache
def load_preset(name: str) -> Preset:
    """Load a preset of the package, or of a TOML file.

    Raises:
        UserError: there is none of the name, or the file is not one; names the entry.

    """
    path = Path(name)
    if path.suffix == ".toml":
        return parse(read_text(path, "Give a preset's TOML file."), path.stem, name)
    if name not in names():
        raise usage_error(
            f'there is no preset "{name}"',
            f"{nearest(name, names())}Choose from: {', '.join(names())}, or give a TOML file.",
        )
    found = resources.files(__package__) / "presets" / f"{name}.toml"
    return parse(found.read_text("utf-8"), name, f"{name}.toml")


def parse(text: str, name: str, source: str) -> Preset:
    """Read a preset's TOML.

    Args:
        text: of the file.
        name: of the preset.
        source: what errors call the file.

    Raises:
        UserError: the text is not a preset; names the file and the entry.

    """
    compare = "Compare with a preset of h2o-pack, such as demo.toml."
    try:
        document = msgspec.toml.decode(text)
        for place, key, known in unknown_keys(document, inspect.type_info(Preset)):
            what = f"{source}: {place} has an unknown key {key!r}"
            raise usage_error(what, nearest(key, known) + compare)
        found = msgspec.convert(document, Preset)
    except msgspec.DecodeError as error:
        raise usage_error(f"{source}: {error}", compare) from None
    preset = structs.replace(found, name=name)
    try:
        _check(preset)
    except UserError as error:
        raise UserError(
            error.what, where=source, remedy=error.remedy, code=error.code
        ) from None
    return preset


def unknown_keys(
    found: Any, kind: inspect.Type, place: str = "$"
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the keys that a type does not have: where, the key, and the known ones."""
    if isinstance(kind, inspect.StructType) and isinstance(found, dict):
        known = {field.encode_name: field.type for field in kind.fields}
        for key, value in found.items():
            if key in known:
                yield from unknown_keys(value, known[key], f"{place}.{key}")
            else:
                yield place, key, list(known)
    elif isinstance(kind, inspect.VarTupleType) and isinstance(found, list):
        for i, value in enumerate(found):
            yield from unknown_keys(value, kind.item_type, f"{place}[{i}]")


def _check(preset: Preset) -> None:
    """Refuse what types cannot."""
    for each in preset.experiments:
        if each.ask != "nothing" and not each.depths:
            raise usage_error(
                f"experiment {each.id}: depths is missing", "Facts stand at depths."
            )
        if (each.task in ("prompts", "chat")) != bool(each.ways):
            raise usage_error(
                f'experiment {each.id}: ways belong to the tasks "prompts" and "chat"',
                "Give both, or neither.",
            )
        for group in each.groups:
            for name in (*group.contenders, group.baseline):
                find_contender(name)
            if group.baseline not in (*group.contenders, UNBOUNDED):
                raise usage_error(
                    f"experiment {each.id}: the baseline {group.baseline} is not a contender",
                    "Add it to the contenders, or choose one of them.",
                )
            for budget in group.budgets:
                rows_of(budget, 1)
