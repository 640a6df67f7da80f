"""Resident memory of reading a long archive, of one layer of Qwen3-4B's shapes.

    python -m tests.h2o_py.recall_memory memory|FOLDER TOKENS ASK

Prints JSON: MiB resident before the last ASK tokens of a prompt and a generated one read, and
the most during it. Linux only.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import mlx.core as mx

from h2o_py import H2OConfig, H2ORecall
from h2o_py.cache import H2OKVCache
from tests.h2o_py.cases import step

QUERY_HEADS, KV_HEADS, DIM, ROWS = 32, 8, 128, 1024
MIB = 1024


def resident() -> dict[str, float]:
    """MiB in memory now and at most so far, and of the former what is not a file's."""
    status = Path("/proc/self/status").read_text("ascii")
    matches = {
        name: re.search(rf"{name}:\s+(\d+)", status) for name in ("VmRSS", "VmHWM", "RssAnon")
    }
    return {name: int(match[1]) / MIB for name, match in matches.items() if match}


def tokens(count: int, heads: int) -> mx.array:
    return mx.random.normal((1, heads, count, DIM)).astype(mx.float16)


def filled(recall: H2ORecall, count: int) -> H2OKVCache:
    """A full cache with an archive of `count` tokens."""
    cache = H2OKVCache(H2OConfig(ROWS, recall=recall))
    for _ in range(0, count, 512):
        step(cache, *(tokens(512, KV_HEADS) for _ in range(3)))
        mx.eval(cache.arrays)
        assert cache.archive.flush()
    return cache


def main(store: str, count: int, ask: int) -> None:
    recall = H2ORecall(ask=ask, store=None if store == "memory" else store)
    cache = filled(recall, count)
    prompt, generated = (
        [tokens(new, heads) for heads in (QUERY_HEADS, KV_HEADS, KV_HEADS)] for new in (ask, 1)
    )
    mx.eval(prompt, generated)
    mx.clear_cache()
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the most so far is what is now
    before, reads = resident(), cache.archive_reads
    for new in (prompt, generated):
        mx.eval(step(cache, *new), *cache.ledger)
    after = resident()
    archive = cache.archive
    result = {
        "tokens": count,
        "archive": archive.nbytes / MIB**2,
        "segments_in_files": archive.mark[1] if archive.mark else 0,
        "read": cache.archive_reads - reads,
        "before": before["VmRSS"],
        "before_anonymous": before["RssAnon"],
        "most": after["VmHWM"],
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
