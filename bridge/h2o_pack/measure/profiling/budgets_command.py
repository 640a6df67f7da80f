"""`python -m h2o_py budgets`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from h2o_pack.measure.bench.command import say
from h2o_pack.measure.profiling import row_rule
from h2o_pack.measure.profiling.budget_rule import (
    PUBLISHED,
    LayerShare,
    Measure,
    budgets,
    layer_shares,
    to_json,
)
from h2o_pack.measure.profiling.options import Options
from h2o_pack.measure.profiling.row_rule import LayerRows
from h2o_py.config import POLICIES

if TYPE_CHECKING:
    from rich.console import Console

    from h2o_pack.measure.profiling.read import Measures
    from h2o_py.budgets import Budgets

REACH = "reach"
MEASURES = ("concentration", "entropy", REACH)
OF_REACH = (
    "Rows go to the layers that look far back. lost: the share of attention that is older "
    "than a window of the layer's rows; what H2O keeps of it is not counted."
)


@dataclass(frozen=True)
class Made:
    """Budgets that were made, and from what."""

    model: str
    measure: str
    max_kv: int
    sink_size: int
    shares: tuple[LayerShare, ...] | tuple[LayerRows, ...]
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
            "note": self.note,
            "layers": [
                None if budget is None else {**_why(by_index[i]), **budget.to_dict()}
                for i, budget in enumerate(self.budgets.layers)
            ],
        }

    @property
    def note(self) -> str:
        """What is known of such budgets."""
        return OF_REACH if self.measure == REACH else PUBLISHED


def _why(found: LayerShare | LayerRows) -> dict[str, float]:
    if isinstance(found, LayerShare):
        return {"ratio": found.ratio, "share": found.share}
    return {"lost": found.lost}


def make(
    *,
    profile: Path | None,
    options: Options,
    max_kv: int,
    sink_size: int,
    measure: str,
    policy: str,
    output: Path | None,
    progress: Callable[[str], None],
) -> Made:
    """Make budgets of a profile's file, or of a model profiled now as `options` say.

    Raises:
        ValueError: the profile is none, the model is unfit or max_kv too small.
        OSError: a file cannot be read or written.

    """
    from h2o_pack.measure.profiling import read  # noqa: PLC0415  after --help has been served

    if profile is not None:
        found = read.read_measures(profile)
    else:
        from h2o_pack.measure.profiling.run import run  # noqa: PLC0415

        found = read.measures(run(options, progress)[0])
    if found.unfit is not None:
        raise ValueError(
            f"{found.model} cannot use H2O caches: {found.unfit}. Choose another model."
        )
    shares, made = _by_rule(found, measure, max_kv, sink_size, policy)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(to_json(made), encoding="utf-8")
    return Made(found.model, measure, max_kv, sink_size, shares, made, output)


def _by_rule(
    found: Measures, measure: str, max_kv: int, sink_size: int, policy: str
) -> tuple[tuple[LayerShare, ...] | tuple[LayerRows, ...], Budgets]:
    caches = len(found.layers)
    if measure != REACH:
        shares = layer_shares(found.layers, cast("Measure", measure), max_kv, sink_size)
        return shares, budgets(shares, caches)
    rows = row_rule.layer_rows(found.reaches, max_kv, sink_size, policy)
    return rows, row_rule.budgets(rows, caches)


def print_budgets(made: Made, console: Console) -> None:
    """Show the table and what was published of such budgets."""
    from h2o_pack.measure.bench.section import Section  # noqa: PLC0415  after --help has been served
    from h2o_pack.measure.bench.tables import print_section  # noqa: PLC0415

    document = made.document()
    reach = made.measure == REACH
    rows = []
    for i, layer in enumerate(document["layers"]):
        if layer is None:
            rows.append((str(i), "", "", "the model's own cache", ""))
            continue
        why = (
            (str(layer["max_size"]), f"{layer['lost']:.2%}")
            if reach
            else (f"{layer['ratio']:.3f}", f"{layer['share']:.2f}")
        )
        budget = (str(layer["heavy_budget"]), str(layer["recent_budget"]))
        rows.append((str(i), *why, *budget))
    average = " a layer on average" if reach else ""
    title = f"{made.model}: {made.max_kv} rows{average}, {made.sink_size} of them sinks"
    why = ("rows", "lost") if reach else (f"{made.measure} / mean", "share")
    header = ("layer", *why, "heavy", "recent")
    print_section(Section(title, header, tuple(rows), made.note), console)
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
            sink_size=given.sink_size, measure=given.measure, policy=given.policy,
            output=given.output, progress=say,
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
        description="Budgets for each layer, from a profile.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", type=Path, help="profile.json of `profile --output`.")
    source.add_argument("--model", help="Profile this model now: as mlx_lm loads it, or demo.")
    parser.add_argument("--max-kv", type=int, required=True, help="Rows of each cache.")
    parser.add_argument("--sink-size", type=int, default=4, help="First tokens that stay.")
    parser.add_argument("--measure", choices=MEASURES, default=MEASURES[0], help="See docs.")
    parser.add_argument("--policy", choices=tuple(POLICIES), default="standard", help="Split.")
    parser.add_argument("--output", type=Path, default=Path("budgets.json"), help="To write.")
    parser.add_argument("--text", type=Path, help="With --model: UTF-8 file to read.")
    parser.add_argument("--tokens", type=int, default=1024, help="With --model: of a sample.")
    parser.add_argument("--samples", type=int, default=4, help="With --model: how many.")
    parser.add_argument("--json", action="store_true", help="Print them as JSON too.")
    return parser
