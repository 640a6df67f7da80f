"""The policy as its rules say: what a score is, what is novel, and which row goes."""

import mlx.core as mx
import pytest

from h2o_py import fast
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.rows import Rows
from tests.h2o_py.cases import (
    BACKENDS,
    assert_invariants,
    kept,
    largest_difference,
    make_cache,
    random_tokens,
    step,
)


@pytest.mark.parametrize("name", BACKENDS)
def test_equal_importance_evicts_the_lowest_position(name):
    config = H2OConfig(12, sink_size=2, heavy_budget=4, recent_budget=3, novelty=0.0)
    cache = H2OKVCache(config, BACKENDS[name])
    same = mx.ones((1, 2, 20, 8))
    step(cache, mx.zeros((1, 4, 20, 8)), same, same, mask=mx.ones((20, 20), mx.bool_))
    assert kept(cache)[0][0] == [0, 1, *range(10, 20)]


def test_scores_follow_the_closed_form_of_the_average():
    config = H2OConfig(40, score="abs_logit", decay=0.5, novelty=0.0, observation_window=3)
    cache = H2OKVCache(config)
    mx.random.seed(3)
    q, k, v = random_tokens(5, dim=8)
    step(cache, q, k, v)
    logits = mx.abs(q.reshape(2, 2, 5, 8) @ k.reshape(2, 1, 5, 8).swapaxes(2, 3)) * 8**-0.5
    m = logits.mean(axis=1)  # [Hkv, L, N]
    expected = 0.25 * m[:, 2, 0] + 0.25 * m[:, 3, 0] + 0.5 * m[:, 4, 0]
    assert mx.allclose(cache.scores[0, :, 0], expected, atol=1e-6).item()
    assert mx.allclose(cache.scores[0, :, 4], m[:, 4, 4], atol=1e-6).item()


def test_scores_of_peak_fade_and_rise():
    config = H2OConfig(40, decay=0.5, novelty=0.0)
    cache = H2OKVCache(config)
    keys = mx.array([[[[4.0, 0.0]]]])
    for query in ([0.0, 0.0], [0.0, 0.0], [8.0, 0.0]):
        step(cache, mx.array(query).reshape(1, 1, 1, 2), keys, keys)
        keys = mx.zeros((1, 1, 1, 2))
    assert cache.scores[0, 0, 0].item() == pytest.approx(1.0, abs=1e-6)
    step(cache, mx.zeros((1, 1, 1, 2)), keys, keys)
    assert cache.scores[0, 0, 0].item() == pytest.approx(0.5, abs=1e-6)


def novelty_in_any_chunks(config, q, k, v):
    at_once, parts = H2OKVCache(config), H2OKVCache(config)
    step(at_once, q, k, v)
    for begin, end in ((0, 1), (1, 6), (6, 12)):
        step(parts, *(a[:, :, begin:end] for a in (q, k, v)))
    assert largest_difference(at_once.ledger.novelty, parts.ledger.novelty) < 1e-6
    return at_once.ledger.novelty


def test_novelty_is_the_distance_from_the_sum_of_all_keys_and_ignores_chunking():
    config = H2OConfig(40)
    mx.random.seed(5)
    q, k, v = random_tokens(12, dim=16)
    novelty = novelty_in_any_chunks(config, q, k, v)
    unit = k[0] / mx.linalg.norm(k[0], axis=-1, keepdims=True)
    total = mx.cumsum(unit, axis=1)
    expected = 1 - (unit * total).sum(-1) / mx.linalg.norm(total, axis=-1)
    assert largest_difference(novelty[0, :, :12], expected) < 1e-6


