"""What tokens read from the archive, as float64 of numpy states it."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import KVCache

from h2o_py import H2OConfig, H2ORecall, make_h2o_cache
from h2o_py._compiled import ext
from h2o_py.cache import H2OKVCache
from h2o_py.policy_fields import DRAFT_TOKENS, LARGEST
from tests.h2o_py.cases import (
    BACKENDS,
    kept,
    largest_difference,
    put,
    random_tokens,
    step,
    using_instructions,
)
from tests.h2o_py.small_models import small_model

SIZES = {"sink_size": 2, "heavy_budget": 14, "recent_budget": 9}
SCALE = 64**-0.5


def config(rows=40, **changes):
    recall = {"ask": 4, "reach": 5, "archive_bits": 16, **changes}
    return H2OConfig(rows, **SIZES, recall=H2ORecall(**recall))


def traffic(chunks, seed=4, **shape):
    """The tokens of each call, whose queries are sharp."""
    mx.random.seed(seed)
    for tokens in chunks:
        queries, keys, values = random_tokens(tokens, **shape)
        yield 3 * queries, keys, values


def attention(queries, keys, values, sees, sinks=None):
    """Attention in float64: queries [B, Hq, L, D] to keys that `sees` [B, Hq, L, N] names."""
    q, k, v = (np.array(a.astype(mx.float32), np.float64) for a in (queries, keys, values))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    weights = np.exp(np.where(sees, q @ k.swapaxes(2, 3) * SCALE, -np.inf))
    total = weights.sum(axis=3, keepdims=True)
    if sinks is not None:
        total = total + np.exp(np.array(sinks, np.float64))[:, None, None]
    return (weights / total) @ v


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("ask", "with_sinks"), [(1, False), (4, True), (12, False), (LARGEST, True)]
)
def test_the_last_tokens_of_a_prompt_attend_to_all_tokens(name, ask, with_sinks):
    cache, calls = H2OKVCache(config(ask=ask), BACKENDS[name]), []
    sinks = mx.random.normal((4,)) if with_sinks else None
    for call in traffic((70, 1, 1, 30, 1, 1, 300, 12), batch=2):
        calls.append(call)
        out, tokens = step(cache, *call, sinks=sinks), call[0].shape[2]
        if tokens == 1 or len(calls) == 1:  # nothing was evicted before the first ones
            continue
        asking = min(ask, tokens)
        keys, values = (mx.concatenate([c[part] for c in calls], 2) for part in (1, 2))
        length = keys.shape[2]
        causal = np.arange(length) <= length - asking + np.arange(asking)[:, None]
        expected = attention(call[0][:, :, -asking:], keys, values, causal, sinks)
        np.testing.assert_allclose(np.array(out[:, :, -asking:]), expected, atol=3e-5)


def best_matches(queries, sketch, kept_positions, reach):
    """The positions of the head's best matches, by the rule, for one sequence.

    queries: [Hq, D]. sketch: [Hkv, n, D]. kept_positions: for each KV head.
    """
    group = queries.shape[0] // sketch.shape[0]
    for head, keys in enumerate(sketch):
        logits = (queries[head * group : (head + 1) * group] @ keys.T * SCALE).max(axis=0)
        evicted = sorted(set(range(len(keys))) - set(kept_positions[head]))
        yield sorted(sorted(evicted, key=lambda n: (-logits[n], n))[:reach])


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("reach", "batch"), [(1, 1), (5, 2), (64, 1)])
def test_generated_tokens_and_drafts_attend_to_rows_and_to_the_evicted_keys_that_match_best(
    name, reach, batch
):
    cache, calls = H2OKVCache(config(reach=reach), BACKENDS[name]), []
    for call in traffic((300, 1, 1, 3, 290, 1, 8, 1, 1), batch=batch):
        before = kept(cache) if calls else None
        victims = None if cache.ledger is None else cache.ledger.victim.tolist()
        positions = None if cache.ledger is None else cache.ledger.positions.tolist()
        calls.append(call)
        out, tokens = step(cache, *call), call[0].shape[2]
        if tokens > DRAFT_TOKENS:
            continue
        keys, values = (mx.concatenate([c[part] for c in calls], 2) for part in (1, 2))
        archived = keys.shape[2] - tokens
        triple = mx.quantize(keys[:, :, :archived], 64, 2)
        sketch = np.array(mx.dequantize(*triple, 64, 2), np.float64)
        queries = np.array(call[0], np.float64)
        sees = np.zeros((batch, 4, tokens, keys.shape[2]), bool)
        sees[..., archived:] = np.tri(tokens, dtype=bool)
        for b, token in np.ndindex(batch, tokens):
            stay = [set(before[b][h]) for h in range(2)]
            if tokens == 1:  # it takes the victim's row
                stay = [stay[h] - {positions[b][h][victims[b][h]]} for h in range(2)]
            matches = best_matches(queries[b, :, token], sketch[b], stay, reach)
            for head, found in enumerate(matches):
                for position in (*found, *stay[head]):
                    sees[b, 2 * head : 2 * head + 2, token, position] = True
        expected = attention(call[0], keys, values, sees)
        np.testing.assert_allclose(np.array(out), expected, atol=3e-5)


@pytest.mark.parametrize("in_operations", [False, True])
@given(data=st.data())
@settings(max_examples=40)
def test_the_best_matches_are_those_of_the_rule(in_operations, data):
    draw = data.draw
    tokens, reach = draw(st.integers(41, 600), "tokens"), draw(st.integers(1, 70), "reach")
    cache = H2OKVCache(config(archive_bits=draw(st.sampled_from([4, 8, 16]), "bits")))
    cache.expects_queries = False
    mx.random.seed(draw(st.integers(0, 1000), "seed"))
    queries, keys, values = random_tokens(tokens)
    step(cache, queries, keys, values)
    end = cache.offset
    positions = ext.matching_positions(
        cache.archive, queries[:, :, -1:], scale=SCALE, kept=cache.positions, end=end,
        reach=reach, in_operations=in_operations,
    )  # fmt: skip
    read_back = cache.archive.rows(0, end)[0]
    sketch = np.array(mx.dequantize(*mx.quantize(read_back, 64, 2), 64, 2), np.float64)
    expected = best_matches(
        np.array(queries[0, :, -1], np.float64), sketch[0], kept(cache)[0], reach
    )
    for head, best in zip(positions[0].tolist(), expected, strict=True):
        assert sorted(p for p in head if p >= 0) == best


@pytest.mark.parametrize("instructions", ext.instruction_sets())
@pytest.mark.parametrize(
    ("dim", "group", "dtype"),
    [(32, 1, mx.float32), (64, 3, mx.bfloat16), (96, 4, mx.float16), (256, 6, mx.float32)],
)
def test_every_instruction_set_finds_the_best_matches(instructions, dim, group, dtype):
    mx.random.seed(dim)
    cache, reach = H2OKVCache(config(reach=9)), 9
    queries, keys, values = random_tokens(333, heads=2 * group, dim=dim, dtype=dtype)
    keys = put(keys, (0, 1, 50, 3), float("nan"))
    step(cache, queries, keys, values)
    queries = queries[:, :, -1:]
    group_size = 32 if dim % 64 else 64
    with using_instructions(instructions):
        positions = ext.matching_positions(
            cache.archive, queries, scale=SCALE, kept=cache.positions, end=333, reach=reach
        )
        mx.eval(positions)
    codes, *factors = mx.quantize(keys, group_size, 2)
    scales, biases = (factor.astype(mx.float32) for factor in factors)
    sketch = mx.dequantize(codes, scales, biases, group_size, 2)
    logits = mx.unflatten(queries[0, :, 0].astype(mx.float32), 0, (2, group)) @ sketch[0].mT
    best = np.array(logits.max(1), np.float64)
    for head, found in enumerate(positions[0].tolist()):
        rest = set(range(333)) - set(kept(cache)[0][head]) - set(found)
        assert len(set(found)) == reach
        assert not set(found) & set(kept(cache)[0][head])
        finite = [n for n in rest if np.isfinite(best[head, n])]
        assert best[head, found].min() > best[head, finite].max() - 1e-4


def test_of_keys_alike_the_oldest_are_read():
    cache = H2OKVCache(config(reach=5))
    same = mx.ones((1, 2, 100, 64))
    step(cache, mx.zeros((1, 4, 100, 64)), same, same)
    positions = ext.matching_positions(
        cache.archive, mx.ones((1, 4, 1, 64)), scale=SCALE, kept=cache.positions, end=100,
        reach=5,
    )  # fmt: skip
    evicted = sorted(set(range(100)) - set(kept(cache)[0][0]))
    assert sorted(positions[0, 0].tolist()) == evicted[:5]


@pytest.mark.parametrize("name", BACKENDS)
def test_with_everything_in_reach_a_cache_gives_what_a_full_one_gives(name):
    """Where all tokens but the first ask or are generated, so that no key has drifted."""
    full = KVCache()
    cache = H2OKVCache(config(reach=LARGEST, ask=LARGEST), BACKENDS[name])
    for queries, keys, values in traffic((30, 1, 60, 1, 300, 1, 1, 7)):
        out = step(cache, queries, keys, values)
        expected = mx.fast.scaled_dot_product_attention(
            queries,
            *full.update_and_fetch(keys, values),
            scale=SCALE,
            mask=None if queries.shape[2] == 1 else "causal",
        )
        assert largest_difference(out, expected) < 3e-5
    assert cache.size() == 40


@pytest.mark.parametrize("name", BACKENDS)
def test_without_reach_generated_tokens_read_nothing(name):
    plain = H2OKVCache(H2OConfig(40, **SIZES), BACKENDS[name])
    cache = H2OKVCache(config(reach=0), BACKENDS[name])
    for call in traffic((30, *[1] * 40)):
        assert mx.array_equal(step(cache, *call), step(plain, *call))
    assert cache.archive_reads == 0


def test_a_row_that_the_archive_outshines_loses_weight():
    """Scores are shares of the softmax over all that a token reads."""
    cache, plain = H2OKVCache(config(reach=64)), H2OKVCache(H2OConfig(40, **SIZES))
    for call in traffic((300, *[1] * 5)):
        step(cache, *call)
        step(plain, *call)
    assert (cache.scores.sum() < plain.scores.sum()).item()


@pytest.mark.usefixtures("routed")
def test_what_is_read_does_not_depend_on_when_the_state_is_evaluated():
    model, prompt = small_model("llama"), mx.arange(150)[None] % 50
    outs = []
    for evaluates in (False, True):
        caches = make_h2o_cache(model, config(archive_bits=4))
        out = model(prompt, cache=caches)
        for _ in range(6):
            if evaluates:
                mx.eval([cache.state for cache in caches])
            out = model(mx.argmax(out[:, -1:], axis=-1), cache=caches)
        outs.append(out)
    assert mx.array_equal(*outs)
