"""Recall over random traffic: equal to a brute force in numpy that shares no code with it."""

import copy
import dataclasses

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_pack.parity import reference
from h2o_py import H2ORecall, fast
from h2o_py.cache import H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
from tests.h2o_py.brute_recall import BruteCache, Storage
from tests.h2o_py.cases import kept, random_tokens
from tests.h2o_py.test_properties import assert_invariants, configs

BACKENDS = {"reference": reference, "fast": fast}
STORAGES = {
    "dense": (H2OKVCache, Storage()),
    "8": (lambda c, b: QuantizedH2OKVCache(c, 8, 32, backend=b), Storage(8, 8)),
    "k8v4": (
        lambda c, b: QuantizedH2OKVCache(c, key_bits=8, value_bits=4, group_size=32, backend=b),
        Storage(8, 4),
    ),
    "4": (lambda c, b: QuantizedH2OKVCache(c, 4, 32, backend=b), Storage(4, 4)),
    "mixed 8 and 16": (
        lambda c, b: MixedH2OKVCache(c, 8, 16, 32, backend=b),
        Storage(8, 8, 16),
    ),
    "mixed 4 and 8": (lambda c, b: MixedH2OKVCache(c, 4, 8, 32, backend=b), Storage(4, 4, 8)),
}
DIM = 32


def loaded(cache):
    """Return the cache as its arrays and strings give it back."""
    twin = copy.copy(cache)  # of the same backend
    twin.arrays, twin.header = cache.arrays, cache.header
    return twin


AGAIN = (lambda cache: cache, lambda cache: cache.copy(), loaded)
"""What happens to the cache between two calls."""


@st.composite
def recalls(draw):
    """Small settings, so that some of the candidates are left out."""
    return H2ORecall(
        rows=draw(st.one_of(st.none(), st.integers(1, 8)), "rows"),
        spread=draw(st.integers(0, 4), "spread"),
        before=draw(st.integers(0, 3), "before"),
        threshold=draw(st.sampled_from([0, 20, 70]), "threshold"),
        ask=draw(st.integers(1, 9), "ask"),
        every=draw(st.integers(0, 4), "every"),
        archive_bits=draw(st.sampled_from([4, 8, 16]), "bits"),
    )


def held(cache):
    """Positions that are held, sorted, as nested lists [B][Hkv][...]."""
    flags, positions = cache.ledger.held.tolist(), cache.positions.tolist()
    return [
        [
            sorted(p for p, flag in zip(*head, strict=True) if flag)
            for head in zip(*sequence, strict=True)
        ]
        for sequence in zip(positions, flags, strict=True)
    ]


def attended(cache, new, sinks=None):
    """One call of the model, which asks sharply enough that no two shares are alike."""
    queries, keys, values = new
    mask = cache.make_mask(keys.shape[2])
    keys, values = cache.update_and_fetch(keys, values)
    return cache.attend(3 * queries, scale=DIM**-0.5, mask=mask, sinks=sinks)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("storage", STORAGES)
@given(data=st.data())
@settings(max_examples=12)
def test_recall_equals_a_brute_force_whatever_the_traffic(storage, backend, data):
    make, bits = STORAGES[storage]
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

    cache = make(config, BACKENDS[backend])
    brute = BruteCache(config, bits, batch, kv_heads)
    again = data.draw(st.sampled_from(AGAIN), "again")
    for tokens in steps:
        cache = again(cache)
        new = random_tokens(tokens, **shape)
        out = attended(cache, new, sinks)
        wanted = brute.step(3 * new[0], *new[1:], DIM**-0.5, sinks)
        assert kept(cache) == brute.kept()
        if config.recall_rows:
            assert held(cache) == brute.held()
        assert_invariants(cache)
        np.testing.assert_allclose(np.array(out), wanted, atol=2e-4)
    if config.recall_rows:
        assert_archived(cache, brute)


def assert_archived(cache, brute):
    assert (cache.archive.first, cache.archive.length) == (0, cache.offset)
    got = [np.array(array) for array in cache.archive.rows(0, cache.offset)]
    for b, heads in enumerate(brute.heads):
        for h, head in enumerate(heads):
            stored = (head.old_keys, head.old_values, head.old_novelty)
            for array, expected in zip(got, stored, strict=True):
                np.testing.assert_allclose(array[b, h], np.array(expected), atol=1e-5)
