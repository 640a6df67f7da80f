"""Runs a preset on its models, in one process or in several at once, and writes the results."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import mlx.core as mx
import mlx.utils as mlx_utils
import msgspec
import numpy as np

from h2o_pack import __version__
from h2o_pack.choice.losses import NAME
from h2o_pack.errors import usage_error
from h2o_pack.files.paths import cache_folder
from h2o_pack.files.text import json_by_lines, read_text, writing
from h2o_pack.measure.evaluation import evaluation_report, evaluation_tables, reading
from h2o_pack.measure.evaluation.chat_tasks import make_conversation
from h2o_pack.measure.evaluation.contenders import (
    DEFAULT,
    UNBOUNDED,
    CacheFactory,
    Contender,
    find_contender,
)
from h2o_pack.measure.evaluation.evaluation_report import (
    CellKey,
    Evaluation,
    EvaluationReport,
    ExperimentResult,
    ModelIdentity,
)
from h2o_pack.measure.evaluation.preset import Experiment, Group, Preset, rows_of
from h2o_pack.measure.evaluation.statistics import CONFIDENCE
from h2o_pack.measure.evaluation.tasks import Outcome
from h2o_pack.measure.machine import describe
from h2o_pack.measure.models import load
from h2o_pack.measure.text import Tokens, held_out, text_sample
from h2o_pack.progress import BarAdvance, ProgressReporter
from h2o_pack.results import to_json
from h2o_py.budgets import Budgets, parse_budgets
from h2o_py.files import read_file
from h2o_py.routing import routed


class LoadedModel:
    """A model with its cache factory and the text that it reads.

    name: of the model, or a path that ends in it. documents: the text. text: its name in
    reports. budgets: by layer, of contenders that have them. sha256: of the names, types,
    shapes and bytes of all parameters, sorted by name.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str,
        documents: tuple[str, ...],
        text: str,
        budgets: Budgets | None = None,
        *,
        float32: bool = False,
    ) -> None:
        self.name = Path(name).name if "/" in name or "\\" in name else name
        self.sha256 = digest(model)
        if float32:
            model.set_dtype(mx.float32)
        self.model = model
        self.text = text
        self.budgets = budgets
        self.tokens = Tokens(tokenizer, documents)
        self.factory = CacheFactory(model, budgets)


def load_for_evaluation(
    name: str,
    *,
    file: Path | None = None,
    layer_budgets: Path | None = None,
    float32: bool = False,
) -> LoadedModel:
    """Load a model, by a name that mlx_lm accepts or "demo", and the text it reads.

    file: the text; None for prose that the demo model was not trained on. layer_budgets: a file
    of budgets by layer. Raises UserError: the model cannot be loaded, or a file cannot be read.
    """
    budgets = None
    if layer_budgets is not None:
        budgets = parse_budgets(read_file(layer_budgets), str(layer_budgets))
    model, tokenizer = load(name)
    documents, called = held_out("prose"), "held-out prose of the demo model"
    if file is not None:
        documents, called = (read_text(file, "Give a file of UTF-8 text."),), file.name
    return LoadedModel(model, tokenizer, name, documents, called, budgets, float32=float32)


def digest(model: Any) -> str:
    """Return the sha256 of all parameters."""
    total = hashlib.sha256()
    parameters: Any = mlx_utils.tree_flatten(model.parameters())
    for name, array in sorted(parameters):
        total.update(f"{name} {array.dtype} {array.shape}\n".encode())
        total.update(np.asarray(mx.contiguous(array).reshape(-1).view(mx.uint8)).tobytes())
    return total.hexdigest()


RESULTS, PAGE = "results.json", "README.md"
CELL_DEPTH = 6
"""Depth of a cell in results.json: report, experiments, experiment, groups, group, cells."""
_FULL = find_contender(UNBOUNDED)
_BYTES_OF = find_contender(DEFAULT)
_T = TypeVar("_T")
Outcomes = list[list[Outcome]]
"""Outcomes of a unit, by contender, then sample."""


