"""One choice of positions for all layers of a model, made at prompts."""

import copy

import mlx.core as mx
import numpy as np
import pytest

from h2o_pack.parity import reference
from h2o_pack.parity.reference.recall import Ballot
from h2o_py import H2OConfig, H2ORecall, make_h2o_cache
from h2o_py._compiled import ext
from h2o_py.cache import H2OKVCache, join
from h2o_py.routing import routed
from tests.h2o_py import core
from tests.h2o_py.cases import kept, random_tokens, step
from tests.h2o_py.small_models import small_model
from tests.h2o_py.test_held import held
from tests.h2o_py.test_reading import softmax_over_all

LAYERS = 3
SIZES = {"sink_size": 2, "heavy_budget": 14, "recent_budget": 9}


def config(**changes):
    recall = {"rows": 10, "ask": 4, "archive_bits": 16, **changes}
    return H2OConfig(40, **SIZES, recall=H2ORecall(**recall))


def joined(settings, backend=core):
    caches = [H2OKVCache(settings, backend) for _ in range(LAYERS)]
    join(caches)
    return caches


def traffic(seed=4, chunks=(70, 1, 1, 30, 1, 1, 1, 12, 1), **shape):
    """For each call of a model the new tokens of each layer."""
    mx.random.seed(seed)
    return [[random_tokens(tokens, **shape) for _ in range(LAYERS)] for tokens in chunks]


def run(caches, calls):
    """The outputs of each call, and what is held after it once the next one begins."""
    for new in calls:
        yield [
            step(cache, 3 * queries, keys, values)
            for cache, (queries, keys, values) in zip(caches, new, strict=True)
        ]


def finished(caches):
    """Bring back what was chosen, as the next token would."""
    for cache in caches:
        mx.eval(cache.arrays)
    return caches


def test_the_last_tokens_of_a_prompt_attend_to_all_tokens():
    caches, calls = joined(config()), traffic(batch=2)
    for count, outs in enumerate(run(caches, calls), 1):
        asks = min(4, calls[count - 1][0][0].shape[2])
        seen = [calls[i] for i in range(count)]
        if asks == 1 or count == 1:  # at first nothing is evicted before the last ones
            continue
        for layer, out in enumerate(outs):
            keys, values = (mx.concatenate([c[layer][n] for c in seen], 2) for n in (1, 2))
            queries = calls[count - 1][layer][0][:, :, -asks:]
            wanted, _ = softmax_over_all(queries, keys, values)
            np.testing.assert_allclose(np.array(out[:, :, -asks:]), wanted, atol=3e-5)


def test_all_layers_and_heads_hold_what_most_looks_point_to():
    caches, calls = joined(config(threshold=0)), traffic(batch=2)
    votes, before = 0, sum(new[0][0].shape[2] for new in calls[:7])
    for outs in run(caches, calls[:7]):
        mx.eval(outs)
    for layer, (queries, keys, values) in enumerate(calls[7]):
        mx.eval(step(caches[layer], 3 * queries, keys, values))
        seen = calls[:8]
        all_keys, all_values = (mx.concatenate([c[layer][n] for c in seen], 2) for n in (1, 2))
        _, strongest = softmax_over_all(queries[:, :, -4:], all_keys, all_values)
        votes = votes + (strongest**2).sum(axis=1)
    assert before + 12 - 4 == votes.shape[1]
    for b, row in enumerate(votes):
        stands = np.where(
            (np.arange(len(row)) >= 2) & (np.arange(len(row)) < before + 12 - 9), row, -1.0
        )
        counts = [stands[max(0, n - 16) : n + 5].max() for n in range(len(row))]
        fits = [n for n in range(len(row)) if stands[n] >= 0]
        wanted = sorted(sorted(fits, key=lambda n: (-counts[n], n))[:10])
        for cache in finished(caches):
            assert held(cache)[b] == [wanted] * 2
            assert all(set(wanted) <= set(head) for head in kept(cache)[b])


@pytest.mark.parametrize("every", [0, 2])
def test_core_and_reference_agree_over_a_conversation(every):
    caches = [
        joined(config(every=every, archive_bits=4), backend) for backend in (core, reference)
    ]
    calls = traffic(chunks=(70, 1, 1, 30, 1, 1, 1, 1, 12, 1, 1, 1, 1), batch=2)
    for ours, theirs in zip(run(caches[0], calls), run(caches[1], calls), strict=True):
        for out, wanted in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.array(out), np.array(wanted), atol=5e-5)
        for mine, its in zip(*caches, strict=True):
            assert mine.positions.tolist() == its.positions.tolist()
            assert held(mine) == held(its)
    assert [cache.recalled for cache in caches[0]] == [cache.recalled for cache in caches[1]]
    assert caches[0][0].recalled > 0


