"""Recall over random traffic: equal to a brute force in numpy that shares no code with it."""

import dataclasses

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.h2o_py.brute_recall import BruteCache, Storage
from tests.h2o_py.cases import assert_invariants, held, kept, make_cache, random_tokens
from tests.h2o_py.test_traffic import configs, loaded, recalls

DIM = 32
AGAIN = (lambda cache: cache, lambda cache: cache.copy(), loaded)
"""What happens to the cache between two calls."""


@pytest.mark.parametrize("kv", ["dense", "8", "k8v4", "4", "r16h8", "r8h4"])
@given(data=st.data())
@settings(max_examples=20)
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
        wanted = brute.step(queries, keys, values, DIM**-0.5, sinks)
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
