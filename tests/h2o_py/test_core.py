"""The policy as its rules say: what a score is, and which row goes."""

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
    config = H2OConfig(12, sink_size=2, heavy_budget=4, recent_budget=3)
    cache = H2OKVCache(config, BACKENDS[name])
    same = mx.ones((1, 2, 20, 8))
    step(cache, mx.zeros((1, 4, 20, 8)), same, same, mask=mx.ones((20, 20), mx.bool_))
    assert kept(cache)[0][0] == [0, 1, *range(10, 20)]


def test_scores_follow_the_closed_form_of_the_average():
    cache = H2OKVCache(H2OConfig(200, score="abs_logit"))
    mx.random.seed(3)
    q, k, v = random_tokens(70, dim=8)  # more than the 64 whose scores count
    step(cache, q, k, v)
    logits = mx.abs(q.reshape(2, 2, 70, 8) @ k.reshape(2, 1, 70, 8).swapaxes(2, 3)) * 8**-0.5
    m = logits.mean(axis=1)  # [Hkv, L, N]
    expected = 0.95**63 * m[:, 6, 0]
    for query in range(7, 70):
        expected = expected + 0.05 * 0.95 ** (69 - query) * m[:, query, 0]
    assert mx.allclose(cache.scores[0, :, 0], expected, atol=1e-6).item()
    assert mx.allclose(cache.scores[0, :, 69], m[:, 69, 69], atol=1e-6).item()


def test_scores_of_peak_fade_and_rise():
    cache = H2OKVCache(H2OConfig(200))
    keys = mx.array([[[[4.0, 0.0]]]])
    for query in ([0.0, 0.0], [0.0, 0.0], [8.0, 0.0]):
        step(cache, mx.array(query).reshape(1, 1, 1, 2), keys, keys)
        keys = mx.zeros((1, 1, 1, 2))
    assert cache.scores[0, 0, 0].item() == pytest.approx(1.0, abs=1e-6)
    step(cache, mx.zeros((1, 1, 1, 2)), keys, keys)
    assert cache.scores[0, 0, 0].item() == pytest.approx(0.999, abs=1e-6)


def test_an_additive_mask_that_means_to_hide_leaves_scores_alone():
    config = H2OConfig.paper(40)
    q, k, v = random_tokens(6)
    hidden, plain = H2OKVCache(config), H2OKVCache(config)
    bias = mx.where(mx.arange(6) == 2, -1e9, 0.0).reshape(1, 1, 1, 6)
    step(hidden, q, k, v, mask=mx.broadcast_to(bias, (1, 1, 6, 6)))
    step(plain, q, k, v, mask=mx.zeros((1, 1, 6, 6)))
    assert (hidden.scores[..., 2] == -1).all().item()
    assert largest_difference(hidden.scores[..., 3], plain.scores[..., 3]) < 1e-6


@pytest.mark.parametrize(
    "kv", ["16", "8", "k8v4", "4", "heavy=8,recent=16", "heavy=4,recent=8"]
)
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
    arguments = {"key_dim": 8, "tokens": 1, "offset": 0, **change}
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