def test_what_is_held_does_not_depend_on_when_the_state_is_read():
    calls = traffic(chunks=(70, 30, 5, 1, 1))
    read, unread = joined(config()), joined(config())
    for ours, theirs in zip(run(read, calls), run(unread, calls), strict=True):
        for out, other in zip(ours, theirs, strict=True):
            assert mx.array_equal(out, other)
        finished(read)
    for ours, theirs in zip(finished(read), finished(unread), strict=True):
        assert all(
            mx.array_equal(*both) for both in zip(ours.arrays, theirs.arrays, strict=True)
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


def test_a_prompts_rows_stay_while_generated_tokens_recall():
    """Half of the rows are then a head's own choice, and the prompt's stay besides."""
    caches = joined(config(every=3))
    for outs in run(caches, traffic(chunks=(70, 30, 1, 1, 1))):
        mx.eval(outs)
    chosen = [p for p in caches[0].chosen[0].tolist() if p >= 0]
    for cache in caches:
        for head in held(cache)[0]:
            assert set(chosen) <= set(head)
            assert len(head) <= len(chosen) + 5


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
        chosen = {tuple(head) for cache in finished(caches) for head in held(cache)[0]}
        assert len(chosen) in together


def test_layers_whose_oldest_tokens_are_gone_vote_on_what_all_have():
    settings = H2OConfig(20, sink_size=0, recall=H2ORecall(spread=0, before=0))
    late = mx.zeros((1, 2, 25))
    late[:, :, 3] = 9.0
    for ballot, given in (
        (ext.Ballot(30), (core._native(settings), settings.recall)),
        (Ballot(30), (settings,)),
    ):
        ballot.add(0, mx.ones((1, 2, 30)), 0, *given)
        ballot.add(1, late, 5, *given)
        assert ballot.chosen()[0].tolist()[:2] == [8, -1]


def test_layers_that_ask_with_other_numbers_of_tokens_choose_together_too():
    held_by = []
    for backend in (core, reference):
        caches = [H2OKVCache(config(ask=ask), backend) for ask in (4, 7, 1)]
        join(caches)
        for _ in run(caches, traffic(chunks=(70, 1, 12, 1))):
            pass
        held_by.append([held(cache) for cache in finished(caches)])
    assert held_by[0] == held_by[1]
    assert held_by[0][0] == held_by[0][1] == held_by[0][2]


@pytest.mark.parametrize("backend", [core, reference])
def test_a_loaded_conversation_goes_on_as_if_it_had_not_been_saved(backend):
    """What a head asks for later comes beside the prompt's choice, so that is saved too."""
    calls = traffic(chunks=(70, 1, 12, 1, 1, 1, 1))
    caches = joined(config(rows=4, every=2), backend)
    for _ in run(caches, calls[:4]):
        pass
    loaded = [H2OKVCache.restored(cache.arrays, cache.header) for cache in finished(caches)]
    for cache, twin in zip(caches, loaded, strict=True):
        assert twin.chosen.tolist() == cache.chosen.tolist()
    join(loaded)
    for ours, theirs in zip(run(caches, calls[4:]), run(loaded, calls[4:]), strict=True):
        for out, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.array(out), np.array(other), atol=1e-5)
        for cache, twin in zip(caches, loaded, strict=True):
            assert held(cache) == held(twin)
            assert cache.positions.tolist() == twin.positions.tolist()


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
    chosen = cache.chosen
    restored = H2OKVCache.restored(with_chosen(cache, chosen), cache.header)
    assert restored.chosen.tolist() == chosen.tolist()
    for wrong in (chosen + cache.offset, chosen * 0 - 2, chosen.astype(mx.uint32)):
        with pytest.raises(ValueError, match="chosen"):
            H2OKVCache.restored(with_chosen(cache, wrong), cache.header)
    for wrong in (chosen[0], chosen[:0], mx.zeros((1, cache.offset + 1), mx.int32)):
        with pytest.raises(ValueError, match="chosen"):
            H2OKVCache.restored(with_chosen(cache, wrong), cache.header)


def test_a_cache_that_holds_its_own_choice_beside_the_prompts_is_loaded_again():
    caches = joined(config(rows=1, every=1))
    for _ in run(caches, traffic(chunks=(70, 1, 1))):
        pass
    for cache in caches:
        assert any(len(head) == 2 for sequence in held(cache) for head in sequence)
        twin = H2OKVCache.restored(cache.arrays, cache.header)
        assert held(twin) == held(cache)
