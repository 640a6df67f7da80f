"""Resident memory of a recall from a long archive, of one layer of Qwen3-4B's shapes.

    python -m tests.h2o_py.recall_memory memory|FOLDER [TOKENS]

Prints JSON: MiB resident before the recall, and the most during it. Linux only.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import mlx.core as mx

from h2o_py import H2OConfig, H2ORecall
from h2o_py._compiled import ext
from h2o_py.cache import H2OKVCache
from tests.h2o_py import core

QUERY_HEADS, KV_HEADS, DIM, ASK, ROWS = 32, 8, 128, 32, 1024
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


def archived(recall: H2ORecall, count: int) -> tuple[H2OKVCache, ext.Archive]:
    """A full cache and an archive of `count` tokens, the first of which it has seen."""
    config = H2OConfig(ROWS, recall=recall)
    cache = H2OKVCache(H2OConfig(ROWS))
    folder = core.open_folder(recall.store) if recall.store else None
    archive = ext.Archive(recall, folder)
    for begin in range(0, count, 512):
        keys, values = tokens(512, KV_HEADS), tokens(512, KV_HEADS)
        key_sum = mx.ones((1, KV_HEADS, DIM)) if begin == 0 else cache.ledger.key_sum
        mx.eval(keys, values)
        archive.append(keys, values, key_sum, core._native(config))
        cache.update_and_fetch(keys, values)
        if cache.offset <= ROWS:
            cache.attend(tokens(512, QUERY_HEADS), scale=DIM**-0.5, mask="causal")
        else:
            cache.settle()
        mx.eval(cache.arrays, archive.arrays)
        assert folder is None or folder.flush()
    return cache, archive


def main(store: str, count: int) -> None:
    recall = H2ORecall(ask=ASK, store=None if store == "memory" else store)
    cache, archive = archived(recall, count)
    queries, keys = tokens(ASK, QUERY_HEADS), tokens(ASK, KV_HEADS)
    mx.eval(queries, keys)
    mx.clear_cache()
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the most so far is what is now
    before = resident()
    recalled = core.recall(
        queries, keys, cache.rows, cache.ledger, archive, offset=cache.offset,
        config=H2OConfig(ROWS, recall=recall), scale=DIM**-0.5,
    )  # fmt: skip
    mx.eval(recalled.rows.pool, recalled.ledger)
    after = resident()
    assert archive.failure is None
    result = {
        "tokens": count,
        "archive": archive.nbytes / MIB**2,
        "segments_in_files": archive.mark[1] if archive.mark else 0,
        "came": int(recalled.came),
        "before": before["VmRSS"],
        "before_anonymous": before["RssAnon"],
        "most": after["VmHWM"],
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 32768)
