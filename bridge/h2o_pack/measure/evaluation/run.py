"""Runs a preset on its models, in one process or in several at once, and writes the results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import mlx.core as mx
import mlx.utils as mlx_utils
import msgspec
import numpy as np

from h2o_pack.choice.losses import NAME
from h2o_pack.errors import usage_error
from h2o_pack.files.text import json_by_lines, read_file, read_text, writing
from h2o_pack.measure import bench
from h2o_pack.measure.evaluation import reading, report, show
from h2o_pack.measure.evaluation.chat_tasks import make_conversation
from h2o_pack.measure.evaluation.contenders import (
    SINKS,
    UNBOUNDED,
    BudgetsFor,
    CacheFactory,
    Contender,
    find_contender,
    policies,
)
from h2o_pack.measure.evaluation.preset import Experiment, Group, Preset, rows_of
from h2o_pack.measure.evaluation.report import (
    CellKey,
    Evaluation,
    ExperimentResult,
    ModelIdentity,
    Report,
)
from h2o_pack.measure.evaluation.statistics import CONFIDENCE
from h2o_pack.measure.evaluation.tasks import SPEED, Outcome, make_sample
from h2o_pack.measure.machine import describe
from h2o_pack.measure.models import load
from h2o_pack.measure.pictures import require_matplotlib
from h2o_pack.measure.profiling import options as profiling
from h2o_pack.measure.profiling import rules
from h2o_pack.measure.profiling.report import Profile, read_profile
from h2o_pack.measure.profiling.run import profile_model
from h2o_pack.measure.text import Part, Tokens, held_out
from h2o_pack.progress import BarAdvance, ProgressReporter, silent
from h2o_pack.results import to_json
from h2o_py.budgets import Budgets, parse_budgets
from h2o_py.routing import routed

_PROFILED, _PIECES = 1024, 4
"""Tokens per piece of text, and number of pieces, to profile a model without a profile.json."""


@dataclass(frozen=True)
class LayerBudgetsSource:
    """Where budgets by layer are from: a file of budgets, or a profile.json.

    If both are None, the model is profiled.
    """

    budgets: Path | None = None
    profile: Path | None = None


class LoadedModel:
    """A model with its cache factory and the text that it reads.

    name: of the model, or a path that ends in it. documents: the text. text: its name in
    reports. sha256: of the names, types, shapes and bytes of all parameters, sorted by name.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str,
        documents: tuple[str, ...],
        text: str,
        by_layer: LayerBudgetsSource = LayerBudgetsSource(),
        *,
        float32: bool = False,
    ) -> None:
        self.name = Path(name).name if "/" in name or "\\" in name else name
        self.sha256 = digest(model)
        if float32:
            model.set_dtype(mx.float32)
        self.model = model
        self.text = text
        self.tokens = Tokens(tokenizer, documents)
        self.factory = CacheFactory(model, budgets_for(model, self.tokens, by_layer))


def load_for_evaluation(
    name: str,
    *,
    text: Part = "source",
    file: Path | None = None,
    by_layer: LayerBudgetsSource = LayerBudgetsSource(),
    float32: bool = False,
) -> LoadedModel:
    """Load a model, by a name that mlx_lm accepts or "demo", and the text it reads.

    text: which held-out text of the demo model. file: a user's own text to read instead. Raises
    UserError: the model cannot be loaded, or the text cannot be read.
    """
    model, tokenizer = load(name)
    documents, called = held_out(text), f"held-out {text} of the demo model"
    if file is not None:
        documents, called = (read_text(file, "Give a file of UTF-8 text."),), file.name
    return LoadedModel(model, tokenizer, name, documents, called, by_layer, float32=float32)


def digest(model: Any) -> str:
    """Return the sha256 of all parameters."""
    total = hashlib.sha256()
    parameters: Any = mlx_utils.tree_flatten(model.parameters())
    for name, array in sorted(parameters):
        total.update(f"{name} {array.dtype} {array.shape}\n".encode())
        total.update(np.asarray(mx.contiguous(array).reshape(-1).view(mx.uint8)).tobytes())
    return total.hexdigest()


