"""The table of both sides, and who recalls more."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from h2o_pack.measure.evaluation.statistics import compare, estimate
from studies.peers.entries import BY_TOKEN, FULL, KVPRESS, ONCE, Entry
from studies.peers.tasks import BUDGETS, CONTEXT, DECOYS, SAMPLES, SEEDS, TASKS

Results = dict[Entry, dict[str, list[float]]]

QUARTER = CONTEXT // 4
OURS = {"default": "the default", "tuned_by_layer": "tuned, rows by layer"}
"""The policies whose verdicts are listed, if they were run."""
TITLES = {
    "default": "**ours, the default**",
    "default+recall4": "**ours, the default, recall every 4**",
    "tuned": "ours, tuned",
    "tuned_by_layer": "**ours, tuned, rows by layer**",
    "paper_heavy": "ours, the published H2O policy",
    "sinks_recent": "ours, sinks + recent",
    FULL: "full cache",
}
PROTOCOLS = {
    KVPRESS: "kvpress, once",
    BY_TOKEN: "h2o_py, token by token",
    ONCE: "h2o_py, once",
}
PAGE = """\
# The cache beside kvpress

The bundled demo model (sha256 `{sha256}`) in mlx-lm and in transformers, both in \
float32: their logits differ by at most {difference:.1e}. {samples} samples of {context:,} \
held-out tokens (seeds {seeds}); one fact in the first 40% of the text, alone or among \
{decoys} others of the same form, asked for at the end; recall is all four digits, greedy. \
Written by `python -m studies.peers`; every sample's value is in [peers.json](peers.json).

- *once*: the whole context with full attention, then one compression that knows no question; \
after that nothing is evicted, so the question and what follows come on top of the kept rows. \
That is how kvpress works, and it needs memory for the whole context. Ours does the same here: \
one chunk, one eviction, rows that grow.
- *token by token*: {prefill} tokens at once, then single tokens, evicting all along: never \
more rows than are kept, while reading and while answering. It is how the cache is meant to be \
used, and the harder task.
- *recall every 4*: evicted rows are kept in an archive in 4 bits, and every fourth token \
brings back those that it asks for; never more rows than are kept are resident.
- *rows by layer*: so many rows on average, allocated from the committed profile \
(docs/profiling-and-budgets.md).

kvpress {kvpress}, its presses with their defaults. ObservedAttention is its press in the \
manner of H2O. Intervals are 95% bootstrap intervals.

{tables}
## Verdict

{verdicts}
"""


def document(results: Results, about: dict[str, Any]) -> dict[str, Any]:
    """Return peers.json."""
    rows = [
        {
            **asdict(entry),
            "tasks": {
                task: {**asdict(estimate(values)), "values": values}
                for task, values in by_task.items()
            },
        }
        for entry, by_task in results.items()
    ]
    return {"format": 1, **about, "entries": rows, "verdicts": verdicts(results)}


def render(results: Results, about: dict[str, Any]) -> str:
    """Return peers.md."""
    return PAGE.format(
        **about,
        samples=SAMPLES * len(SEEDS),
        seeds=", ".join(map(str, SEEDS)),
        context=CONTEXT,
        decoys=DECOYS,
        tables="\n".join(table(results, task) for task in TASKS),
        verdicts="\n".join(f"- {line}" for line in verdicts(results)),
    )


def table(results: Results, task: Any) -> str:
    """Return one task's table: one row per contender and one column per budget."""
    heads = "".join(f" {rows} rows (1/{CONTEXT // rows}) |" for rows in BUDGETS)
    lines = [f"## {task.title[0].upper()}{task.title[1:]}", "", f"| | Protocol |{heads}"]
    lines.append("|---|---|" + "---|" * len(BUDGETS))
    full = results[Entry(BY_TOKEN, FULL, 0)][task.name]
    lines.append("| full cache | all rows |" + f" {cell(full, task)} |" * len(BUDGETS))
    names = dict.fromkeys((entry.side, entry.name) for entry in results if entry.rows)
    for side, name in names:
        cells = [results[Entry(side, name, rows)][task.name] for rows in BUDGETS]
        shown = "".join(f" {cell(values, task)} |" for values in cells)
        lines.append(f"| {TITLES.get(name, name)} | {PROTOCOLS[side]} |{shown}")
    return "\n".join(lines) + "\n"


def cell(values: list[float], task: Any) -> str:
    """Return a mean with its interval."""
    found = estimate(values)
    digits = 2 if task.asks else 3
    return f"{found.mean:.{digits}f} ({found.low:.{digits}f}-{found.high:.{digits}f})"


def verdicts(results: Results) -> list[str]:
    """Say for each protocol how ours does at 1/4 beside the press that recalls most."""
    best = best_press(results)
    lines = []
    for task in TASKS:
        peer = results[Entry(KVPRESS, best, QUARTER)][task.name]
        digits = 2 if task.asks else 3
        asked = [(name, protocol) for name in OURS for protocol in (BY_TOKEN, ONCE)]
        for name, protocol in asked:
            entry = Entry(protocol, name, QUARTER)
            if entry not in results:
                continue
            mine = results[entry][task.name]
            verdict = compare(mine, peer, lower_is_better=not task.asks).verdict
            lines.append(
                f"{task.title}, {QUARTER} rows, {OURS[name]}, {protocol}: "
                f"{mean(mine):.{digits}f} against {mean(peer):.{digits}f} of {best}, the press "
                f"that recalls most: **{verdict}**."
            )
    return lines


def best_press(results: Results) -> str:
    """Return the press that recalls most at 1/4, all recall tasks together."""
    recalled = {
        entry.name: sum(sum(by_task[task.name]) for task in TASKS if task.asks)
        for entry, by_task in results.items()
        if entry.side == KVPRESS and entry.rows == QUARTER
    }
    return max(recalled, key=lambda name: recalled[name])


def results_of(made: dict[str, Any]) -> Results:
    """Return the results that a document was made from."""
    return {
        Entry(each["side"], each["name"], each["rows"]): {
            task: found["values"] for task, found in each["tasks"].items()
        }
        for each in made["entries"]
    }


def mean(values: list[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)
