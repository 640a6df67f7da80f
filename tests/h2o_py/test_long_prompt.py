"""Prompts far longer than the cache, in chunks of any size."""

from __future__ import annotations

import random

import mlx.core as mx
import pytest

from h2o_pack.measure.held import active_memory
from h2o_pack.parity import reference
from h2o_py import H2ORecall
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.models import STORAGES
from tests.h2o_py.cases import (
    assert_invariants,
    assert_same_archive,
    kept,
    random_tokens,
    step,
)
from tests.h2o_py.test_traffic import loaded
from tests.nightly import nightly_except

EVERYDAY = ("16", "k8v4", "heavy=4,recent=16")


def peaks_up_to(counts, cache, chunk):
    """Most bytes above the start while one layer's cache reads up to each count of tokens."""
    mx.clear_cache()
    before = active_memory()
    fed, peaks = 0, []
    for count in counts:
        mx.reset_peak_memory()
        while fed < count:
            new = random_tokens(chunk, heads=2, kv_heads=1)
            mx.eval(step(cache, *new), cache.state)
            fed += chunk
        peaks.append(mx.get_peak_memory() - before)
    return peaks


@pytest.mark.parametrize("kv", nightly_except(EVERYDAY, STORAGES))
def test_8000_tokens_take_no_more_memory_than_2000(kv):
    cache = STORAGES[kv](H2OConfig(512), 64)
    short, long = peaks_up_to((2000, 8000), cache, 512)
    assert cache.offset >= 8000
    assert long <= 1.03 * short


@pytest.mark.parametrize("kv", nightly_except(EVERYDAY, STORAGES))
def test_a_chunk_leaves_no_more_memory_in_use_than_the_cache_says(kv):
    cache = STORAGES[kv](H2OConfig(512), 64)
    for _ in range(3):
        new = random_tokens(400, heads=2, kv_heads=1)
        overhead = active_memory() - cache.nbytes
        mx.eval(step(cache, *new), cache.state)
        del new
    reused = 16 * 1024  # MLX takes freed buffers that are up to two pages larger
    assert active_memory() - cache.nbytes <= overhead + reused


LARGEST_CHUNK = 446
"""1 + 2 + ... + 446 = 99,681."""


@pytest.mark.nightly("test_traffic.py, in short conversations")
def test_100000_tokens_in_chunks_of_every_size_are_archived_and_read():
    """At eight moments a restored reference goes on in the same way."""
    recall = H2ORecall(ask=4)
    config = H2OConfig(96, sink_size=4, heavy_budget=40, recent_budget=40, recall=recall)
    cache = H2OKVCache(config)
    sizes = [*range(1, LARGEST_CHUNK + 1), 100_000 - LARGEST_CHUNK * (LARGEST_CHUNK + 1) // 2]
    random.Random(5).shuffle(sizes)  # noqa: S311  not for secrets
    mx.random.seed(5)
    compared = 0
    for number, tokens in enumerate(sizes):
        queries, keys, values = random_tokens(tokens, heads=2, kv_heads=1, dim=32)
        is_compared = compared < cache.offset // 12_000
        caches = [cache, loaded(cache, reference)] if is_compared else [cache]
        for some in caches:
            mx.eval(step(some, 4 * queries, keys, values), some.arrays)
        if is_compared:
            compared += 1
            assert kept(cache) == kept(caches[1])
            assert_same_archive(cache.archive, caches[1].archive)
        if number % 150 == 100:
            assert_invariants(cache)
            cache = (loaded(cache), cache.copy())[number % 2]
    assert compared == 8
    assert (cache.offset, cache.archive.first, cache.archive.length) == (100_000, 0, 100_000)
    assert cache.archive.nbytes == 100_000 * 2 * (32 + 2 * 4)