def budgets_for(model: Any, tokens: Tokens, by_layer: LayerBudgetsSource) -> BudgetsFor:
    """Return a function that makes budgets by layer for a contender.

    They are from the user's file, or computed by the contender's rule from a profile.
    """
    profile = cache(lambda: _profile(model, tokens, by_layer.profile))

    def budgets(contender: Contender) -> Budgets:
        if by_layer.budgets is not None:
            return parse_budgets(read_file(by_layer.budgets), str(by_layer.budgets))
        if policies()[contender.policy].by_layer == "reach":
            by_index = rules.layer_rows(
                rules.reaches(profile()),
                contender.rows,
                lambda rows: contender.with_rows(rows).config(),
            )
        else:
            measures = {layer.index: layer.figures.concentration for layer in profile().full}
            by_index = rules.layer_shares(measures, contender.rows, SINKS)
        return rules.budgets(by_index, profile().caches)

    return budgets


def _profile(model: Any, tokens: Tokens, profile: Path | None) -> Profile:
    if profile is not None:
        return read_profile(profile)
    length = min(_PROFILED, len(tokens.ids))
    options = profiling.Options(tokens=length, samples=_PIECES, time_steps=False)
    spread = max(1, len(tokens.ids) // _PIECES)
    pieces = [tokens.window(i * spread, length) for i in range(_PIECES)]
    return profile_model(model, pieces, options, silent)[0]


RESULTS, PAGE = "results.json", "README.md"
CELL_DEPTH = 6
"""Depth of a cell in results.json: report, experiments, experiment, groups, group, cells."""
WARM_UP = 4
"""Tokens of an untimed run, before the runs whose speed is measured."""

_FULL = find_contender(UNBOUNDED)
_BYTES_OF = find_contender("default")
_T = TypeVar("_T")
Outcomes = list[list[Outcome]]
"""Outcomes of a unit, by contender, then sample or run."""


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
    share: Share,
    say: ProgressReporter,
    *,
    text: Path | None,
    by_layer: LayerBudgetsSource,
    output: Path | None,
    pictures: bool,
    compare: Path | None,
) -> tuple[Evaluation, list[str]]:
    """Run a preset and write its results; only the process with rank 0 writes.

    text: a file to read instead of the preset's text. output: folder for results.json,
    README.md and the pictures; with several models, each has a folder in it. compare: the
    results.json of an earlier run. Returns the results, and sentences on how they differ from
    the earlier results. Raises UserError: a model, text, budget or file cannot be used, or
    matplotlib is missing. H2OError: h2o_py refuses a budget or a model.
    """
    if output is not None and pictures:
        require_matplotlib()
    if compare is not None and len(preset.models) > 1:
        raise usage_error(
            "--compare takes the report of one model", "Choose the model with --model."
        )
    earlier = None if compare is None else report.read(compare)
    reports = []
    for name in preset.models:
        say(f"loading {name}")
        loaded = load_for_evaluation(
            name,
            text=preset.text,
            file=text,
            by_layer=by_layer,
            float32=preset.float32,
        )
        reports.append(run(loaded, preset, share, say))
        if output is not None and share.leads:
            with writing(output):
                folder = output / loaded.name if len(preset.models) > 1 else output
                write(reports[-1], folder, pictures=pictures)
    unlike = [] if earlier is None else report.differences(earlier, reports[0])
    return Evaluation(reports=tuple(reports)), unlike


