"""Runs a preset on a model: units of work, this process's share of them, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from h2o_pack.files.text import usage_error
from h2o_pack.measure.evaluation import lockstep, prompts, speed
from h2o_pack.measure.evaluation.cache_factory import CacheFactory
from h2o_pack.measure.evaluation.contenders import UNBOUNDED, Contender, find_contender
from h2o_pack.measure.evaluation.loaded import LoadedModel
from h2o_pack.measure.evaluation.preset import Experiment, Group, Preset, rows_of
from h2o_pack.measure.evaluation.samples import make_sample
from h2o_pack.measure.evaluation.share import Share
from h2o_pack.progress import BarAdvance, ProgressReporter
from h2o_py.routing import routed

FULL = find_contender(UNBOUNDED)
_BYTES_OF = find_contender("default")


@dataclass(frozen=True)
class CellKey:
    """A cell of a table: a contender in a group, at a length and budget."""

    group: Group
    length: int
    budget: str
    contender: Contender


@dataclass(frozen=True)
class Unit:
    """Work that one process does at once: samples of one length, or one contender's speed."""

    experiment: int
    length: int
    samples: tuple[tuple[int, int], ...]
    contenders: tuple[Contender, ...]


def places(experiment: Experiment, factory: CacheFactory) -> list[CellKey]:
    """Return all cells of an experiment's tables, the full cache first in each.

    Raises:
        UserError: a budget is too small for the prefill.
        H2OError: h2o_py refuses so few rows, or the model.

    """
    found = []
    for group in experiment.groups:
        for length in experiment.lengths:
            found.append(CellKey(group, length, "all", FULL))
            everything = [find_contender(name) for name in group.contenders]
            found += [
                CellKey(group, length, "all", each)
                for each in everything
                if not each.bounded and each != FULL
            ]
            for budget in group.budgets:
                rows = rows_of(budget, length)
                if rows < lockstep.PREFILL:
                    raise usage_error(
                        f"the budget {budget} of {length} tokens is {rows} rows, fewer than "
                        f"the {lockstep.PREFILL} tokens that are read at once",
                        "Give a larger budget (--max-kv).",
                    )
                limit = factory.bytes(_BYTES_OF.with_rows(rows), length)
                for name in group.contenders:
                    who = find_contender(name)
                    if not who.bounded:
                        continue
                    if group.equal == "bytes":
                        bought = factory.rows_for(who, limit, length)
                    else:
                        bought = rows
                    contender = who.with_rows(bought)
                    factory.caches(contender)  # what cannot work is refused before the run
                    found.append(CellKey(group, length, budget, contender))
    return found


def units(preset: Preset, tables: Sequence[Sequence[CellKey]]) -> list[Unit]:
    """Return all work, in an order that does not depend on how many processes do it."""
    found = []
    for i, (experiment, cells) in enumerate(zip(preset.experiments, tables, strict=True)):
        for length in experiment.lengths:
            at_length = [place.contender for place in cells if place.length == length]
            contenders = tuple(dict.fromkeys(at_length))
            if experiment.task == "speed":
                runs = tuple((0, n) for n in range(experiment.samples))
                found += [Unit(i, length, runs, (contender,)) for contender in contenders]
                continue
            seeds = experiment.seeds or preset.seeds
            samples = [(s, n) for s in seeds for n in range(experiment.samples)]
            found += [
                Unit(i, length, tuple(samples[k : k + preset.batch]), contenders)
                for k in range(0, len(samples), preset.batch)
            ]
    return found


def run(
    loaded: LoadedModel, preset: Preset, share: Share, say: ProgressReporter
) -> tuple[list[list[CellKey]], list[Unit], list[Any]]:
    """Do this process's share of the work and gather the rest.

    Args:
        loaded: the model and the text.
        preset: what to run.
        share: of which process.
        say: told what is being done.

    Returns:
        Cells by experiment, all units, and what each found: for text, outcomes by contender
        and sample; for speed, what `speed.measure` gives.

    Raises:
        UserError: the text is too short, or a budget too small.

    """
    with routed():
        tables = [places(experiment, loaded.factory) for experiment in preset.experiments]
        work = units(preset, tables)
        mine = share.mine(work)
        total = sum(unit.length for _, unit in mine)
        found: dict[int, Any] = {}
        with say.bar("evaluating", total, "items") as advance:
            for number, unit in mine:
                experiment = preset.experiments[unit.experiment]
                if experiment.task == "speed":
                    found[number] = _speed(loaded, experiment, unit)
                    advance(unit.length)
                else:
                    found[number] = _read(loaded, experiment, unit, advance)
    return tables, work, share.gather(found, len(work))


def _read(loaded: LoadedModel, experiment: Experiment, unit: Unit, advance: BarAdvance) -> Any:
    samples = [
        make_sample(
            loaded.tokens,
            loaded.words,
            experiment.shape(unit.length, number),
            seed,
            number,
        )
        for seed, number in unit.samples
    ]
    if experiment.task == "prompts":
        return prompts.run(
            loaded.model,
            loaded.factory,
            loaded.tokens,
            samples,
            unit.contenders,
            experiment.ways,
            advance,
        )
    outcomes = lockstep.run(
        loaded.model,
        loaded.factory,
        loaded.tokens,
        samples,
        unit.contenders,
        in_turns=experiment.ask == "turns",
        advance=advance,
    )
    return [
        [
            {**asdict(outcome), "depths": [q.fact.depth for q in sample.questions]}
            for outcome, sample in zip(row, samples, strict=True)
        ]
        for row in outcomes
    ]


def _speed(loaded: LoadedModel, experiment: Experiment, unit: Unit) -> Any:
    prompt = loaded.tokens.first + loaded.tokens.window(0, unit.length)
    return speed.measure(
        loaded.model,
        lambda: loaded.factory.caches(unit.contenders[0]),
        prompt[: unit.length],
        experiment.generate,
        runs=len(unit.samples),
    )
