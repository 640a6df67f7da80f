"""Recall over random traffic: equal to a brute force in numpy that shares no code with it."""

import dataclasses
import random
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_py import H2OConfig, H2ORecall
from h2o_py.cache import H2OKVCache
from tests.h2o_py.brute_recall import BruteCache, Storage
from tests.h2o_py.cases import assert_invariants, held, kept, make_cache, random_tokens, step
from tests.h2o_py.test_traffic import configs, loaded, recalls
from tests.nightly import nightly_except

DIM = 32
AGAIN = (lambda cache: cache, lambda cache: cache.copy(), loaded)
"""What happens to the cache between two calls."""


@pytest.mark.parametrize(
    "kv", nightly_except(["dense", "r8h4"], ["dense", "8", "k8v4", "4", "r16h8", "r8h4"])
)
@given(data=st.data())
@settings(max_examples=10)
def test_recall_equals_a_brute_force_whatever_the_traffic(kv, data):
    """By the core; `test_traffic` holds the reference against it."""
    config = dataclasses.replace(data.draw(configs(), "config"), recall=data.draw(recalls()))
    batch, kv_heads, group = (
        data.draw(st.integers(1, most), name)
        for most, name in ((2, "batch"), (2, "heads"), (3, "group"))
    )
    steps = data.draw(
        st.lists(st.sampled_from([1, 1, 1, 2, 3, 7, 19]), min_size=4, max_size=12)
    )
    mx.random.seed(data.draw(st.integers(0, 1000), "seed"))
    sinks = mx.random.normal((kv_heads * group,)) if data.draw(st.booleans(), "sinks") else None
    shape = {"batch": batch, "heads": kv_heads * group, "kv_heads": kv_heads, "dim": DIM}

    cache = make_cache(kv, config, group_size=32)
    form = cache.row_format
    storage = Storage(form.key_bits, form.value_bits, form.recent_bits)
    brute = BruteCache(config, storage, batch, kv_heads)
    again = data.draw(st.sampled_from(AGAIN), "again")
    for tokens in steps:
        cache = again(cache)
        queries, keys, values = random_tokens(tokens, **shape)
        queries = 3 * queries  # so sharp that no two shares are alike
        mask = cache.make_mask(tokens)
        cache.update_and_fetch(keys, values)
        out = cache.attend(queries, scale=DIM**-0.5, mask=mask, sinks=sinks)
        expected = brute.step(queries, keys, values, DIM**-0.5, sinks)
        assert kept(cache) == brute.kept()
        if config.recall_rows:
            assert held(cache) == brute.held()
        assert_invariants(cache)
        np.testing.assert_allclose(np.array(out), expected, atol=2e-4)
    if config.recall_rows:
        assert_archived(cache, brute)


def assert_archived(cache, brute):
    assert (cache.archive.first, cache.archive.length) == (0, cache.offset)
    arrays = [np.array(array) for array in cache.archive.rows(0, cache.offset)]
    for b, heads in enumerate(brute.heads):
        for h, head in enumerate(heads):
            expected_arrays = (head.old_keys, head.old_values, head.old_novelty)
            for array, expected in zip(arrays, expected_arrays, strict=True):
                np.testing.assert_allclose(array[b, h], np.array(expected), atol=1e-5)


LARGEST_CHUNK = 446
"""1 + 2 + ... + 446 = 99,681."""
SHAPE = {"heads": 2, "kv_heads": 1, "dim": 32}


@pytest.mark.nightly("test_recall_equals_a_brute_force_whatever_the_traffic")
def test_100000_tokens_in_chunks_of_every_size():
    """What is held after some recalls is what a brute force wants; the archive has it all."""
    config = H2OConfig(
        96, sink_size=4, heavy_budget=40, recent_budget=40, recall=H2ORecall(ask=4, every=1)
    )
    queries_at = {}

    cache = H2OKVCache(config)
    sizes = [*range(1, LARGEST_CHUNK + 1), 100_000 - LARGEST_CHUNK * (LARGEST_CHUNK + 1) // 2]
    random.Random(5).shuffle(sizes)  # noqa: S311  not for secrets
    mx.random.seed(5)
    for number, tokens in enumerate(sizes):
        queries, keys, values = random_tokens(tokens, **SHAPE)
        mx.eval(step(cache, 4 * queries, keys, values), cache.arrays)
        asks = min(4, tokens)
        offset = cache.offset - asks
        if len(queries_at) < offset // 12_000:
            last = queries[:, :, -asks:], keys[:, :, -asks:]
            queries_at[offset] = 4 * last[0], last[1], cache.archive.copy(), cache.ledger
        if number % 150 == 100:
            assert_invariants(cache)
            cache = (H2OKVCache.restored(cache.arrays, cache.header), cache.copy())[number % 2]
    assert (cache.offset, cache.archive.first, cache.archive.length) == (100_000, 0, 100_000)
    assert cache.archive.nbytes == 100_000 * (2 * (16 + 2 * 4) + 4)
    assert len(queries_at) == 8

    for offset, (queries, keys, archive, ledger) in queries_at.items():
        old = archive.rows(0, offset)[0]
        head = BruteCache(config, Storage(), 1, 1).heads[0][0]
        head.seen, head.old_keys = offset, [*np.array(old[0, 0], np.float64)]
        q, k = (np.array(array[0].astype(mx.float32), np.float64) for array in (queries, keys))
        expected = head.wanted(q, k[0], 32**-0.5, None)
        assert len(expected) == config.recall_rows
        assert held(SimpleNamespace(ledger=ledger)) == [[sorted(expected)]]
