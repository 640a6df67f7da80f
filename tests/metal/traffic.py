"""Bytes that one token moves in one layer, counted on the host that runs the kernels.

`python -m tests.metal.traffic --write` puts the table into docs/results/speed.md. Counted are
the distinct bytes that each threadgroup of a dispatch reads and writes: what has to come from
and go to memory when a threadgroup's own repeats hit its caches.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from h2o_py import H2OConfig
from h2o_py.models import STORAGES
from tests.h2o_py.cases import make_cache, random_tokens, step
from tests.metal.backend import evaluated, load_host, make_backend

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/results/speed.md"
BEGIN, END = "<!-- bytes per token: begin -->\n", "<!-- bytes per token: end -->\n"

# The shapes of Qwen3-4B's attention.
ROWS, HEADS, KV_HEADS, DIM, GROUP_SIZE = 512, 32, 8, 128, 64
DTYPE = mx.float16
STAGES = {"write": "h2o_write_row", "attention": "h2o_attend", "ledger": "h2o_update_ledger"}


@dataclass(frozen=True)
class Traffic:
    """Bytes that one step of one layer reads and writes."""

    name: str
    write: int
    attention: int
    ledger: int
    counted: bool = True

    @property
    def total(self) -> int:
        """Bytes of all stages."""
        return self.write + self.attention + self.ledger


def measure(host, backend, name):
    """Count one step of a full cache."""
    mx.random.seed(0)
    host.set_architecture("applegpu_g16p")
    cache = make_cache(name, H2OConfig(ROWS), backend, GROUP_SIZE)
    shape = {"heads": HEADS, "kv_heads": KV_HEADS, "dim": DIM, "dtype": DTYPE}
    cache.expects_queries = False  # what is counted depends on no score
    _, keys, values = random_tokens(ROWS, **shape)
    cache.update_and_fetch(keys, values)
    evaluated(host, step(cache, *random_tokens(1, **shape)))
    new = random_tokens(1, **shape)
    mx.eval(*new)
    host.reset_counters()
    evaluated(host, step(cache, *new), *cache.ledger)
    stages = dict.fromkeys(STAGES, 0)
    for entry in host.counters():
        (stage,) = [s for s, kernel in STAGES.items() if entry["kernel"].startswith(kernel)]
        stages[stage] += sum(map(sum, entry["buffers"].values()))
    return Traffic(name, **stages)


def unfused(dense: Traffic) -> Traffic:
    """The published system's step, from its shapes: counted where it runs what we run.

    Each new token is appended, attention exports its scores as here, four element-wise
    passes make the moving average of |score|, and eviction gathers all keys and values,
    scores and positions of the rows that stay.
    """
    row = 2 * DIM * DTYPE.size
    append = 2 * KV_HEADS * row
    entry = 4 * KV_HEADS * ROWS
    # |logits| (read, write), mean over the group (read, write), decay * old and the sum of
    # both (two reads and a write each), smallest score (read).
    scores = 3 * 4 * HEADS * ROWS + entry + 2 * 3 * entry + entry
    gather = 2 * (KV_HEADS * ROWS * row + 2 * entry)
    return Traffic(
        "published, unfused",
        write=append,
        attention=dense.attention,
        ledger=scores + gather,
        counted=False,
    )


def table(host, backend):
    """All storages, that in 16 bits first."""
    measured = [measure(host, backend, name) for name in STORAGES]
    return [*measured, unfused(measured[0])]


def to_markdown(rows):
    """The table for docs/results/speed.md."""
    lines = [
        f"For one token and one layer with a full cache of {ROWS} rows: {HEADS} query heads, "
        f"{KV_HEADS} KV heads of {DIM}, float16, groups of {GROUP_SIZE}. KiB read and written:",
        "",
        "| cache | write | attention | ledger | total | relative to 16 |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [f"{n / 1024:,.1f}" for n in (row.write, row.attention, row.ledger, row.total)]
        mark = "" if row.counted else " (computed)"
        lines.append(
            f"| {row.name}{mark} | {' | '.join(cells)} | {row.total / rows[0].total:.2f} |"
        )
    return "\n".join(lines) + "\n"


def with_table(page, rows):
    """The page with its table replaced."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + to_markdown(rows) + END + after


def main():
    """Print the table; with --write, put it where it is read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    host = load_host()
    rows = table(host, make_backend(host))
    print(to_markdown(rows))  # noqa: T201
    if options.write:
        PAGE.write_text(with_table(PAGE.read_text(), rows))


if __name__ == "__main__":
    main()
