"""The published figures beside ours, in the tables of the paper."""

from __future__ import annotations

import math
from functools import cache
from importlib import resources
from typing import Any, Literal

from msgspec import Struct, field, toml

from h2o_pack.measure.evaluation.contenders import find_contender
from h2o_pack.measure.evaluation.results import Report

SOURCE_LINE = (
    "Published: *H2O Attention Score KV Cache Eviction for On-Device LLM Inference*, "
    "AtomGradient, March 2026, on a Mac Studio M2 Ultra; its samples are not ours, so that "
    "differences between columns are what can be compared. A cell is published / ours."
)

Shown = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""Title, header and rows of a table."""

_FIRST = {"model": "model", "tokens": "tokens", "max_kv": "max_kv"}


class PublishedTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of paper.toml, which says what each field means."""

    number: int
    title: str
    metric: Literal["perplexity", "percent", "tokens_per_second"]
    by: Literal["model", "tokens", "max_kv"]
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]
    tokens: int | None = None
    max_kv: int | None = None
    model: str | None = None


class Paper(Struct, frozen=True, forbid_unknown_fields=True):
    """All of paper.toml."""

    source: str
    measured: bool
    tables: tuple[PublishedTable, ...] = field(name="table")


@cache
def tables() -> tuple[PublishedTable, ...]:
    """Return the paper's tables."""
    text = (resources.files(__package__) / "paper.toml").read_text("utf-8")
    return toml.decode(text, type=Paper).tables


def beside(report: Report) -> list[Shown]:
    """Return the paper's tables that a report has figures for, without empty rows."""
    numbers = [n for each in report.experiments for n in each.paper]
    shown = []
    for table in tables():
        if table.number not in numbers:
            continue
        rows = []
        for first, *published in table.rows:
            ours = [_ours(report, table, first, column) for column in table.columns]
            if all(value is None for value in ours):
                continue
            cells = [_pair(p, o, table) for p, o in zip(published, ours, strict=True)]
            rows.append((f"{first:,}" if isinstance(first, int) else str(first), *cells))
        if rows:
            header = (_FIRST[table.by], *(_title(column) for column in table.columns))
            shown.append((f"Table {table.number}: {table.title}", header, rows))
    return shown


def _ours(report: Report, table: PublishedTable, first: Any, column: str) -> float | None:
    """Return our figure for a published one; None where it was not measured."""
    name, _, rows = column.partition("@")
    wanted: dict[str, Any] = {"tokens": table.tokens, "max_kv": table.max_kv}
    wanted["model"] = table.model or report.model.name
    wanted[table.by] = first
    if rows:
        wanted["max_kv"] = int(rows)
    if wanted["model"] != report.model.name:
        return None
    metric = "tokens_per_second" if table.metric == "tokens_per_second" else "nll"
    found = _mean(report, table.number, name, metric, wanted)
    if found is None or metric != "nll":
        return found
    if table.metric != "percent":
        return math.exp(found)
    full = _mean(report, table.number, "full", metric, wanted)
    return None if full is None else 100 * (math.exp(found - full) - 1)


def _mean(
    report: Report, number: int, name: str, metric: str, wanted: dict[str, Any]
) -> float | None:
    for experiment in report.experiments:
        if number not in experiment.paper:
            continue
        for group in experiment.groups:
            for cell in group.cells:
                fits = cell.contender == name and metric in cell.metrics
                fits = fits and wanted["tokens"] in (None, cell.length)
                rows = wanted["max_kv"]
                if fits and (name == "full" or rows in (None, cell.budget_rows)):
                    return cell.metrics[metric].mean
    return None


def _pair(published: Any, ours: float | None, table: PublishedTable) -> str:
    digits = 3 if table.metric == "perplexity" else 1
    return f"{published} / " + ("-" if ours is None else f"{ours:.{digits}f}")


def _title(column: str) -> str:
    name, _, rows = column.partition("@")
    return find_contender(name).title + (f", {rows} rows" if rows else "")
