"""One call for the commands: run a preset on its models, and write what is asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from h2o_pack.measure.evaluation import page, report
from h2o_pack.measure.evaluation.loaded import ByLayer, Loaded, load_for_evaluation
from h2o_pack.measure.evaluation.preset import Preset
from h2o_pack.measure.evaluation.run import Progress, run
from h2o_pack.measure.evaluation.share import Share

RESULTS = "results.json"
PAGE = "README.md"


@dataclass(frozen=True)
class Options:
    """A run.

    Args:
        preset: what to run, a user's wishes in it.
        text: a user's text instead of the preset's.
        by_layer: where budgets by layer come from.
        output: folder for results.json, README.md and the pictures; one below it for each
            model where there are several.
        pictures: whether to draw.

    """

    preset: Preset
    text: Path | None = None
    by_layer: ByLayer = field(default_factory=ByLayer)
    output: Path | None = None
    pictures: bool = True


def evaluate(options: Options, share: Share, progress: Progress) -> list[dict[str, Any]]:
    """Run; returns a document for each model. Only the leading process writes.

    Raises:
        ValueError: a model, text or budget cannot be used, or matplotlib is missing.
        OSError: a folder cannot be written.

    """
    preset = options.preset
    if options.output is not None and options.pictures:
        from h2o_pack.measure.bench.plot import require  # noqa: PLC0415  only where it draws

        require()
    found = []
    for name in preset.models:
        progress(f"loading {name}")
        loaded = load_for_evaluation(
            name, text=preset.text, file=options.text, by_layer=options.by_layer
        )
        document = measure(loaded, preset, share, progress)
        found.append(document)
        if options.output is not None and share.leads:
            several = len(preset.models) > 1
            folder = options.output / loaded.name if several else options.output
            write(document, folder, pictures=options.pictures)
    return found


def measure(loaded: Loaded, preset: Preset, share: Share, progress: Progress) -> dict[str, Any]:
    """Run a preset on a model that is loaded; returns the document."""
    return report.document(loaded, preset, *run(loaded, preset, share, progress))


def write(document: dict[str, Any], folder: Path, *, pictures: bool = True) -> None:
    """Write results.json, the page and the pictures of a document into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
    drawn = []
    if pictures:
        from h2o_pack.measure.evaluation import plots  # noqa: PLC0415  only where it draws

        drawn = plots.save(document, folder)
    (folder / PAGE).write_text(page.render(document, drawn), encoding="utf-8")
