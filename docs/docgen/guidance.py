"""The parts of pages with measured figures, from the committed evaluation.

`python -m docs.docgen.guidance --write` writes them, and a test compares the pages with them.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import takewhile
from pathlib import Path
from typing import Any

from docs.docgen import recall_table
from docs.docgen.markdown import replaced, table

DOCS = Path(__file__).resolve().parents[1]
RESULTS = DOCS / "results" / "eval" / "results.json"
MARK = "measured"

FULL, DEFAULT, WINDOW, PUBLISHED = "full", "default", "sinks_recent", "paper_heavy"
BY_LAYER, WINDOW_BY_LAYER = "tuned_by_layer", "sinks_recent_by_layer"
PAPER_RULE = Fraction(1, 4)  # max_kv of the context, half of it for heavy hitters
NEAR_FULL = 0.95  # of the full cache's recall: what counts as nothing lost
COLUMNS = {
    WINDOW: "window",
    PUBLISHED: "published",
    DEFAULT: "`standard`",
    "tuned": "`tuned`",
    BY_LAYER: "`tuned`, rows by layer",
}
MISSING: Mapping[str, Any] = {"metrics": {}, "difference": {}}
"""The cell of what was not measured, which tables show as "-"."""


class Results:
    """An evaluation's document and its cells; experiments and groups may be missing."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._cells: dict[tuple[str, ...], Mapping[str, Any]] = {
            (experiment["id"], group["id"], cell["contender"], cell["budget"]): cell
            for experiment in document["experiments"]
            for group in experiment["groups"]
            for cell in group["cells"]
        }

    def cells(self, experiment: str, group: str) -> list[Mapping[str, Any]]:
        """Return a group's cells."""
        return [cell for key, cell in self._cells.items() if key[:2] == (experiment, group)]

    def cell(
        self, experiment: str, contender: str, budget: str = "all", group: str = "policies"
    ) -> Mapping[str, Any]:
        """Return the cell of a contender at a budget, or `MISSING`."""
        return self._cells.get((experiment, group, contender, budget), MISSING)