@dataclass(frozen=True)
class Share:
    """The share of the work that one of `size` processes does; group: of mx.distributed."""

    rank: int = 0
    size: int = 1
    group: Any = None

    @property
    def leads(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def mine(self, units: Sequence[_T]) -> Sequence[_T]:
        """Return the units that this process must do."""
        return units[self.rank :: self.size]

    def gather(self, outcomes: list[Outcomes]) -> list[Outcomes]:
        """Return the outcomes of all units, in the order of the units.

        outcomes: of each unit in `mine`.
        """
        if self.size == 1:
            return outcomes
        parts = [
            msgspec.json.decode(part, type=list[Outcomes])
            for part in self._exchange(msgspec.json.encode(outcomes))
        ]
        return [unit for turn in zip_longest(*parts) for unit in turn if unit is not None]

    def _exchange(self, own: bytes) -> list[bytes]:
        """Return the bytes of each process, in the order of ranks."""
        cpu = mx.Device(mx.cpu)
        # Arrays that are gathered must have the same size, so all are padded to the longest.
        lengths = mx.distributed.all_gather(mx.array([len(own)]), group=self.group, stream=cpu)
        sizes: list[int] = lengths.tolist()  # type: ignore[assignment]
        padded = np.frombuffer(own + bytes(max(sizes) - len(own)), np.uint8)
        rows = mx.distributed.all_gather(mx.array(padded)[None], group=self.group, stream=cpu)
        return [np.asarray(rows[i]).tobytes()[: sizes[i]] for i in range(self.size)]


def join() -> Share:
    """Return the share of this process: all of the work if mlx.launch did not start it."""
    group = mx.distributed.init()
    return Share(group.rank(), group.size(), group)


def evaluate(
    preset: Preset,
    models: Sequence[str],
    share: Share,
    say: ProgressReporter,
    *,
    text: Path | None,
    layer_budgets: Path | None,
    output: Path | None,
) -> Evaluation:
    """Run a preset and write its results; only the process with rank 0 writes.

    text, layer_budgets: see `load_for_evaluation`. output: folder for results.json and
    README.md; with several models, each has a folder in it. Raises UserError: a model, text,
    budget or file cannot be used. H2OError: h2o_py refuses a budget or a model.
    """
    reports, finished = list[EvaluationReport](), list[FinishedUnits]()
    for name in models:
        say(f"loading {name}")
        loaded = load_for_evaluation(
            name, file=text, layer_budgets=layer_budgets, float32=preset.float32
        )
        finished.append(finished_units(loaded, preset, share))
        reports.append(run_preset(loaded, preset, share, say, finished[-1]))
        if output is not None and share.leads:
            with writing(output):
                folder = output / loaded.name if len(models) > 1 else output
                write(reports[-1], folder)
    # Only now: until all is written, the same command must be able to go on.
    for units in finished:
        units.forget()
    return Evaluation(reports=tuple(reports))


def write(results: EvaluationReport, folder: Path) -> None:
    """Write results.json, losses.json if losses were measured, and the page."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json_by_lines(msgspec.to_builtins(results), CELL_DEPTH)
    (folder / RESULTS).write_text(text, encoding="utf-8")
    table = evaluation_report.losses(results)
    if table is not None:
        (folder / NAME).write_text(to_json(table) + "\n", encoding="utf-8")
    (folder / PAGE).write_text(evaluation_tables.render(results), encoding="utf-8")


class FinishedUnits:
    """The units that an interrupted run finished, in a file of one line per unit.

    A run with the same model, text, preset and share of the work goes on after them. A line
    that was cut off, and all lines after it, are dropped.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one."""
        self.path = path
        self.units: list[Outcomes] = []
        good = 0
        for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else ():
            with suppress(msgspec.DecodeError):
                if line.endswith(b"\n"):
                    self.units.append(msgspec.json.decode(line, type=Outcomes))
                    good += len(line)
                    continue
            break
        if path.is_file():
            os.truncate(path, good)

    def add(self, outcomes: Outcomes) -> None:
        """Add the next unit's outcomes; UserError if the file cannot be written."""
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(outcomes) + b"\n")

    def forget(self) -> None:
        """Delete the file: the results are written."""
        self.path.unlink(missing_ok=True)


def finished_units(loaded: LoadedModel, preset: Preset, share: Share) -> FinishedUnits:
    """Return what an interrupted run of the same evaluation finished."""
    parts = (
        __version__,
        loaded.sha256,
        hashlib.sha256("\0".join(loaded.tokens.documents).encode()).hexdigest(),
        msgspec.to_builtins(preset),
        None if loaded.budgets is None else loaded.budgets.to_dict(),
        (share.rank, share.size),
    )
    name = hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
    return FinishedUnits(cache_folder() / "evaluations" / f"{name}.jsonl")


@dataclass(frozen=True)
class Unit:
    """Work for one process: a batch of samples of one length.

    number: index of the experiment. length: tokens. samples: (seed, number) of each sample.
    """

    number: int
    length: int
    samples: tuple[tuple[int, int], ...]
    contenders: tuple[Contender, ...]


