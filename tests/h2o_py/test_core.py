"""The cache's core against its reference: outputs, scores, kept positions, next victim."""

from functools import partial

import mlx.core as mx
import pytest

from h2o_pack.parity import reference
from h2o_py._compiled import ext
from h2o_py.cache import H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.rows import Rows
from tests.h2o_py.cases import (
    BACKENDS,
    TOLERANCE,
    assert_same_state,
    in_pairs,
    kept,
    largest_difference,
    random_tokens,
    step,
)

DTYPES = [mx.float32, mx.float16, mx.bfloat16]
PROMPT_THEN_DECODE = [5, 40, 1, 1, 1, 7, 1, 33, *[1] * 40]


def run_both(config, steps, backend, *, make=H2OKVCache, **shape):
    mx.random.seed(0)
    ours, oracle = make(config, backend=backend), make(config, backend=reference)
    for i, tokens in enumerate(steps):
        new = random_tokens(tokens, **shape)
        out, wanted = step(ours, *new), step(oracle, *new)
        tolerance = TOLERANCE[out.dtype] * (1 if backend is BACKENDS["fast"] else 2)
        assert largest_difference(out, wanted) <= tolerance, i
        assert_same_state(ours, oracle, 2e-5, context=(i, tokens))
        assert ours.length == min(ours.offset, config.max_size)
        for mine, its in zip(in_use(ours), in_use(oracle), strict=True):
            assert mx.array_equal(mine, its), i


def in_use(cache):
    """Rows in use of pool and ring."""
    pool, ring = cache.rows
    ringed = 0 if ring is None else min(cache.offset, cache.config.recent_budget)
    parts = [pool[:, :, : cache.length - ringed]]
    return parts if ring is None else [*parts, ring[:, :, :ringed]]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("score", "novelty", "dtype"),
    in_pairs(("peak", "softmax", "abs_logit"), ((0.0, 0.0), (2.0, 0.0), (2.0, 0.01)), DTYPES),
    ids=str,
)
def test_equals_the_reference_through_chunks_and_steps(name, score, novelty, dtype):
    config = H2OConfig(
        32, score=score, novelty=novelty[0], novelty_margin=novelty[1], observation_window=8,
        pinned=((6, 8),),
    )  # fmt: skip
    run_both(config, PROMPT_THEN_DECODE, BACKENDS[name], dtype=dtype, batch=2)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("bits", "shape", "dtype"),
    in_pairs(((8, 8), (4, 4), (8, 4), (4, 8)), ((64, 64), (96, 32), (128, 128)), DTYPES),
    ids=str,
)
def test_quantized_rows_equal_those_of_the_reference(name, bits, shape, dtype):
    dim, group_size = shape
    make = partial(
        QuantizedH2OKVCache, key_bits=bits[0], value_bits=bits[1], group_size=group_size
    )
    config = H2OConfig(32, observation_window=8)
    steps = [20, 20, 1, 1, 5, *[1] * 30]
    run_both(config, steps, BACKENDS[name], make=make, dim=dim, dtype=dtype)


@pytest.mark.parametrize(
    ("heavy", "recent", "dtype"), in_pairs((16, 8, 4), (16, 8, 4), DTYPES), ids=str
)
def test_rows_of_two_precisions_equal_those_of_the_reference(heavy, recent, dtype):
    make = partial(MixedH2OKVCache, heavy_bits=heavy, recent_bits=recent)
    config = H2OConfig(
        40, sink_size=2, heavy_budget=10, recent_budget=12, observation_window=8,
        pinned=((5, 7),),
    )  # fmt: skip
    steps = [5, 1, 1, 9, 30, 1, 1, 1, 1, 5, 60, *[1] * 60, 7, *[1] * 5]
    run_both(config, steps, BACKENDS["fast"], make=make, batch=2, dtype=dtype)


@pytest.mark.parametrize("instructions", ext.instruction_sets())
def test_every_instruction_set_keeps_the_same_rows(instructions):
    before = ext.instruction_set()
    ext.use_instruction_set(instructions)
    try:
        config = H2OConfig(45, heavy_budget=20, recent_budget=17, pinned=((5, 6), (9, 11)))
        run_both(config, [30, 30, *[1] * 30], BACKENDS["fast"], dim=80)
    finally:
        ext.use_instruction_set(before)


@pytest.mark.parametrize("name", BACKENDS)
def test_equal_importance_evicts_the_lowest_position(name):
    config = H2OConfig(12, sink_size=2, heavy_budget=4, recent_budget=3, novelty=0.0)
    cache = H2OKVCache(config, BACKENDS[name])
    same = mx.ones((1, 2, 1, 8))
    for _ in range(20):
        step(cache, mx.zeros((1, 4, 1, 8)), same, same)
    # All attention is uniform, so older rows peaked higher; among never-equal peaks the
    # newest unprotected is lowest. Equal ones arise when queries see the same rows at once.
    chunk = H2OKVCache(config, BACKENDS[name])
    many = mx.ones((1, 2, 20, 8))
    everything = mx.zeros((20, 20), mx.bool_) | True
    step(chunk, mx.zeros((1, 4, 20, 8)), many, many, mask=everything)
    assert kept(chunk)[0][0] == [0, 1, *range(10, 20)]
    assert len(kept(cache)[0][0]) == 12