def write(results: Report, folder: Path, *, pictures: bool = True) -> None:
    """Write results.json, losses.json if losses were measured, the page and the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json_by_lines(msgspec.to_builtins(results), CELL_DEPTH)
    (folder / RESULTS).write_text(text, encoding="utf-8")
    table = report.losses(results)
    if table is not None:
        (folder / NAME).write_text(to_json(table) + "\n", encoding="utf-8")
    files = show.save_pictures(results, folder) if pictures else []
    (folder / PAGE).write_text(show.render(results, files), encoding="utf-8")


@dataclass(frozen=True)
class Unit:
    """Work for one process: a batch of samples of one length, or one contender's speed.

    number: index of the experiment. length: tokens. samples: (seed, number) of each sample, or
    (0, run) for speed.
    """

    number: int
    length: int
    samples: tuple[tuple[int, int], ...]
    contenders: tuple[Contender, ...]


def run(loaded: LoadedModel, preset: Preset, share: Share, say: ProgressReporter) -> Report:
    """Run this process's share of a preset on a loaded model, and gather the results of all.

    Raises UserError: the text is too short, or a budget is too small. H2OError: h2o_py refuses
    the model, or a number of rows because it is too small.
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
        with say.bar("evaluating", sum(unit.length for unit in mine), "items") as advance:
            done = [
                work(loaded, preset.experiments[unit.number], unit, advance) for unit in mine
            ]
    results: list[dict[tuple[int, Contender], list[Outcome]]] = [{} for _ in tables]
    for unit, rows in zip(units, share.gather(done), strict=True):
        for contender, outcomes in zip(unit.contenders, rows, strict=True):
            results[unit.number].setdefault((unit.length, contender), []).extend(outcomes)
    return Report(
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
                ask=experiment.ask,
                samples=experiment.samples,
                seeds=experiment.seeds,
                decoys=experiment.decoys,
                generate=experiment.generate,
                groups=tuple(
                    report.group_result(group, keys, outcomes, loaded.factory)
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
    for length in experiment.lengths:
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
    for length in experiment.lengths:
        contenders = tuple(dict.fromkeys(key.contender for key in keys if key.length == length))
        if experiment.task == "speed":
            runs = tuple((0, run) for run in range(experiment.samples))
            yield from (Unit(number, length, runs, (contender,)) for contender in contenders)
            continue
        seeds = experiment.seeds or preset.seeds
        samples = [(seed, sample) for seed in seeds for sample in range(experiment.samples)]
        # Conversations are read one at a time, because their turns differ in length.
        batch = 1 if experiment.task == "chat" else preset.batch
        for k in range(0, len(samples), batch):
            yield Unit(number, length, tuple(samples[k : k + batch]), contenders)


def work(
    loaded: LoadedModel, experiment: Experiment, unit: Unit, advance: BarAdvance
) -> Outcomes:
    """Do the work of one unit."""
    common = (loaded.model, loaded.factory, loaded.tokens)
    if experiment.task == "speed":
        advance(unit.length)
        return [measure_speed(loaded, experiment, unit)]
    if experiment.task == "chat":
        conversations = [
            make_conversation(loaded.tokens, unit.length, experiment.decoys + 1, seed, number)
            for seed, number in unit.samples
        ]
        return reading.run_prompts(
            *common, conversations, unit.contenders, experiment.ways, advance
        )
    samples = [
        make_sample(loaded.tokens, experiment.shape(unit.length, number), seed, number)
        for seed, number in unit.samples
    ]
    if experiment.task == "prompts":
        return reading.run_prompts(*common, samples, unit.contenders, experiment.ways, advance)
    return reading.run_text(
        *common, samples, unit.contenders, in_turns=experiment.ask == "turns", advance=advance
    )


def measure_speed(loaded: LoadedModel, experiment: Experiment, unit: Unit) -> list[Outcome]:
    """Generate with mlx_lm's own loop; returns each run's tokens per second and peak bytes."""
    ids = loaded.tokens.first + loaded.tokens.window(0, unit.length)
    prompt = mx.array(ids[: unit.length])
    outcomes = []
    for tokens in (WARM_UP, *[experiment.generate] * len(unit.samples)):
        mx.clear_cache()
        mx.reset_peak_memory()
        caches = loaded.factory.caches(unit.contenders[0])
        rate = 1e6 / bench.Generation(loaded.model, prompt, caches)(tokens)
        values = zip(SPEED, (rate, float(mx.get_peak_memory())), strict=True)
        outcomes.append(Outcome(dict(values)))
    return outcomes[1:]