def measured(results: Results) -> str:
    """Return the Markdown that stands between the marks."""
    document = results.document
    model, confidence = document["model"]["name"], f"{document['confidence']:.0%}"
    origin = (
        f"From the evaluation `{document['preset']}` of the model {model} on "
        f"{document['text']}. Means with {confidence} intervals. "
        "[All tables](results/eval/README.md)."
    )
    parts = [
        origin,
        rows_section(results),
        by_layer_section(results),
        storage_section(results),
        pinning_section(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def summary(results: Results) -> str:
    """Return a table of what is recalled and predicted, by policy."""
    document = results.document
    many = next(e["decoys"] for e in document["experiments"] if e["id"] == "decoys") + 1
    short = results.cells("instruction", "pinned")[0]["length"]
    start = f"an instruction at the start of {short} tokens, 1/4 of the rows"
    asked = [
        *((f"one fact, {b} of the rows", "fact", b, "") for b in ("1/2", "1/4", "1/8")),
        *(
            (f"one of {many} similar facts, {b} of the rows", "decoys", b, "")
            for b in ("1/4", "1/8")
        ),
        (start, "instruction", "1/4", ""),
        ("the same instruction, pinned", "instruction", "1/4", "+pinned"),
    ]
    rows = []
    for what, experiment, budget, pin in asked:
        group = "pinned" if experiment == "instruction" else "policies"
        cells = (results.cell(experiment, name + pin, budget, group) for name in COLUMNS)
        rows.append((what, *(number(cell, "recall") for cell in cells)))
    for budget in ("1/2", "1/4", "1/8"):
        cells = (results.cell("fact", name, budget) for name in COLUMNS)
        rows.append((f"perplexity, {budget} of the rows", *map(perplexity, cells)))
    full = results.cell("fact", FULL)
    origin = (
        f"Recall and perplexity with the real cache, for a model of 2 M parameters and "
        f"{full['length']:,} tokens. The full cache recalls {number(full, 'recall')} of the "
        f"facts and has perplexity {perplexity(full)}."
    )
    return f"{origin}\n\n{table(('', *COLUMNS.values()), rows)}\n"


def rows_section(results: Results) -> str:
    """How many rows: recall and prediction by the share of the text that is kept."""
    budgets = shares(results.cells("fact", "policies"))
    if not budgets:
        return ""
    rows = [
        (
            budget,
            recall(results.cell("fact", DEFAULT, budget)),
            recall(results.cell("fact", PUBLISHED, budget)),
            recall(results.cell("decoys", DEFAULT, budget)),
            extra_nats(results, DEFAULT, budget),
            extra_nats(results, WINDOW, budget),
            verdict(results.cell("fact", DEFAULT, budget)),
        )
        for budget in budgets
    ]
    head = (
        "rows kept",
        "one fact recalled",
        "the same with the published policy",
        "one of many facts recalled",
        "nats per token above the full cache",
        "the same for a window",
        "text prediction compared with the window",
    )
    return "\n\n".join(["### How many rows", table(head, rows), *conclusions(results, budgets)])


def by_layer_section(results: Results) -> str:
    """What rows that differ from layer to layer are worth, in the same bytes."""
    budgets = shares(
        each for each in results.cells("fact", "policies") if each["contender"] == BY_LAYER
    )
    if not budgets:
        return ""
    rows = [
        (
            budget,
            recall(results.cell("fact", BY_LAYER, budget)),
            recall(results.cell("decoys", BY_LAYER, budget)),
            extra_nats(results, BY_LAYER, budget),
            extra_nats(results, WINDOW_BY_LAYER, budget),
            extra_nats(results, WINDOW, budget),
            verdict(results.cell("fact", BY_LAYER, budget)),
        )
        for budget in budgets
    ]
    head = (
        "rows kept, on average",
        "one fact recalled",
        "one of many facts recalled",
        "nats per token above the full cache",
        "the same for windows by layer",
        "the same for a window",
        "text prediction compared with the window",
    )
    said = (
        "The tuned policy with budgets from `h2o-pack budgets --measure reach --policy tuned`: "
        "layers that look far back get more rows and others fewer, in the same bytes."
    )
    return "\n\n".join(["### Rows by layer", said, table(head, rows)])


def conclusions(results: Results, budgets: Sequence[str]) -> list[str]:
    """Say what the figures mean for the published rule, and where recall is lost."""
    said = []
    if str(PAPER_RULE) in budgets:
        ours, theirs = (
            recall(results.cell("fact", name, str(PAPER_RULE))) for name in (DEFAULT, PUBLISHED)
        )
        said.append(
            f"With the published rule, max_kv = context / {PAPER_RULE.denominator} and half of "
            f"the rows for heavy hitters, this policy recalls {ours} of the facts and "
            f"the published policy {theirs}."
        )
    for experiment, what in (("fact", "one fact"), ("decoys", "one of many similar facts")):
        least = NEAR_FULL * mean(results.cell(experiment, FULL), "recall")
        cells = {b: results.cell(experiment, DEFAULT, b) for b in budgets}
        asked = [budget for budget, cell in cells.items() if cell is not MISSING]
        kept = list(takewhile(lambda b: mean(cells[b], "recall") >= least, asked))  # noqa: B023
        if not asked:
            continue
        if not kept:
            said.append(
                f"Recall of {what} is below that of the full cache at every budget measured: "
                "keep the whole text where such facts matter."
            )
            continue
        lower = f" At {asked[len(kept)]} it is lower." if len(kept) < len(asked) else ""
        said.append(
            f"Recall of {what} equals that of the full cache down to {kept[-1]} of the "
            f"text.{lower}"
        )
    return said


def storage_section(results: Results) -> str:
    """Which storage: all with the bytes of 16-bit rows at a budget."""
    tables = []
    head = (
        "stored as",
        "rows",
        "one fact",
        "one of many",
        "nats per token",
        "compared with 16-bit",
    )
    for budget in shares(results.cells("fact", "bytes")):
        rows = [
            (
                each["title"],
                each["rows"],
                recall(each),
                recall(results.cell("decoys", each["contender"], budget, "bytes")),
                number(each, "nll", 3),
                verdict(each),
            )
            for each in results.cells("fact", "bytes")
            if each["budget"] == budget
        ]
        tables.append(table(head, rows))
        tables.append(f"All take the bytes of 16-bit rows for {budget} of the text.")
    return "\n\n".join(["### Which storage, in the same bytes", *tables]) if tables else ""


def pinning_section(results: Results) -> str:
    """What pinning does for an instruction at the beginning."""
    cells = results.cells("instruction", "pinned")
    if not cells:
        return ""
    rows = [(each["title"], each["rows"], recall(each)) for each in cells]
    head = ("cache", "rows", "instruction recalled")
    return "\n\n".join(["### Pinning", table(head, rows)])


def shares(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the budgets that are shares of the text, the largest first."""
    found = {each["budget"] for each in cells if "/" in each["budget"]}
    return sorted(found, key=Fraction, reverse=True)


def mean(cell: Mapping[str, Any], metric: str) -> float:
    """Return the mean of a metric, NaN where it was not measured."""
    return float(cell["metrics"].get(metric, {"mean": math.nan})["mean"])


def number(cell: Mapping[str, Any], metric: str, digits: int = 2) -> str:
    """Write the mean of a metric alone."""
    return f"{mean(cell, metric):.{digits}f}" if metric in cell["metrics"] else "-"


def recall(cell: Mapping[str, Any]) -> str:
    """Write recall with its interval."""
    if "recall" not in cell["metrics"]:
        return "-"
    found = cell["metrics"]["recall"]
    return f"{found['mean']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def perplexity(cell: Mapping[str, Any]) -> str:
    """Write perplexity."""
    return "-" if cell is MISSING else f"{math.exp(mean(cell, 'nll')):.2f}"


def extra_nats(results: Results, contender: str, budget: str) -> str:
    """Write how much worse than the full cache a contender predicts."""
    nll, full = (
        mean(results.cell("fact", *place), "nll") for place in ((contender, budget), (FULL,))
    )
    return "-" if math.isnan(nll - full) else f"{nll - full:+.3f}"


def verdict(cell: Mapping[str, Any]) -> str:
    """Return what a cell's difference in nats to its group's baseline says."""
    return str(cell["difference"].get("nll", {"verdict": "-"})["verdict"])


PAGES: Mapping[Path, Callable[[Results], str]] = {
    DOCS / "choosing-max-kv.md": measured,
    DOCS / "what-h2o-does.md": summary,
}
"""The function that writes the part between the marks, for each page."""


def text(page: Path) -> str:
    """Return the text that belongs between the marks of a page."""
    return PAGES[page](Results(json.loads(RESULTS.read_text("utf-8"))))


def parts() -> Iterator[tuple[Path, str, str]]:
    """Yield a page, a mark in it and the text that belongs there, for all of them."""
    for page in PAGES:
        yield page, MARK, text(page)
    yield recall_table.PAGE, recall_table.MARK, recall_table.text()


def main() -> None:
    """Write or print the measured parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="change the pages")
    write = parser.parse_args().write
    for page, mark, made in parts():
        changed = replaced(page.read_text("utf-8"), mark, made)
        if write:
            page.write_text(changed, encoding="utf-8", newline="\n")
        else:
            print(made)  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
