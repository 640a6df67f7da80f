"""What recall costs, as tables of text."""

from __future__ import annotations

from h2o_pack.measure.bench.archive_writing import Writing
from h2o_pack.measure.bench.recall import CHUNK, Cost, RecallCost
from h2o_pack.measure.tables import Table
from h2o_pack.measure.timing import Timing


def recall_tables(recall: RecallCost, writing: tuple[Writing, ...]) -> tuple[Table, ...]:
    """Return a table of chunks and steps, and one of steps that write."""
    return _costs(recall), _writing(recall, writing)


def _costs(recall: RecallCost) -> Table:
    rows = [
        (f"{CHUNK} tokens, {each.archived:,} archived", *_cells(each), f"{each.came:,}")
        for each in recall.chunks
    ]
    rows += [
        (f"1 token that asks, {each.archived:,} archived", *_cells(each), f"{each.came:,}")
        for each in recall.asking
    ]
    rows.append(("1 token between recalls", *_cells(recall.step), "-"))
    header = (
        "what",
        "without",
        "with recall",
        "rest of layer",
        "whole layer",
        "rows that came",
    )
    return Table(
        f"Recall in one layer, {recall.dtype}, milliseconds of CPU time",
        header,
        tuple(rows),
        "Write, attention and ledger without and with recall: an archive of 4 bits in memory, "
        "32 tokens ask, a quarter of the rows may come back. Rest: the layer's projections and "
        "feed-forward, 4-bit weights and float32 activations, MLX's fastest on a CPU. "
        "Whole layer: with recall over without, the median of each repetition's ratio. A "
        "token's share of packing 64 tokens is part of its time.",
    )


def _cells(cost: Cost) -> tuple[str, ...]:
    times: tuple[Timing, ...] = (cost.without, cost.recalling, cost.rest)
    return (*(f"{each.median / 1e3:,.3f}" for each in times), f"{cost.ratio:.3f}")


def _writing(recall: RecallCost, writing: tuple[Writing, ...]) -> Table:
    rows = tuple(
        (
            f"archive in {each.store}",
            f"{each.steps:,}",
            f"{each.others:,.0f}",
            f"{each.slow_others:,.0f}",
            f"{each.usual_packing:,.0f}",
            f"{each.packing:,.0f}",
            f"{each.cpu_packing:,.0f}",
            f"{each.ratio:.3f}",
            f"{each.growth / 1e6:.2f}",
            f"{each.archive / 1e6:.1f}",
        )
        for each in writing
    )
    header = (
        "what", "steps", "others", "slow others", "writers", "slow writers", "CPU time",
        "whole layer", "growth, MB", "archive, MB",
    )  # fmt: skip
    return Table(
        f"Steps one by one, {recall.dtype}, microseconds by the clock",
        header,
        rows,
        "Writers: the steps at which 64 tokens are packed, and the step after each; medians of "
        "them and of the others. Slow: the 99th percentile, which other programs decide on a "
        "busy machine, as the other steps show; CPU time: the same of writers without these. "
        "Whole layer: slow writers over the others' median, the rest of the layer added to "
        "both. Growth: of MLX's memory, the archive aside.",
    )
