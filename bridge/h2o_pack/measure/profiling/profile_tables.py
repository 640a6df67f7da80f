"""Shows a profile as tables, and writes it as JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console

from h2o_pack.files.text import json_by_lines, writing
from h2o_pack.measure.profiling.attention import AN_OCTAVE, SINKS
from h2o_pack.measure.profiling.options import Options
from h2o_pack.measure.profiling.profile_report import LayerProfile, Profile
from h2o_pack.measure.profiling.profiler import load_and_profile
from h2o_pack.measure.profiling.rules import RETRIEVING, recalling_layers
from h2o_pack.measure.tables import Table, print_table
from h2o_pack.printing import caption
from h2o_pack.progress import ProgressReporter

JSON = "profile.json"
LAYER_DEPTH = 3
"""Depth of nesting, in profile.json, at which each value gets a line: a layer's figures."""
_MOST_SHOWN = 7


def sections(profile: Profile) -> list[Table]:
    """Return all tables of a profile."""
    tables = [_attention(profile), _reach(profile)]
    if profile.full:
        tables.append(_recall(profile))
    if profile.skipped:
        rows = tuple((str(layer.index), layer.cache, layer.reason) for layer in profile.skipped)
        tables.append(Table("Layers without a profile", ("layer", "cache", "why"), rows))
    return tables


def print_profile(profile: Profile, console: Console) -> None:
    """Show every table at a terminal."""
    for table in sections(profile):
        print_table(table, console)
    caption(headline(profile), console, "")
    caption(str(profile.machine), console, "")


def headline(profile: Profile) -> str:
    """Return one sentence that names the model and the text it read."""
    pieces = f"{profile.samples} samples" if profile.samples > 1 else "1 sample"
    return (
        f"{profile.model} ({profile.family}), {pieces} of {profile.tokens} tokens of "
        f"{profile.text}"
    )


def layer_name(layer: LayerProfile) -> str:
    """Return the layer's index, with its kind and window if its attention is not full."""
    if layer.kind == "full":
        return str(layer.index)
    return f"{layer.index} ({layer.kind}{f' {layer.window}' if layer.window else ''})"


def _attention(profile: Profile) -> Table:
    rows = []
    for layer in profile.layers:
        f, d = layer.figures, layer.deviations
        rows.append(
            (
                layer_name(layer),
                f"{f.entropy:.2f} ± {d.entropy:.2f}",
                f"{f.normalized_entropy:.2f}",
                f"{f.concentration:.2f} ± {d.concentration:.2f}",
                f"{f.score_variance:.2f}",
                f"{f.sparsity:.0%}",
            )
        )
    header = ("layer", "entropy, nats", "of most", "top 32 hold", "score variance", "sparse")
    note = (
        f"Means over heads, samples (± standard deviation between them) and the queries from "
        f"position {profile.first_row} on. Of most: entropy divided by its largest possible "
        "value, ln of the number of tokens seen. Sparse: share of tokens that get less than 1% "
        "of the query's largest probability."
    )
    if any(layer.kind == "sliding" for layer in profile.layers):
        note += " A sliding layer's figures are about the tokens of its window."
    return Table("Attention by layer", header, tuple(rows), note)


def _reach(profile: Profile) -> Table:
    sizes = profile.windows
    columns = range(len(sizes) - 1, -1, -AN_OCTAVE)[_MOST_SHOWN::-1]
    rows = [
        (layer_name(layer), *(f"{layer.beyond[i]:.1%}" for i in columns))
        for layer in profile.layers
    ]
    note = (
        f"The share of attention on tokens of that age, without the first {SINKS} tokens. A "
        "cache of the newer tokens alone would lose this share. --budgets gives more rows to "
        "the layers whose share is large."
    )
    header = ("layer", *(f"older than {sizes[i]:,}" for i in columns))
    return Table("How far back attention looks", header, tuple(rows), note)


def _recall(profile: Profile) -> Table:
    recalling = recalling_layers(profile)
    rows = tuple(
        (
            str(layer.index),
            f"{layer.retrieval:.2f}",
            "recall" if layer.index in recalling else "",
        )
        for layer in profile.full
    )
    note = (
        "A passage of each sample is repeated at the sample's end. Retrieval is how strongly a "
        "layer then attends to the passage's first occurrence. --budgets with --recall selects "
        f"the layers with at least {RETRIEVING:.0%} of the largest figure."
    )
    return Table("Layers that find a repeated passage", ("layer", "retrieval", ""), rows, note)


def profile_and_write(folder: Path | None, options: Options, say: ProgressReporter) -> Profile:
    """Profile a model, and write profile.json if a folder is given.

    Raises UserError: the model or text cannot be used, or the folder cannot be written.
    """
    if folder is not None:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
    profile = load_and_profile(options, say)
    if folder is not None:
        with writing(folder):
            write(profile, folder)
    return profile


def write(profile: Profile, folder: Path) -> None:
    """Write profile.json into a folder, created if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json_by_lines(msgspec.to_builtins(profile), LAYER_DEPTH)
    (folder / JSON).write_text(text, "utf-8")
