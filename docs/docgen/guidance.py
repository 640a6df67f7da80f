"""The parts of pages with measured figures, from the committed evaluation.

`python -m docs.docgen.guidance --write` writes them, and a test compares the pages with them.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from docs.docgen.markdown import table

DOCS = Path(__file__).resolve().parents[1]
RESULTS = DOCS / "results" / "eval" / "results.json"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

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
NOT_YET = "No evaluation is committed yet: `h2o-pack eval` measures your own model.\n"


@dataclass(frozen=True)
class Results:
    """An evaluation's document, and how to find a cell in it."""

    document: Mapping[str, Any]

    def group(self, experiment: str, group: str) -> Mapping[str, Any]:
        """Return a group of an experiment; empty where it was not run."""
        for each in self.document["experiments"]:
            if each["id"] == experiment:
                for found in each["groups"]:
                    if found["id"] == group:
                        return dict(found)
        return {}

    def cells(self, experiment: str, group: str) -> list[Mapping[str, Any]]:
        """Return a group's cells."""
        return list(self.group(experiment, group).get("cells", ()))

    def cell(
        self, experiment: str, group: str, contender: str, budget: str = "all"
    ) -> Mapping[str, Any] | None:
        """Return the cell of a contender at a budget, if it was measured."""
        for each in self.cells(experiment, group):
            if (each["contender"], each["budget"]) == (contender, budget):
                return each
        return None


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
    length = int(results.cells("fact", "policies")[0]["length"])
    many = next(e["decoys"] for e in document["experiments"] if e["id"] == "decoys") + 1
    short = results.cells("instruction", "pinned")[0]["length"]
    asked = [
        *((f"one fact, {b} of the rows", "fact", b, "") for b in ("1/2", "1/4", "1/8")),
        *(
            (f"one of {many} similar facts, {b} of the rows", "decoys", b, "")
            for b in ("1/4", "1/8")
        ),
        (
            f"an instruction at the start of {short} tokens, 1/4 of the rows",
            "instruction",
            "1/4",
            "",
        ),
        ("the same instruction, pinned", "instruction", "1/4", "+pinned"),
    ]
    rows = [
        (what, *(mean_recall(results, experiment, name + pin, budget) for name in COLUMNS))
        for what, experiment, budget, pin in asked
    ]
    rows += [
        (
            f"perplexity, {budget} of the rows",
            *(perplexity(results.cell("fact", "policies", name, budget)) for name in COLUMNS),
        )
        for budget in ("1/2", "1/4", "1/8")
    ]
    full = results.cell("fact", "policies", FULL)
    origin = (
        f"Recall and perplexity with the real cache, for a model of 2 M parameters and "
        f"{length:,} tokens. The full cache recalls {mean(full or {}, 'recall'):.2f} of the "
        f"facts and has perplexity {perplexity(full)}."
    )
    return f"{origin}\n\n{table(('', *COLUMNS.values()), rows)}\n"


def mean_recall(results: Results, experiment: str, contender: str, budget: str) -> str:
    """Write the mean of recall alone."""
    group = "pinned" if experiment == "instruction" else "policies"
    cell = results.cell(experiment, group, contender, budget)
    return "-" if cell is None else f"{mean(cell, 'recall'):.2f}"


def perplexity(cell: Mapping[str, Any] | None) -> str:
    """Write perplexity."""
    return "-" if cell is None else f"{math.exp(mean(cell, 'nll')):.2f}"


