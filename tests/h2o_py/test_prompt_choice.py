"""One choice of positions for all layers of a model, made at prompts."""

import copy

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_pack.parity import reference
from h2o_pack.parity.reference.recall import Ballot
from h2o_py import H2OConfig, H2ORecall, make_h2o_cache
from h2o_py._compiled import ext
from h2o_py.cache import H2OKVCache, join
from h2o_py.routing import routed
from tests.h2o_py import core
from tests.h2o_py.cases import held, kept, random_tokens, step
from tests.h2o_py.small_models import small_model

LAYERS = 3
SIZES = {"sink_size": 2, "heavy_budget": 14, "recent_budget": 9}


def config(**changes):
    recall = {"rows": 10, "ask": 4, "archive_bits": 16, **changes}
    return H2OConfig(40, **SIZES, recall=H2ORecall(**recall))


def joined(settings):
    caches = [H2OKVCache(settings) for _ in range(LAYERS)]
    join(caches)
    return caches


def traffic(seed=4, chunks=(70, 1, 1, 30, 1, 1, 1, 12, 1), **shape):
    """For each call of a model the new tokens of each layer."""
    mx.random.seed(seed)
    return [[random_tokens(tokens, **shape) for _ in range(LAYERS)] for tokens in chunks]


def run(caches, calls, sinks=None):
    """The outputs of each call, and what is held after it once the next one begins."""
    for new in calls:
        yield [
            step(cache, 3 * queries, keys, values, sinks=sinks)
            for cache, (queries, keys, values) in zip(caches, new, strict=True)
        ]


def finished(caches):
    """Bring back what was chosen, as the next token would."""
    for cache in caches:
        mx.eval(cache.arrays)
    return caches


def softmax_over_all(queries, keys, values, sinks=None):
    """Attention of the last queries to all keys, causally among their own, in float64.

    Returns the output and the share of each key before those of the queries [B, Hq, L, N].
    """
    q, k, v = (np.array(a.astype(mx.float32), np.float64) for a in (queries, keys, values))
    group, asks, length = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    logits = 3 * q @ k.swapaxes(2, 3) * q.shape[3] ** -0.5
    hidden = np.arange(length) > length - asks + np.arange(asks)[:, None]
    weights = np.exp(np.where(hidden, -np.inf, logits))
    total = weights.sum(axis=3, keepdims=True)
    if sinks is not None:
        total = total + np.exp(np.array(sinks, np.float64))[:, None, None]
    shares = weights / total
    return shares @ v, shares[..., : length - asks]


@pytest.mark.parametrize(("ask", "with_sinks"), [(1, False), (4, True), (12, False)])
def test_the_last_tokens_of_a_prompt_attend_to_all_tokens(ask, with_sinks):
    caches, calls = joined(config(ask=ask)), traffic(batch=2)
    sinks = mx.random.normal((4,)) if with_sinks else None
    for count, outs in enumerate(run(caches, calls, sinks), 1):
        tokens = calls[count - 1][0][0].shape[2]
        if tokens == 1 or count == 1:  # at first nothing is evicted before the last ones
            continue
        asks = min(ask, tokens)
        for layer, out in enumerate(outs):
            keys, values = (
                mx.concatenate([call[layer][n] for call in calls[:count]], 2) for n in (1, 2)
            )
            queries = calls[count - 1][layer][0][:, :, -asks:]
            expected, _ = softmax_over_all(queries, keys, values, sinks)
            np.testing.assert_allclose(np.array(out[:, :, -asks:]), expected, atol=3e-5)


def test_all_layers_and_heads_hold_what_most_looks_point_to():
    caches, calls = joined(config(threshold=0)), traffic(batch=2)
    votes, before = 0, sum(new[0][0].shape[2] for new in calls[:7])
    for outs in run(caches, calls[:7]):
        mx.eval(outs)
    for layer, (queries, keys, values) in enumerate(calls[7]):
        mx.eval(step(caches[layer], 3 * queries, keys, values))
        prompt_calls = calls[:8]
        all_keys, all_values = (
            mx.concatenate([c[layer][n] for c in prompt_calls], 2) for n in (1, 2)
        )
        _, shares = softmax_over_all(queries[:, :, -4:], all_keys, all_values)
        votes = votes + (shares.max(axis=2) ** 2).sum(axis=1)
    assert before + 12 - 4 == votes.shape[1]
    for b, row in enumerate(votes):
        expected = sorted(brute_choice(row.tolist(), 0, before + 12, 10, caches[0].config))
        for cache in finished(caches):
            assert held(cache)[b] == [expected] * 2
            assert all(set(expected) <= set(head) for head in kept(cache)[b])


def brute_choice(asked_for, first, seen, rows, config):
    """The rule of choosing for one sequence, position by position."""
    recall, pinned = config.recall, {p for b, e in config.pinned for p in range(b, e)}
    stands = {
        n: value
        for n, value in enumerate(asked_for, first)
        if n >= config.sink_size and n < seen - config.recent_budget and n not in pinned
    }
    counts = {
        n: max(
            stands[m] for m in range(n - recall.spread, n + recall.before + 1) if m in stands
        )
        for n in stands
        if stands[n] >= 0
    }
    most = max((value for value in stands.values()), default=0)
    least = np.float32(most) * (np.float32(recall.threshold) / np.float32(100))
    fits = [n for n, count in counts.items() if count > 0 and count >= least]
    best = sorted(fits, key=lambda n: (-counts[n], n))[:rows]
    return best + [-1] * (rows - len(best))


