"""Runs a preset on a model: units of work, this process's share of them, and the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from h2o_pack.measure.evaluation import lockstep, speed
from h2o_pack.measure.evaluation.contenders import UNBOUNDED, contender
from h2o_pack.measure.evaluation.entrants import Entrant, Stable
from h2o_pack.measure.evaluation.loaded import Loaded
from h2o_pack.measure.evaluation.preset import Experiment, Group, Preset, rows_of
from h2o_pack.measure.evaluation.samples import make_sample
from h2o_pack.measure.evaluation.share import Share
from h2o_py.routing import install_routing, remove_routing, routing_installed

FULL = Entrant(contender(UNBOUNDED), 0)
_BYTES_OF = contender("default")


class Progress(Protocol):
    """Who is told what is being done, and how far it has come."""

    def __call__(self, text: str) -> None:
        """Take one line."""

    def bar(self, text: str, total: int, unit: Any = ...) -> AbstractContextManager[Any]:
        """Give a function that moves a bar of `total` on by so many."""


@dataclass(frozen=True)
class Place:
    """A cell of a table: who, in which group, at which length and budget."""

    group: Group
    length: int
    budget: str
    entrant: Entrant


@dataclass(frozen=True)
class Unit:
    """Work that one process does at once: samples of one length, or one entrant's speed."""

    experiment: int
    length: int
    samples: tuple[tuple[int, int], ...]
    entrants: tuple[Entrant, ...]


def places(experiment: Experiment, stable: Stable) -> list[Place]:
    """All cells of an experiment's tables, the full cache first in each.

    Raises:
        ValueError: a budget is too small for the prefill or a contender.

    """
    found = []
    for group in experiment.groups:
        for length in experiment.lengths:
            found.append(Place(group, length, "all", FULL))
            for budget in group.budgets:
                rows = rows_of(budget, length)
                if rows < lockstep.PREFILL:
                    raise ValueError(
                        f"budget = {budget!r} of {length} tokens is {rows} rows, fewer than "
                        f"the {lockstep.PREFILL} tokens that are read at once. Give more."
                    )
                limit = stable.bytes(Entrant(_BYTES_OF, rows), length)
                for name in group.contenders:
                    who = contender(name)
                    if not who.bounded:
                        continue
                    if group.equal == "bytes":
                        bought = stable.rows_for(who, limit, length)
                    else:
                        bought = rows
                    entrant = Entrant(who, bought)
                    stable.caches(entrant)  # what cannot work is refused before the run
                    found.append(Place(group, length, budget, entrant))
    return found


def units(preset: Preset, tables: Sequence[Sequence[Place]]) -> list[Unit]:
    """All work, in an order that does not depend on how many processes do it."""
    found = []
    for i, (experiment, cells) in enumerate(zip(preset.experiments, tables, strict=True)):
        for length in experiment.lengths:
            at_length = [place.entrant for place in cells if place.length == length]
            entrants = tuple(dict.fromkeys(at_length))
            if experiment.task == "speed":
                runs = tuple((0, n) for n in range(experiment.samples))
                found += [Unit(i, length, runs, (entrant,)) for entrant in entrants]
                continue
            samples = [(s, n) for s in preset.seeds for n in range(experiment.samples)]
            found += [
                Unit(i, length, tuple(samples[k : k + preset.batch]), entrants)
                for k in range(0, len(samples), preset.batch)
            ]
    return found


def run(
    loaded: Loaded, preset: Preset, share: Share, progress: Progress
) -> tuple[list[list[Place]], list[Unit], list[Any]]:
    """Do this process's share and gather the rest.

    Args:
        loaded: the model and the text.
        preset: what to run.
        share: of which process.
        progress: told what is being done.

    Returns:
        Cells by experiment, all units, and what each found: for text, outcomes by entrant
        and sample; for speed, what `speed.measure` gives.

    Raises:
        ValueError: the text is too short, or a budget too small.

    """
    with routed():
        tables = [places(experiment, loaded.stable) for experiment in preset.experiments]
        work = units(preset, tables)
        mine = share.mine(work)
        total = sum(unit.length for _, unit in mine)
        found: dict[int, Any] = {}
        with progress.bar("evaluating", total, "items") as advance:
            for number, unit in mine:
                experiment = preset.experiments[unit.experiment]
                if experiment.task == "speed":
                    found[number] = _speed(loaded, experiment, unit)
                    advance(unit.length)
                else:
                    found[number] = _read(loaded, experiment, unit, advance)
    return tables, work, share.gather(found, len(work))


def _read(loaded: Loaded, experiment: Experiment, unit: Unit, advance: Any) -> Any:
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
    outcomes = lockstep.run(
        loaded.model,
        loaded.stable,
        loaded.tokens,
        samples,
        unit.entrants,
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


def _speed(loaded: Loaded, experiment: Experiment, unit: Unit) -> Any:
    prompt = loaded.tokens.first + loaded.tokens.window(0, unit.length)
    found = speed.measure(
        loaded.model,
        lambda: loaded.stable.caches(unit.entrants[0]),
        prompt[: unit.length],
        experiment.generate,
        runs=len(unit.samples),
    )
    return asdict(found)


@contextmanager
def routed() -> Iterator[None]:
    """Attention is routed, and left as it was."""
    was_installed = routing_installed()
    install_routing()
    try:
        yield
    finally:
        if not was_installed:
            remove_routing()