def test_scores_follow_the_closed_form_of_the_average():
    config = H2OConfig(40, score="abs_logit", decay=0.5, novelty=0.0, observation_window=3)
    cache = H2OKVCache(config)
    mx.random.seed(3)
    q, k, v = random_tokens(5, dim=8)
    step(cache, q, k, v)
    logits = mx.abs(q.reshape(2, 2, 5, 8) @ k.reshape(2, 1, 5, 8).swapaxes(2, 3)) * 8**-0.5
    m = logits.mean(axis=1)  # [Hkv, L, N]
    wanted = 0.25 * m[:, 2, 0] + 0.25 * m[:, 3, 0] + 0.5 * m[:, 4, 0]
    assert mx.allclose(cache.scores[0, :, 0], wanted, atol=1e-6).item()
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
    whole, parts = H2OKVCache(config), H2OKVCache(config)
    step(whole, q, k, v)
    for begin, end in ((0, 1), (1, 6), (6, 12)):
        step(parts, *(a[:, :, begin:end] for a in (q, k, v)))
    assert largest_difference(whole.ledger.novelty, parts.ledger.novelty) < 1e-6
    return whole.ledger.novelty


def test_novelty_is_the_distance_from_the_sum_of_all_keys_and_ignores_chunking():
    config = H2OConfig(40)
    mx.random.seed(5)
    q, k, v = random_tokens(12, dim=16)
    novelty = novelty_in_any_chunks(config, q, k, v)
    unit = k[0] / mx.linalg.norm(k[0], axis=-1, keepdims=True)
    total = mx.cumsum(unit, axis=1)
    wanted = 1 - (unit * total).sum(-1) / mx.linalg.norm(total, axis=-1)
    assert largest_difference(novelty[0, :, :12], wanted) < 1e-6


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
        others = (mx.tril(cosines, -1)[:, : t + 1, : t + 1]).sum((1, 2)) / max(
            1, t * (t + 1) / 2
        )
        along = (unit[:, t] * total[:, t]).sum(-1) / mx.linalg.norm(total[:, t], axis=-1)
        wanted = mx.maximum(0.0, mx.sqrt(mx.maximum(0.0, others)) - along - 0.125)
        assert largest_difference(novelty[0, :, t], wanted) < 1e-5
    assert (novelty[0, :, 7] > 0.5).all().item()
    assert (novelty == 0).sum().item() > 0


def test_keys_without_a_common_direction_are_not_novel():
    mx.random.seed(5)
    cache = H2OKVCache(H2OConfig(128, novelty_margin=0.25))
    step(cache, *random_tokens(100, dim=16))
    assert cache.ledger.novelty.max().item() < 0.3


def test_an_additive_mask_that_means_to_hide_leaves_scores_alone():
    config = H2OConfig.paper(40, observation_window=1)
    q, k, v = random_tokens(6)
    hidden, plain = H2OKVCache(config), H2OKVCache(config)
    bias = mx.where(mx.arange(6) == 2, -1e9, 0.0).reshape(1, 1, 1, 6)
    step(hidden, q, k, v, mask=mx.broadcast_to(bias, (1, 1, 6, 6)))
    step(plain, q, k, v, mask=mx.zeros((1, 1, 6, 6)))
    assert (hidden.scores[..., 2] == -1).all().item()
    assert largest_difference(hidden.scores[..., 3], plain.scores[..., 3]) < 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 2}, "queries has 1 tokens; tokens is 2."),
        ({"offset": -1}, "offset -1; tokens must be at least 1, offset at least 0."),
        ({"offset": 40}, "1 tokens after 40 need 41 rows; pool has 40. Write them first."),
        ({"mask": mx.zeros((1, 3))}, "mask has shape (1,3); expected one that broadcasts"),
    ],
)
def test_wrong_arguments_of_attend_are_named(change, message):
    from h2o_py import fast

    config = H2OConfig(64)
    ledger = fast.make_ledger(1, 2, 8, config)
    rows = Rows(mx.zeros((1, 2, 40, 16)))
    arguments = {"tokens": 1, "offset": 0, **change}
    with pytest.raises(ValueError) as caught:
        fast.cache_attend(mx.zeros((1, 4, 1, 8)), rows, ledger, config=config, **arguments)
    assert message in str(caught.value)


def test_wrong_arguments_of_write_are_named():
    from h2o_py import fast

    config = H2OConfig(64)
    k = mx.zeros((1, 2, 1, 8))
    victim = mx.zeros((1, 2), mx.int32)
    with pytest.raises(ValueError, match="all but the head dim must agree"):
        fast.cache_write(None, k, mx.zeros((1, 2, 2, 8)), victim, 0, config)
    with pytest.raises(ValueError, match="victim has shape"):
        fast.cache_write(None, k, k, victim.astype(mx.float32), 0, config)
    with pytest.raises(ValueError, match=r"pool has shape \(1,2,9,8\)"):
        fast.cache_write(Rows(mx.zeros((1, 2, 9, 8))), k, k, victim, 0, config)
    with pytest.raises(ValueError, match="offset is 3 but there are no rows"):
        fast.cache_write(None, k, k, victim, 3, config)
