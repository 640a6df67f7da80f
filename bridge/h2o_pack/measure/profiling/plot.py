"""A profile as pictures; needs matplotlib."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from h2o_pack.measure.pictures import new_figure
from h2o_pack.measure.profiling.profile_tables import headline
from h2o_pack.measure.profiling.report import PARTS, LayerProfile, Profile
from h2o_pack.measure.profiling.run import AttentionMap

PICTURES = ("layers.png", "reach.png", "accumulated.png", "maps.png", "step.png")
_DPI = 120
_FAINTEST = 1e-4
_NAMED = 8
_COLORS = {
    "write": "tab:blue",
    "attention": "tab:orange",
    "ledger": "tab:green",
    "rest": "lightgray",
}
_PANELS = {
    "normalised_entropy": "entropy / ln(tokens seen)",
    "concentration": "probability in the 32 largest",
    "score_variance": "variance of a row's scores",
    "sparsity": "entries under 1% of their row's largest",
}


def save(profile: Profile, maps: Sequence[AttentionMap], folder: Path) -> list[Path]:
    """Write the pictures that there are figures for into a folder; returns their paths."""
    made = []
    if profile.layers:
        made += [
            _layers(profile, folder),
            _reach(profile, folder),
            _accumulated(profile, folder),
        ]
    if maps:
        made.append(_maps(profile, maps, folder))
    if profile.step is not None:
        made.append(_step(profile, folder))
    return made


def _layers(profile: Profile, folder: Path) -> Path:
    """Draw each figure by layer: heads as dots, the layers' means as bars."""
    figure = new_figure(12, 6.4)
    places = [layer.index for layer in profile.layers]
    for axes, (name, title) in zip(figure.subplots(2, 2).flat, _PANELS.items(), strict=True):
        for layer in profile.layers:
            values = [getattr(head.figures, name) for head in layer.heads]
            color = "tab:blue" if layer.kind == "full" else "tab:orange"
            axes.plot([layer.index] * len(values), values, ".", color=color, alpha=0.5)
        means = [getattr(layer.figures, name) for layer in profile.layers]
        axes.plot(places, means, "-_", color="black", linewidth=1, markersize=14)
        if name == "score_variance":
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.03)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("layer")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    note = "; orange: sliding" if any(la.kind != "full" for la in profile.layers) else ""
    figure.suptitle(f"{headline(profile)}\ndots: heads, bars: the layer's mean{note}")
    return _save(figure, folder / "layers.png")


def _reach(profile: Profile, folder: Path) -> Path:
    """Draw what a window would lose, one line per layer, on log scales."""
    figure = new_figure(8.5, 5)
    axes = figure.subplots()
    at = profile.windows
    for layer, color, named in _colored(profile):
        lost = np.maximum(layer.beyond, _FAINTEST)
        style = "-" if layer.kind == "full" else ":"
        axes.plot(at, lost, style, color=color, label=named)
    axes.set(yscale="log", xlabel="window, tokens")
    axes.set_xscale("log", base=2)
    axes.set_ylabel("attention older than the window")
    axes.set_ylim(_FAINTEST, 1)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3, which="both")
    figure.suptitle(headline(profile))
    return _save(figure, folder / "reach.png")


def _colored(profile: Profile) -> Iterator[tuple[LayerProfile, Any, str | None]]:
    """Yield each layer with its color, and its name where there is room in a legend."""
    colors = importlib.import_module("matplotlib").colormaps["viridis"]
    count = len(profile.layers)
    for i, layer in enumerate(profile.layers):
        named = f"layer {layer.index}" if count <= _NAMED or i in (0, count - 1) else None
        yield layer, colors(i / max(1, count - 1) * 0.92), named