def run_preset(
    loaded: LoadedModel,
    preset: Preset,
    share: Share,
    say: ProgressReporter,
    finished: FinishedUnits | None = None,
) -> EvaluationReport:
    """Run this process's share of a preset on a loaded model, and gather the results of all.

    finished: what an interrupted run finished; None to run all. Raises UserError: the text is
    too short, or a budget is too small. H2OError: h2o_py refuses the model, or a number of rows
    because it is too small.
    """
    with routed():
        tables = [
            [
                (group, list(keys_of(experiment, group, loaded.factory)))
                for group in experiment.groups
            ]
            for experiment in preset.experiments
        ]
        units = [
            unit
            for number, groups in enumerate(tables)
            for unit in units_of(preset, number, [key for _, keys in groups for key in keys])
        ]
        mine = share.mine(units)
        done = [] if finished is None else finished.units[: len(mine)]
        rest = mine[len(done) :]
        with say.bar("evaluating", sum(unit.length for unit in rest), "items") as advance:
            for unit in rest:
                done.append(work(loaded, preset.experiments[unit.number], unit, advance))
                if finished is not None:
                    finished.add(done[-1])
    results: list[dict[tuple[int, Contender], list[Outcome]]] = [{} for _ in tables]
    all_outcomes = share.gather(done)
    for unit, rows in zip(units, all_outcomes, strict=True):
        for contender, outcomes in zip(unit.contenders, rows, strict=True):
            results[unit.number].setdefault((unit.length, contender), []).extend(outcomes)
    return EvaluationReport(
        preset=preset.name,
        title=preset.title,
        model=ModelIdentity(loaded.name, loaded.sha256),
        text=loaded.text,
        seeds=preset.seeds,
        prefill=reading.PREFILL,
        confidence=CONFIDENCE,
        machine=describe(timed=False),
        experiments=tuple(
            ExperimentResult(
                id=experiment.id,
                title=experiment.title,
                task=experiment.task,
                samples=experiment.samples,
                decoys=experiment.decoys,
                groups=tuple(
                    evaluation_report.group_result(group, keys, outcomes, loaded.factory)
                    for group, keys in groups
                ),
            )
            for experiment, groups, outcomes in zip(
                preset.experiments, tables, results, strict=True
            )
        ),
    )


def keys_of(experiment: Experiment, group: Group, factory: CacheFactory) -> Iterator[CellKey]:
    """Yield the keys of a table's cells; at each length, caches that keep all rows come first.

    Raises UserError: a budget is too small for the prefill. H2OError: h2o_py refuses the model,
    or a number of rows because it is too small.
    """
    contenders = [find_contender(name) for name in group.contenders]
    for length in group.lengths or experiment.lengths:
        unbounded = [_FULL, *(contender for contender in contenders if not contender.bounded)]
        for contender in dict.fromkeys(unbounded):
            yield CellKey(length, "all", contender)
        for budget in group.budgets:
            rows = rows_of(budget, length)
            if rows < reading.PREFILL:
                raise usage_error(
                    f"the budget {budget} of {length} tokens is {rows} rows, fewer than "
                    f"the {reading.PREFILL} tokens that are read at once",
                    "Give a larger budget (--max-kv).",
                )
            limit = factory.bytes(_BYTES_OF.with_rows(rows), length)
            for contender in contenders:
                if not contender.bounded:
                    continue
                own_rows = rows
                if group.equal == "bytes":
                    own_rows = factory.rows_for(contender, limit, length)
                factory.caches(contender.with_rows(own_rows))  # raises errors before the run
                yield CellKey(length, budget, contender.with_rows(own_rows))


def units_of(preset: Preset, number: int, keys: Sequence[CellKey]) -> Iterator[Unit]:
    """Yield an experiment's units, in the same order in every process.

    number: index of the experiment in the preset. keys: of all cells of the experiment.
    """
    experiment = preset.experiments[number]
    for length in dict.fromkeys(key.length for key in keys):
        contenders = tuple(dict.fromkeys(key.contender for key in keys if key.length == length))
        samples = [
            (seed, sample) for seed in preset.seeds for sample in range(experiment.samples)
        ]
        # Conversations are read one at a time, because their turns differ in length.
        batch = 1 if experiment.task == "chat" else preset.batch
        for k in range(0, len(samples), batch):
            yield Unit(number, length, tuple(samples[k : k + batch]), contenders)


def work(
    loaded: LoadedModel, experiment: Experiment, unit: Unit, advance: BarAdvance
) -> Outcomes:
    """Do the work of one unit."""
    if experiment.task == "chat":
        [(seed, number)] = unit.samples
        return reading.run_conversation(
            loaded.model,
            loaded.factory,
            loaded.tokens,
            make_conversation(loaded.tokens, unit.length, experiment.decoys + 1, seed, number),
            unit.contenders,
            experiment.ways,
            advance,
        )
    samples = [
        text_sample(loaded.tokens, unit.length, seed, number) for seed, number in unit.samples
    ]
    return reading.run_text(loaded.model, loaded.factory, samples, unit.contenders, advance)
