"""`python -m h2o_py budgets`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_py.profiling.budget_rule import (
    PUBLISHED,
    LayerShare,
    Measure,
    budgets,
    layer_shares,
    to_json,
)
from h2o_py.profiling.command import say
from h2o_py.profiling.options import Options

if TYPE_CHECKING:
    from rich.console import Console

    from h2o_py.budgets import Budgets

MEASURES = ("concentration", "entropy")


@dataclass(frozen=True)
class Made:
    """Budgets that were made, and from what."""

    model: str
    measure: Measure
    max_kv: int
    sink_size: int
    shares: tuple[LayerShare, ...]
    budgets: Budgets
    written: Path | None

    def document(self) -> dict[str, Any]:
        """What --json prints (schema: bridge/h2o_pack/schemas/budgets.json)."""
        by_index = {each.index: each for each in self.shares}
        return {
            "format": 1,
            "model": self.model,
            "measure": self.measure,
            "max_kv": self.max_kv,
            "sink_size": self.sink_size,
            "output": None if self.written is None else str(self.written),
            "note": PUBLISHED,
            "layers": [
                None
                if budget is None
                else {"ratio": by_index[i].ratio, "share": by_index[i].share, **vars(budget)}
                for i, budget in enumerate(self.budgets.layers)
            ],
        }


def make(
    *,
    profile: Path | None,
    options: Options,
    max_kv: int,
    sink_size: int,
    measure: Measure,
    output: Path | None,
    progress: Callable[[str], None],
) -> Made:
    """Make budgets of a profile's file, or of a model profiled now as `options` say.

    Raises:
        ValueError: the profile is none, the model is unfit or max_kv too small.
        OSError: a file cannot be read or written.

    """
    from h2o_py.profiling import read  # noqa: PLC0415  after --help has been served

    if profile is not None:
        found = read.read_measures(profile)
    else:
        from h2o_py.profiling.run import run  # noqa: PLC0415

        found = read.measures(run(options, progress)[0])
    if found.unfit is not None:
        raise ValueError(
            f"{found.model} cannot use H2O caches: {found.unfit}. Choose another model."
        )
    shares = layer_shares(found.layers, measure, max_kv, sink_size)
    made = budgets(shares, len(found.layers))
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(to_json(made), encoding="utf-8")
    return Made(found.model, measure, max_kv, sink_size, shares, made, output)


def print_budgets(made: Made, console: Console) -> None:
    """Show the table and what was published of such budgets."""
    from h2o_py.bench.section import Section  # noqa: PLC0415  after --help has been served
    from h2o_py.bench.tables import print_section  # noqa: PLC0415

    document = made.document()
    rows = []
    for i, layer in enumerate(document["layers"]):
        if layer is None:
            rows.append((str(i), "", "", "the model's own cache", ""))
            continue
        rows.append(
            (
                str(i),
                f"{layer['ratio']:.3f}",
                f"{layer['share']:.2f}",
                str(layer["heavy_budget"]),
                str(layer["recent_budget"]),
            )
        )
    title = f"{made.model}: {made.max_kv} rows, {made.sink_size} of them sinks"
    header = ("layer", f"{made.measure} / mean", "share", "heavy", "recent")
    print_section(Section(title, header, tuple(rows), PUBLISHED), console)
    if made.written is not None:
        console.print(f"written to {made.written}", markup=False)


def main(arguments: Sequence[str]) -> int:
    """Make budgets and print them; returns the exit status (2: wrong usage)."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        options = Options(
            model=given.model or Options.model,
            text=given.text,
            tokens=given.tokens,
            samples=given.samples,
            time_steps=False,
        )
        made = make(
            profile=given.profile, options=options, max_kv=given.max_kv,
            sink_size=given.sink_size, measure=given.measure, output=given.output,
            progress=say,
        )  # fmt: skip
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if given.json:
        sys.stdout.write(json.dumps(made.document(), indent=2) + "\n")
        return 0
    from rich.console import Console  # noqa: PLC0415  after --help has been served

    print_budgets(made, Console(highlight=False, soft_wrap=True))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m h2o_py budgets",
        description=f"Heavy and recent budgets for each layer, from a profile. {PUBLISHED}",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", type=Path, help="profile.json of `profile --output`.")
    source.add_argument("--model", help="Profile this model now: as mlx_lm loads it, or demo.")
    parser.add_argument("--max-kv", type=int, required=True, help="Rows of each cache.")
    parser.add_argument("--sink-size", type=int, default=4, help="First tokens that stay.")
    parser.add_argument("--measure", choices=MEASURES, default=MEASURES[0], help="See docs.")
    parser.add_argument("--output", type=Path, default=Path("budgets.json"), help="To write.")
    parser.add_argument("--text", type=Path, help="With --model: UTF-8 file to read.")
    parser.add_argument("--tokens", type=int, default=1024, help="With --model: of a sample.")
    parser.add_argument("--samples", type=int, default=4, help="With --model: how many.")
    parser.add_argument("--json", action="store_true", help="Print them as JSON too.")
    return parser
