"""Write the pages of finished comparisons again, from the figures beside them.

    python -m studies.pages

The programs that measured are in the project's history: `git show eff7b2a1:studies`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from h2o_pack.measure.tables import markdown_table

RESULTS = Path(__file__).parents[1] / "docs/results"

POLICIES = """\
# Which rows to keep: policies tried on the bundled demo model

Simulated step by step with the model's own arithmetic in float32 (`studies/policy` of commit
eff7b2a1, whose tests held the simulation against the real cache). {count} samples of
{length:,} tokens of held-out source, seeds {seeds}; a fact is stated at a depth of 0.1, 0.2,
0.3 or 0.6 and asked for at the end, alone or among 12 others of its form. nll is of the text
alone, facts aside, in nats per token; beside it the difference to sinks + recent on the same
samples with its 95% bootstrap interval; *better* and *worse* are outside of it.
"""
ROTATION = """\
# Rows rotated before they are quantized

Measured by `studies/rotation` of commit eff7b2a1 on the bundled demo model. {count} samples \
of {length:,} tokens of held-out source (seeds {seeds}), each with one fact to be found \
among 12 others of its form, read token by token through the real caches. A rotated cache \
gets queries, keys and values that a Hadamard matrix with random signs has turned, and its \
output is turned back; 3 bits are rounded to on writing. KL is to the full cache's \
predictions, in nats per token, with its 95% bootstrap interval. The first verdict compares \
a rotated cache with the plain one of the same storage, the second every cache with the one \
of least KL in the table.
"""
PEERS = """\
# The cache beside kvpress

The bundled demo model (sha256 `{sha256}`) in mlx-lm and in transformers, both in \
float32: their logits differ by at most {difference:.1e}. 24 samples of 1,024 held-out tokens \
(seeds 1, 2, 3); one fact in the first 40% of the text, alone or among 12 others of the same \
form, asked for at the end; recall is all four digits, greedy. Measured by `studies/peers` of \
commit eff7b2a1; every sample's value is in [peers.json](peers.json).

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
"""
TASKS = (
    ("fact", "Recall, one fact", 2),
    ("decoys", "Recall, 12 decoys", 2),
    ("text", "Nll of the next 128 tokens", 3),
)
TITLES = {
    "default": "**ours, the default**",
    "default+recall4": "**ours, the default, recall every 4**",
    "tuned": "ours, tuned",
    "tuned_by_layer": "**ours, tuned, rows by layer**",
    "paper_heavy": "ours, the published H2O policy",
    "sinks_recent": "ours, sinks + recent",
    "full": "full cache",
}
PROTOCOLS = {
    "kvpress": "kvpress, once",
    "token by token": "h2o_py, token by token",
    "once": "h2o_py, once",
}


def peers(document: dict[str, Any]) -> str:
    """Write the cache beside kvpress's presses: a table per task, a column per budget."""
    lines = [PEERS.format(**document)]
    entries = {(e["side"], e["name"], e["rows"]): e["tasks"] for e in document["entries"]}
    budgets = sorted({rows for _, _, rows in entries if rows}, reverse=True)
    header = ["", "Protocol", *(f"{rows} rows (1/{1024 // rows})" for rows in budgets)]
    contenders = dict.fromkeys((side, name) for side, name, rows in entries if rows)
    for task, title, digits in TASKS:
        full = estimate(entries["token by token", "full", 0][task], digits)
        rows = [["full cache", "all rows", *[full] * len(budgets)]]
        for side, name in contenders:
            values = [estimate(entries[side, name, rows][task], digits) for rows in budgets]
            rows.append([TITLES.get(name, name), PROTOCOLS[side], *values])
        lines += [f"## {title}", "", *markdown_table(header, rows), ""]
    return "\n".join([*lines, "## Verdict", "", *(f"- {v}" for v in document["verdicts"]), ""])


def estimate(figures: dict[str, float], digits: int) -> str:
    """Return a mean with its interval."""
    return "{mean:.{d}f} ({low:.{d}f}-{high:.{d}f})".format(**figures, d=digits)


def rotation(document: dict[str, Any]) -> str:
    """Write rotated rows beside plain ones, at equal bytes."""
    header = ("cache", "KB", "KL, nats", "rotated against plain", "against the best", "facts")
    lines = [ROTATION.format(**document["settings"])]
    for level in document["levels"]:
        kilobytes = f"{level['bytes'] / 1024:,.0f}"
        rows = [
            (
                cache["cache"],
                kilobytes,
                "{:.4f} [{:.4f}, {:.4f}]".format(cache["kl"], *cache["interval"]),
                cache["to_plain"],
                cache["to_best"],
                f"{cache['facts']:.2f}",
            )
            for cache in level["caches"]
        ]
        lines += ["", f"## At the {level['title']}", "", *markdown_table(header, rows)]
    return "\n".join(lines) + "\n"


def policies(document: dict[str, Any]) -> str:
    """Write the simulated policies, at each number of rows."""
    settings = document["settings"]
    count, seeds = settings["samples"] * len(settings["seeds"]), map(str, settings["seeds"])
    header = ("policy", "recall, one fact", "recall, 12 decoys", "nll", "to sinks + recent")
    lines = [POLICIES.format(count=count, length=settings["length"], seeds=", ".join(seeds))]
    for number in map(str, settings["rows"]):
        rows = [
            policy_row(policy, by_rows[number])
            for policy, by_rows in document["policies"].items()
            if number in by_rows
        ]
        lines += ["", f"## {number} rows", "", *markdown_table(header, rows)]
    return "\n".join(lines) + "\n"


def policy_row(policy: str, kinds: dict[str, Any]) -> tuple[str, ...]:
    """Return one line of the table of policies."""
    fact, (low, high) = kinds["fact"], kinds["fact"]["interval"]
    difference = f"{fact['difference']:+.3f} ({low:+.3f} to {high:+.3f}), {fact['verdict']}"
    recalls = (f"{kinds[kind]['recall']:.2f}" for kind in ("fact", "decoys"))
    return (policy, *recalls, f"{fact['nll']:.3f}", difference)


PAGES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "peers.md": ("peers.json", peers),
    "rotation/README.md": ("rotation/results.json", rotation),
    "policy/finalists.md": ("policy/finalists.json", policies),
}
"""Each page, the figures that it shows, and what writes it."""


def text(page: str) -> str:
    """Return a page's text."""
    figures, write = PAGES[page]
    return write(json.loads((RESULTS / figures).read_text(encoding="utf-8")))


if __name__ == "__main__":
    for name in PAGES:
        (RESULTS / name).write_text(text(name), encoding="utf-8")