def _accumulated(profile: Profile, folder: Path) -> Path:
    """Draw attention by rank on log scales, and the top shares beside even attention's."""
    figure = new_figure(13, 5.2)
    curves, shares = figure.subplots(1, 2, width_ratios=(1.2, 1))
    at = profile.ranks
    for layer, color, named in _colored(profile):
        curves.plot(at, layer.accumulated.curve, color=color, label=named)
    even = profile.layers[-1].accumulated_evenly
    curves.plot(at, even.curve, "k--", linewidth=1, label="even attention")
    curves.set(xscale="log", yscale="log", xlabel="tokens, from the one that got most")
    curves.set_ylim(bottom=1e-3)
    curves.set_ylabel("accumulated attention / mean")
    curves.legend(fontsize=8)
    curves.grid(alpha=0.3, which="both")
    for i, (share, color) in enumerate(
        zip(("5%", "10%", "20%"), ("tab:red", "tab:blue", "tab:green"), strict=True)
    ):
        places = [layer.index for layer in profile.layers]
        held = [layer.accumulated.top[i] for layer in profile.layers]
        shares.plot(places, held, "o-", color=color, label=f"top {share} of tokens")
        alike = [layer.accumulated_evenly.top[i] for layer in profile.layers]
        shares.plot(places, alike, "--", color=color, alpha=0.6)
    shares.set(ylim=(0, 1.02), xlabel="layer", ylabel="share of the accumulated attention")
    shares.xaxis.get_major_locator().set_params(integer=True)
    shares.legend(fontsize=8, title="dashed: even attention", title_fontsize=8)
    shares.grid(alpha=0.3)
    figure.suptitle(headline(profile))
    return _save(figure, folder / "accumulated.png")


def _maps(profile: Profile, maps: Sequence[AttentionMap], folder: Path) -> Path:
    """Draw each map on a log scale, two heads per layer."""
    colors = importlib.import_module("matplotlib.colors")
    columns = -(-len(maps) // 2)
    figure = new_figure(3.4 * columns + 0.8, 7.4)
    grid = figure.subplots(2, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_visible(False)
    of_layer: dict[int, int] = {}
    for found in maps:
        column = list(dict.fromkeys(each.layer for each in maps)).index(found.layer)
        line = of_layer.setdefault(found.layer, 0)
        of_layer[found.layer] += 1
        axes = grid[line][column]
        axes.set_visible(True)
        image = axes.imshow(
            found.cells.clip(min=_FAINTEST),
            norm=colors.LogNorm(_FAINTEST, 1),
            cmap="magma",
            extent=(0, profile.tokens, profile.tokens, 0),
            interpolation="nearest",
        )
        axes.set_title(
            f"layer {found.layer}, head {found.head}\n{found.entropy:.2f} nats", fontsize=9
        )
        axes.set_xlabel("token", fontsize=8)
        axes.set_ylabel("query", fontsize=8)
        axes.tick_params(labelsize=7)
    bar = figure.colorbar(image, ax=grid, shrink=0.7)
    bar.set_label("largest probability of a cell (log)")
    figure.suptitle(
        f"{profile.model}: the heads of least (above) and most (below) entropy, first sample"
    )
    return _save(figure, folder / "maps.png")


def _step(profile: Profile, folder: Path) -> Path:
    """Draw the parts of a step on one bar, the rest by itself, and the caches' parts larger."""
    step = profile.step
    assert step is not None  # noqa: S101  asked for where there is one
    figure = new_figure(12, 2.9)
    whole, core = figure.subplots(1, 2, width_ratios=(1.6, 1))
    left = 0.0
    for part, color in _COLORS.items():
        width = step.parts[part].median
        whole.barh("step", width, left=left, color=color)
        left += width
    whole.barh("rest, by itself", step.rest_apart.median, color=_COLORS["rest"])
    whole.set_xlabel("microseconds per token")
    whole.set_title(f"{step.evicting} layers with {step.rows} rows, evicting", fontsize=10)
    for part in PARTS[:-1]:
        timing = step.parts[part]
        low, high = timing.first_quartile, timing.third_quartile
        spread = [[max(0, timing.median - low)], [max(0, high - timing.median)]]
        label = f"{part}, {timing.share:.1%}"
        core.barh(label, timing.median, xerr=spread, color=_COLORS[part])
    core.set_xlabel("microseconds per token, quartiles")
    core.set_title("what the caches do of it", fontsize=10)
    for axes in (whole, core):
        axes.invert_yaxis()
    figure.suptitle(profile.model)
    return _save(figure, folder / "step.png")


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    return path
