"""One call for the command: run a preset on its models, and write what is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from h2o_pack.choice.losses import NAME
from h2o_pack.files.text import json_by_lines, usage_error, writing
from h2o_pack.measure.evaluation import report as compare
from h2o_pack.measure.evaluation import show
from h2o_pack.measure.evaluation.loaded import (
    LayerBudgetsSource,
    LoadedModel,
    load_for_evaluation,
)
from h2o_pack.measure.evaluation.preset import Preset
from h2o_pack.measure.evaluation.report import Evaluation, Report, losses, make_report
from h2o_pack.measure.evaluation.run import Share, run
from h2o_pack.measure.pictures import require_matplotlib
from h2o_pack.progress import ProgressReporter
from h2o_pack.results import to_json

RESULTS = "results.json"
CELL_DEPTH = 6
"""Containers around a cell: report, experiments, experiment, groups, group, cells."""
PAGE = "README.md"


@dataclass(frozen=True)
class Options:
    """A run.

    Args:
        preset: what to run, a user's changes included.
        text: a user's text instead of the preset's.
        by_layer: where budgets by layer come from.
        output: folder for results.json, README.md and the pictures; one below it for each
            model where there are several.
        pictures: whether to draw.
        earlier: the results.json of an earlier run, to compare with.

    """

    preset: Preset
    text: Path | None = None
    by_layer: LayerBudgetsSource = field(default_factory=LayerBudgetsSource)
    output: Path | None = None
    pictures: bool = True
    earlier: Path | None = None


def evaluate(
    options: Options, share: Share, say: ProgressReporter
) -> tuple[Evaluation, list[str]]:
    """Run, and write what is asked for. Only the leading process writes.

    Returns:
        The results, and how they differ from the earlier ones.

    Raises:
        UserError: a model, text, budget or file cannot be used, or matplotlib is missing.
        H2OError: h2o_py refuses a budget or a model.

    """
    preset = options.preset
    if options.output is not None and options.pictures:
        require_matplotlib()
    if options.earlier is not None and len(preset.models) > 1:
        raise usage_error(
            "--compare takes the report of one model", "Choose the model with --model."
        )
    earlier = None if options.earlier is None else compare.read(options.earlier)
    reports = []
    for name in preset.models:
        say(f"loading {name}")
        loaded = load_for_evaluation(
            name,
            text=preset.text,
            file=options.text,
            by_layer=options.by_layer,
            float32=preset.float32,
        )
        report = measure(loaded, preset, share, say)
        reports.append(report)
        if options.output is not None and share.leads:
            several = len(preset.models) > 1
            folder = options.output / loaded.name if several else options.output
            with writing(options.output):
                write(report, folder, pictures=options.pictures)
    unlike = [] if earlier is None else compare.differences(earlier, reports[0])
    return Evaluation(reports=tuple(reports)), unlike


def measure(loaded: LoadedModel, preset: Preset, share: Share, say: ProgressReporter) -> Report:
    """Run a preset on a model that is loaded."""
    return make_report(loaded, preset, *run(loaded, preset, share, say))


def write(report: Report, folder: Path, *, pictures: bool = True) -> None:
    """Write results.json, losses.json where there are any, the page and the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json_by_lines(msgspec.to_builtins(report), CELL_DEPTH)
    (folder / RESULTS).write_text(text, encoding="utf-8")
    table = losses(report)
    if table is not None:
        (folder / NAME).write_text(to_json(table) + "\n", encoding="utf-8")
    drawn = show.save(report, folder) if pictures else []
    (folder / PAGE).write_text(show.render(report, drawn), encoding="utf-8")
