"""Recall over 100,000 tokens that come in chunks of every size."""

import random
from types import SimpleNamespace

import mlx.core as mx
import numpy as np

from h2o_py import H2OConfig, H2ORecall
from h2o_py.cache import H2OKVCache
from tests.h2o_py.brute_recall import BruteCache, Storage
from tests.h2o_py.cases import assert_invariants, held, random_tokens, step

LARGEST_CHUNK = 446
"""1 + 2 + ... + 446 = 99,681."""
SHAPE = {"heads": 2, "kv_heads": 1, "dim": 32}


def test_100000_tokens_in_chunks_of_every_size():
    """What is held after some recalls is what a brute force wants; the archive has it all."""
    config = H2OConfig(
        96, sink_size=4, heavy_budget=40, recent_budget=40, recall=H2ORecall(ask=4, every=1)
    )
    asked = {}

    cache = H2OKVCache(config)
    sizes = [*range(1, LARGEST_CHUNK + 1), 100_000 - LARGEST_CHUNK * (LARGEST_CHUNK + 1) // 2]
    random.Random(5).shuffle(sizes)  # noqa: S311  not for secrets
    mx.random.seed(5)
    for number, tokens in enumerate(sizes):
        queries, keys, values = random_tokens(tokens, **SHAPE)
        mx.eval(step(cache, 4 * queries, keys, values), cache.arrays)
        asks = min(4, tokens)
        offset = cache.offset - asks
        if len(asked) < offset // 12_000:
            last = queries[:, :, -asks:], keys[:, :, -asks:]
            asked[offset] = 4 * last[0], last[1], cache.archive.copy(), cache.ledger
        if number % 150 == 100:
            assert_invariants(cache)
            cache = (H2OKVCache.restored(cache.arrays, cache.header), cache.copy())[number % 2]
    assert (cache.offset, cache.archive.first, cache.archive.length) == (100_000, 0, 100_000)
    assert cache.archive.nbytes == 100_000 * (2 * (16 + 2 * 4) + 4)
    assert len(asked) == 8

    for offset, (queries, keys, archive, ledger) in asked.items():
        old = archive.rows(0, offset)[0]
        head = BruteCache(config, Storage(), 1, 1).heads[0][0]
        head.seen, head.old_keys = offset, [*np.array(old[0, 0], np.float64)]
        q, k = (np.array(array[0].astype(mx.float32), np.float64) for array in (queries, keys))
        wanted = head.wanted(q, k[0], 32**-0.5, None)
        assert len(wanted) == config.recall_rows
        assert held(SimpleNamespace(ledger=ledger)) == [[sorted(wanted)]]