@given(data=st.data())
@settings(max_examples=150)
def test_the_choice_is_the_rule(data):
    length = data.draw(st.integers(1, 60), "length")
    recall = H2ORecall(
        spread=data.draw(st.integers(0, 20)),
        before=data.draw(st.integers(0, 6)),
        threshold=data.draw(st.sampled_from([0, 20, 50, 100, 130])),
    )
    policy = H2OConfig(40, **SIZES, pinned=((6, 8),), recall=recall)
    levels = st.sampled_from([-1.0, 0.0, 0.125, 0.3, 0.3, 1.0, 2.5])
    asked_for = data.draw(st.lists(levels, min_size=length, max_size=length), "asked for")
    first = 256 * data.draw(st.integers(0, 1), "first")
    end = first + length + data.draw(st.integers(0, 12), "newer")
    rows = data.draw(st.integers(1, 20), "rows")
    expected = brute_choice([float(np.float32(a)) for a in asked_for], first, end, rows, policy)
    for backend in (core, reference):
        positions = backend.chosen_positions(
            mx.array([asked_for], mx.float32), first=first, seen=end, rows=rows, config=policy
        )
        assert positions.tolist() == [expected], backend.__name__


def test_what_is_held_does_not_depend_on_when_the_state_is_read():
    calls = traffic(chunks=(70, 30, 5, 1, 1))
    eager, unread = joined(config()), joined(config())
    for ours, theirs in zip(run(eager, calls), run(unread, calls), strict=True):
        for out, other in zip(ours, theirs, strict=True):
            assert mx.array_equal(out, other)
        finished(eager)
    for ours, theirs in zip(finished(eager), finished(unread), strict=True):
        assert all(
            mx.array_equal(*pair) for pair in zip(ours.arrays, theirs.arrays, strict=True)
        )


def test_copies_share_no_votes():
    """Of two conversations that go on by turns each holds what it holds alone."""
    calls, others = traffic(chunks=(70, 30, 1, 9, 1)), traffic(seed=5, chunks=(30, 1, 9, 1))
    caches, alone, other_alone = (joined(config()) for _ in range(3))
    for one in (caches, alone, other_alone):
        for outs in run(one, calls[:1]):
            mx.eval(outs)
    twins = copy.deepcopy(caches)
    for new, other in zip(calls[1:], others, strict=True):
        for some, tokens in ((caches, new), (alone, new), (twins, other), (other_alone, other)):
            mx.eval(next(run(some, [tokens])))
    for ours, theirs in ((caches, alone), (twins, other_alone)):
        for one, two in zip(finished(ours), finished(theirs), strict=True):
            assert held(one) == held(two)
            assert kept(one) == kept(two)
    assert held(caches[0]) != held(twins[0])


def test_a_model_makes_caches_that_choose_together():
    model = small_model("llama")
    settings = H2OConfig(40, **SIZES, recall=H2ORecall(rows=10, ask=4))
    mx.random.seed(1)
    prompt = mx.random.randint(0, 50, (1, 90))
    for one_choice, together in ((True, {1}), (False, {2, 3, 4, 5, 6, 7, 8})):
        caches = make_h2o_cache(model, settings, one_choice=one_choice)
        with routed():
            mx.eval(model(prompt, cache=caches))
            mx.eval(model(prompt[:, :20], cache=caches))
        choices = {tuple(head) for cache in finished(caches) for head in held(cache)[0]}
        assert len(choices) in together


def test_layers_whose_oldest_tokens_are_gone_vote_on_what_all_have():
    settings = H2OConfig(20, sink_size=0, recall=H2ORecall(spread=0, before=0))
    late = mx.zeros((1, 2, 25))
    late[:, :, 3] = 9.0
    for ballot, policy in (
        (ext.Ballot(30), (core._native(settings), settings.recall)),
        (Ballot(30), (settings,)),
    ):
        ballot.add(0, mx.ones((1, 2, 30)), 0, *policy)
        ballot.add(1, late, 5, *policy)
        assert ballot.chosen()[0].tolist()[:2] == [8, -1]


def test_layers_that_ask_with_other_numbers_of_tokens_choose_together_too():
    caches = [H2OKVCache(config(ask=ask)) for ask in (4, 7, 1)]
    join(caches)
    for _ in run(caches, traffic(chunks=(70, 1, 12, 1))):
        pass
    positions = [held(cache) for cache in finished(caches)]
    assert positions[0] == positions[1] == positions[2]


def with_chosen(cache, chosen):
    """The cache's arrays with other chosen positions, which stand behind the ledger's six."""
    arrays = list(cache.arrays)
    assert arrays[7].dtype == mx.int32
    return [*arrays[:7], chosen, *arrays[8:]]


def test_chosen_positions_that_no_cache_has_are_refused():
    caches = joined(config(rows=4))
    for _ in run(caches, traffic(chunks=(70, 12, 1))):
        pass
    cache, *_ = finished(caches)
    positions = cache.chosen
    restored = H2OKVCache.restored(with_chosen(cache, positions), cache.header)
    assert restored.chosen.tolist() == positions.tolist()
    for wrong in (positions + cache.offset, positions * 0 - 2, positions.astype(mx.uint32)):
        with pytest.raises(ValueError, match="chosen"):
            H2OKVCache.restored(with_chosen(cache, wrong), cache.header)
    for wrong in (positions[0], positions[:0], mx.zeros((1, cache.offset + 1), mx.int32)):
        with pytest.raises(ValueError, match="chosen"):
            H2OKVCache.restored(with_chosen(cache, wrong), cache.header)
