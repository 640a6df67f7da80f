"""A run of a preset on a model: its units of work, shared by several machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import mlx.core as mx
import numpy as np

from h2o_pack.files.text import usage_error
from h2o_pack.measure.evaluation import lockstep, speed, tasks
from h2o_pack.measure.evaluation.chat_tasks import chat_askings, make_conversation
from h2o_pack.measure.evaluation.contenders import (
    UNBOUNDED,
    CacheFactory,
    Contender,
    find_contender,
)
from h2o_pack.measure.evaluation.loaded import LoadedModel
from h2o_pack.measure.evaluation.preset import Experiment, Group, Preset, rows_of
from h2o_pack.measure.evaluation.tasks import make_sample
from h2o_pack.progress import BarAdvance, ProgressReporter
from h2o_py.routing import routed

_T = TypeVar("_T")


@dataclass(frozen=True)
class Share:
    """One process among `size`; `group` is mx.distributed's."""

    rank: int = 0
    size: int = 1
    group: Any = None

    @property
    def leads(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def mine(self, units: Sequence[_T]) -> list[tuple[int, _T]]:
        """Return the units that this process does, with their numbers."""
        return list(enumerate(units))[self.rank :: self.size]

    def gather(self, found: dict[int, Any], units: int) -> list[Any]:
        """Return what all processes found, in the order of the units.

        Args:
            found: results of this process's units: what JSON can hold.
            units: how many there are in all.

        Raises:
            UserError: no process did a unit.

        """
        # Alone too through JSON, so that one process and several give the same.
        own = json.dumps(list(found.items())).encode()
        parts = [own] if self.size == 1 else self._exchange(own)
        by_number = dict(pair for part in parts for pair in json.loads(part))
        missing = [number for number in range(units) if number not in by_number]
        if missing:
            raise usage_error(f"units {missing} were not done", "Run the command again.")
        return [by_number[number] for number in range(units)]

    def _exchange(self, own: bytes) -> list[bytes]:
        """Return every process's bytes: lengths first, then all padded to the longest."""
        cpu = mx.Device(mx.cpu)
        lengths = mx.distributed.all_gather(mx.array([len(own)]), group=self.group, stream=cpu)
        sizes: list[int] = lengths.tolist()  # type: ignore[assignment]
        padded = own + bytes(max(sizes) - len(own))
        sent = mx.array(np.frombuffer(padded, np.uint8))[None]
        got = mx.distributed.all_gather(sent, group=self.group, stream=cpu)
        rows = [np.asarray(got[i]).tobytes() for i in range(self.size)]
        return [row[:size] for row, size in zip(rows, sizes, strict=True)]


def join() -> Share:
    """Return the share of this process: all of the work where mlx.launch did not start it."""
    group = mx.distributed.init()
    return Share(group.rank(), group.size(), group)


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
                elif experiment.task == "chat":
                    found[number] = _converse(loaded, experiment, unit, advance)
                else:
                    found[number] = _read(loaded, experiment, unit, advance)
    return tables, work, share.gather(found, len(work))


def _converse(
    loaded: LoadedModel, experiment: Experiment, unit: Unit, advance: BarAdvance
) -> Any:
    """Ask in conversations, one at a time: their turns differ in length."""
    found: list[list[Any]] = [[] for _ in unit.contenders]
    for seed, number in unit.samples:
        made = make_conversation(
            loaded.tokens, unit.length, experiment.decoys + 1, seed, number
        )
        model, factory = loaded.model, loaded.factory
        with_one = tasks.run(
            model, factory, loaded.tokens, [made], unit.contenders, experiment.ways,
            lambda _amount: None, chat_askings,
        )  # fmt: skip
        for rows, new in zip(found, with_one, strict=True):
            rows.extend(new)
    advance(unit.length)
    return found


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
        return tasks.run(
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