def test_a_key_is_novel_when_it_follows_the_mean_less_than_a_typical_one_and_the_margin():
    config = H2OConfig(40, novelty_margin=0.125)
    mx.random.seed(5)
    q, k, v = random_tokens(12, dim=16)
    k = k + 1.0  # keys have a common direction
    k[:, :, 7] = -k[:, :, 7]
    novelty = novelty_in_any_chunks(config, q, k, v)
    unit = k[0] / mx.linalg.norm(k[0], axis=-1, keepdims=True)
    total = mx.cumsum(unit, axis=1)
    cosines = unit @ unit.swapaxes(1, 2)
    for t in range(12):
        mean = (mx.tril(cosines, -1)[:, : t + 1, : t + 1]).sum((1, 2)) / max(1, t * (t + 1) / 2)
        along = (unit[:, t] * total[:, t]).sum(-1) / mx.linalg.norm(total[:, t], axis=-1)
        expected = mx.maximum(0.0, mx.sqrt(mx.maximum(0.0, mean)) - along - 0.125)
        assert largest_difference(novelty[0, :, t], expected) < 1e-5
    assert (novelty[0, :, 7] > 0.5).all().item()
    assert (novelty == 0).any().item()


def test_an_additive_mask_that_means_to_hide_leaves_scores_alone():
    config = H2OConfig.paper(40, observation_window=1)
    q, k, v = random_tokens(6)
    hidden, plain = H2OKVCache(config), H2OKVCache(config)
    bias = mx.where(mx.arange(6) == 2, -1e9, 0.0).reshape(1, 1, 1, 6)
    step(hidden, q, k, v, mask=mx.broadcast_to(bias, (1, 1, 6, 6)))
    step(plain, q, k, v, mask=mx.zeros((1, 1, 6, 6)))
    assert (hidden.scores[..., 2] == -1).all().item()
    assert largest_difference(hidden.scores[..., 3], plain.scores[..., 3]) < 1e-6


@pytest.mark.parametrize("kv", ["dense", "8", "k8v4", "rotated4", "r16h8", "r8h4"])
@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_nan_and_infinity_neither_stop_eviction_nor_corrupt_positions(kv, backend, poison):
    config = H2OConfig(16, sink_size=2, heavy_budget=4, recent_budget=8)
    cache = make_cache(kv, config, backend, 32)
    mx.random.seed(7)
    for t in range(60):
        q, k, v = random_tokens(1, dim=32)
        if t == 20:
            k = k * poison
        if t == 40:
            q = q * poison
        step(cache, q, k, v)
        mx.eval(cache.ledger)
        assert_invariants(cache)
    assert all(20 not in head for head in kept(cache)[0])
    assert mx.isfinite(cache.scores).all().item()
    assert mx.isfinite(step(cache, *random_tokens(1, dim=32))).all().item()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 2}, "queries has 1 tokens; tokens is 2."),
        ({"offset": -1}, "offset -1; tokens must be at least 1, offset at least 0."),
        (
            {"offset": 40},
            "1 tokens after 40 need 41 rows; pool has 40. Call cache_write first.",
        ),
        ({"mask": mx.zeros((1, 3))}, "mask has shape (1,3); expected one that broadcasts"),
    ],
)
def test_wrong_arguments_of_attend_are_named(change, message):
    config = H2OConfig(64)
    ledger = fast.make_ledger(1, 2, config)
    rows = Rows(mx.zeros((1, 2, 40, 16)))
    arguments = {"tokens": 1, "offset": 0, **change}
    with pytest.raises(ValueError) as error:
        fast.cache_attend(mx.zeros((1, 4, 1, 8)), rows, ledger, config=config, **arguments)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": mx.zeros((1, 2, 2, 8))}, "all but the head dim must agree"),
        ({"victim": mx.zeros((1, 2))}, "victim has shape"),
        ({"rows": Rows(mx.zeros((1, 2, 9, 8)))}, r"pool has shape \(1,2,9,8\)"),
        ({"offset": 3}, "offset is 3 but there are no rows"),
    ],
)
def test_wrong_arguments_of_write_are_named(change, message):
    new = mx.zeros((1, 2, 1, 8))
    arguments = {"rows": None, "keys": new, "values": new, "offset": 0, **change}
    arguments.setdefault("victim", mx.zeros((1, 2), mx.int32))
    with pytest.raises(ValueError, match=message):
        fast.cache_write(config=H2OConfig(64), **arguments)