def rows_section(results: Results) -> str:
    """How many rows: recall and prediction by the share of the text that is kept."""
    budgets = shares(results.cells("fact", "policies"))
    if not budgets:
        return ""
    rows = [
        (
            budget,
            *(
                recall(results.cell("fact", "policies", c, budget))
                for c in (DEFAULT, PUBLISHED)
            ),
            recall(results.cell("decoys", "policies", DEFAULT, budget)),
            extra_nats(results, DEFAULT, budget),
            extra_nats(results, WINDOW, budget),
            verdict(results.cell("fact", "policies", DEFAULT, budget), "nll"),
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
            recall(results.cell("fact", "policies", BY_LAYER, budget)),
            recall(results.cell("decoys", "policies", BY_LAYER, budget)),
            *(
                extra_nats(results, contender, budget)
                for contender in (BY_LAYER, WINDOW_BY_LAYER, WINDOW)
            ),
            verdict(results.cell("fact", "policies", BY_LAYER, budget), "nll"),
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
        here = results.cell("fact", "policies", DEFAULT, str(PAPER_RULE))
        theirs = results.cell("fact", "policies", PUBLISHED, str(PAPER_RULE))
        said.append(
            f"With the published rule, max_kv = context / {PAPER_RULE.denominator} and half of "
            f"the rows for heavy hitters, this policy recalls {recall(here)} of the facts and "
            f"the published policy {recall(theirs)}."
        )
    for experiment, what in (("fact", "one fact"), ("decoys", "one of many similar facts")):
        kept = [b for b in budgets if keeps_recall(results, experiment, b)]
        asked = [b for b in budgets if results.cell(experiment, "policies", DEFAULT, b)]
        if not asked:
            continue
        if kept:
            said.append(
                f"Recall of {what} equals that of the full cache down to {kept[-1]} of the "
                "text."
                + (
                    ""
                    if kept[-1] == asked[-1]
                    else f" At {after(asked, kept[-1])} it is lower."
                )
            )
        else:
            said.append(
                f"Recall of {what} is below that of the full cache at every budget measured: "
                "keep the whole text where such facts matter."
            )
    return said


def keeps_recall(results: Results, experiment: str, budget: str) -> bool:
    """Whether the default's recall is near the full cache's, at this and all larger budgets."""
    full = results.cell(experiment, "policies", FULL)
    larger = shares(results.cells(experiment, "policies"))
    for each in larger[: larger.index(budget) + 1] if budget in larger else ():
        cell = results.cell(experiment, "policies", DEFAULT, each)
        if (
            cell is None
            or full is None
            or mean(cell, "recall") < NEAR_FULL * mean(full, "recall")
        ):
            return False
    return budget in larger


def after(budgets: Sequence[str], budget: str) -> str:
    """Return the next smaller budget."""
    return budgets[list(budgets).index(budget) + 1]


def storage_section(results: Results) -> str:
    """Which storage: all with the bytes of 16-bit rows at a budget."""
    tables = []
    for budget in shares(results.cells("fact", "bytes")):
        group = "bytes"
        cells = [c for c in results.cells("fact", group) if c["budget"] == budget]
        tables.append(
            table(
                (
                    "stored as",
                    "rows",
                    "one fact",
                    "one of many",
                    "nats per token",
                    "compared with 16-bit",
                ),
                [
                    (
                        each["title"],
                        each["rows"],
                        recall(each),
                        recall(
                            results.cell("decoys", group, each["contender"], each["budget"])
                        ),
                        f"{mean(each, 'nll'):.3f}",
                        verdict(each, "nll"),
                    )
                    for each in cells
                ],
            )
        )
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
    """Return the mean of a metric."""
    return float(cell["metrics"][metric]["mean"])


def recall(cell: Mapping[str, Any] | None) -> str:
    """Write recall with its interval."""
    if cell is None or "recall" not in cell["metrics"]:
        return "-"
    found = cell["metrics"]["recall"]
    return f"{found['mean']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def extra_nats(results: Results, contender: str, budget: str) -> str:
    """Write how much worse than the full cache a contender predicts."""
    full = results.cell("fact", "policies", FULL)
    cell = results.cell("fact", "policies", contender, budget)
    return (
        "-" if full is None or cell is None else f"{mean(cell, 'nll') - mean(full, 'nll'):+.3f}"
    )


def verdict(cell: Mapping[str, Any] | None, metric: str) -> str:
    """Return what a cell's difference to its group's baseline says."""
    if cell is None or metric not in cell["difference"]:
        return "-"
    return str(cell["difference"][metric]["verdict"] or "-")


PAGES: Mapping[Path, Callable[[Results], str]] = {
    DOCS / "choosing-max-kv.md": measured,
    DOCS / "what-h2o-does.md": summary,
}
"""The function that writes the part between the marks, for each page."""


def text(page: Path) -> str:
    """Return the text that belongs between the marks of a page."""
    if not RESULTS.is_file():
        return NOT_YET
    return PAGES[page](Results(json.loads(RESULTS.read_text("utf-8"))))


def replaced(page: str, between: str) -> str:
    """Return a page with another text between its marks.

    Raises:
        ValueError: it lacks them.

    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after_it = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks the marks {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}\n{between}\n{end}{after_it}"


def main() -> None:
    """Write or print the measured parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="change the pages")
    write = parser.parse_args().write
    for page in PAGES:
        changed = replaced(page.read_text("utf-8"), text(page))
        if write:
            page.write_text(changed, encoding="utf-8", newline="\n")
        else:
            print(text(page))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
