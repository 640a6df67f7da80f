"""Draws the README's chart, and writes the sample in the memory plan, from `h2o-pack plan`.

`python -m docs.docgen.plan_pictures` writes docs/images/memory-light.svg and memory-dark.svg,
an app's memory while a conversation grows, and the block between the marks in
docs/memory-plan.md. No network is needed: the catalogue has the model's shapes for `plan`.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from click.testing import CliRunner
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from docs.docgen.markdown import fence, replaced
from h2o_pack.cli import main as h2o_pack

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCS = Path(__file__).resolve().parents[1]
IMAGES, PAGE = DOCS / "images", DOCS / "memory-plan.md"
MARK = "plan"
MODEL, DEVICE, MAX_KV = "Qwen3-4B-4bit", "iPhone 15 Pro", 512
CONTEXTS = (1024, 4096, 8192, 16384, 24576, 32768)
FULL = ("16", "8", "4")
"""Storages of the caches that keep every token, from the largest."""
GB = 1e9
SAMPLE = f"h2o-pack plan --model {MODEL} --max-kv {MAX_KV} --device '{DEVICE}'"
WIDTH = 72  # columns


@dataclass(frozen=True)
class Palette:
    """Colors of one theme."""

    text: str
    grid: str
    bounded: str
    unbounded: str
    limit: str


PALETTES = {
    "light": Palette("#1f2328", "#d1d9e0", "#1a7f37", "#656d76", "#cf222e"),
    "dark": Palette("#f0f6fc", "#3d444d", "#3fb950", "#9198a1", "#f85149"),
}


@dataclass(frozen=True)
class Memory:
    """Bytes of the app at each of CONTEXTS, with a bound and without, and iOS's limit.

    full: of each storage in FULL. flash: bytes of files with a bound, at the last of CONTEXTS.
    """

    bounded: tuple[int, ...]
    flash: int
    full: tuple[tuple[int, ...], ...]
    limit: int

    @property
    def crossing(self) -> float:
        """The tokens at which a full cache in 16 bits reaches the limit."""
        points = list(zip(CONTEXTS, self.full[0], strict=True))
        for (start, low), (end, high) in pairwise(points):
            if low <= self.limit <= high:
                return start + (end - start) * (self.limit - low) / (high - low)
        raise ValueError(f"the full cache does not reach the limit of the {DEVICE}")


def planned() -> Memory:
    """Run `h2o-pack plan` for each of CONTEXTS, with --max-kv and without."""
    bounded = [plan(context, "--max-kv", str(MAX_KV)) for context in CONTEXTS]
    return Memory(
        bounded=tuple(size for size, _, _ in bounded),
        flash=bounded[-1][1],
        full=tuple(tuple(plan(context, "--kv", kv)[0] for context in CONTEXTS) for kv in FULL),
        limit=bounded[0][2],
    )


def plan(context: int, *options: str) -> tuple[int, int, int]:
    """Return the bytes of memory and of files that the app needs, and its limit of memory."""
    arguments = ["plan", "--model", MODEL, "--device", DEVICE, "--context", str(context)]
    printed = CliRunner().invoke(
        h2o_pack, [*arguments, *options, "--json"], catch_exceptions=False
    )
    model = json.loads(printed.stdout)["models"][0]
    device, recall = model["devices"][0], model["recall"] or {}
    return device["needed"], recall.get("archive_bytes", 0), device["entitled"]["limit"]


def draw(memory: Memory, palette: Palette, path: Path) -> None:
    """Draw the chart as SVG; the same bytes each time."""
    with mpl.rc_context():
        mpl.rc("svg", fonttype="none", hashsalt="h2o-pack")
        mpl.rc("font", size=13)
        mpl.rc("text", color=palette.text)
        mpl.rc("xtick", color=palette.text)
        mpl.rc("ytick", color=palette.text)
        figure = Figure(figsize=(8.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        lines(axes, memory, palette)
        frame(axes, palette)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def lines(axes: Axes, memory: Memory, palette: Palette) -> None:
    """Draw the lines of both caches and of the limit, with their names."""
    end, limit, crossing = CONTEXTS[-1], memory.limit / GB, memory.crossing
    bounded = [total / GB for total in memory.bounded]
    axes.axhline(limit, color=palette.limit, linewidth=1.5, linestyle=(0, (5, 3)))
    for kv, totals in zip(FULL, memory.full, strict=True):
        sizes = [total / GB for total in totals]
        axes.plot(CONTEXTS, sizes, color=palette.unbounded, linewidth=2)
        axes.text(end + 300, sizes[-1], f"{kv} bits", color=palette.unbounded, va="center")
    axes.plot(CONTEXTS, bounded, color=palette.bounded, linewidth=4)
    axes.plot([crossing], [limit], "o", color=palette.limit, markersize=9)
    axes.text(CONTEXTS[0], limit + 0.15, f"limit of an app on an {DEVICE}", color=palette.limit)
    axes.text(
        crossing + 500, limit - 0.25, "iOS ends the app", color=palette.limit,
        fontweight="bold", va="top",
    )  # fmt: skip
    axes.text(
        10_500, 4.95, "every token kept", color=palette.unbounded, ha="right", va="bottom"
    )
    axes.text(
        end, bounded[-1] - 0.3,
        f"--max-kv {MAX_KV}: {bounded[-1]:.1f} GB, and {memory.flash / GB:.1f} GB on flash",
        color=palette.bounded, fontweight="bold", ha="right", va="top",
    )  # fmt: skip


def frame(axes: Axes, palette: Palette) -> None:
    """Draw axes that start at zero and a light grid."""
    axes.set_title(f"Memory of an app with {MODEL}, computed by h2o-pack plan", loc="left")
    axes.set_xlim(0, CONTEXTS[-1] + 3500)
    axes.set_ylim(0, 8.6)
    axes.set_xticks([0, 8192, 16384, 24576, 32768])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1024:.0f}k" if x else "0"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.0f} GB"))
    axes.set_xlabel("tokens of conversation", color=palette.text)
    axes.grid(color=palette.grid, linewidth=0.8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def sample() -> str:
    """Run SAMPLE, and return the command and its output as Markdown."""
    arguments = shlex.split(SAMPLE)[1:]
    printed = CliRunner(env={"COLUMNS": str(WIDTH)}).invoke(
        h2o_pack, arguments, catch_exceptions=False
    )
    lines = [line.rstrip() for line in printed.stdout.splitlines()]
    return fence("\n".join([f"$ {SAMPLE}", *lines]))


def main() -> None:
    """Write the chart for both themes, and the sample."""
    memory = planned()
    for theme, palette in PALETTES.items():
        draw(memory, palette, IMAGES / f"memory-{theme}.svg")
    text = replaced(PAGE.read_text("utf-8"), MARK, sample())
    PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
