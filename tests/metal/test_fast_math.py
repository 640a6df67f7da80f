"""The kernels compiled with fast math, as Xcode compiles them unless it is told not to.

Sums are then taken in any order, divisions are approximate, and the compiler may take
infinity and NaN for impossible: outputs, kept positions and hidden rows must still be
right. Bits of quantized rows may differ at ties.
"""

import mlx.core as mx
import pytest

from h2o_py import reference
from h2o_py.cache import H2OKVCache
from tests.h2o_py.cases import kept, largest_difference, random_tokens, step
from tests.metal.backend import evaluated, load_host, make_backend
from tests.metal.test_attention_kernels import (
    DTYPES,
    MASKS,
    MAX,
    PHONE,
    check_dense,
    check_quantized,
    make_mask,
    problem,
)
from tests.metal.test_cache_kernels import CONFIG, FORMATS

LOWEST = mx.finfo(mx.float32).min


@pytest.fixture(scope="module")
def fast_host():
    return load_host("_metal_host_fast_math")


@pytest.fixture(scope="module")
def fast_backend(fast_host):
    return make_backend(fast_host)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masks_of_minus_infinity_still_hide(fast_host, fast_backend, dtype, mask):
    mx.random.seed(1)
    for architecture, rows in ((PHONE, 70), (MAX, 1030)):
        fast_host.set_architecture(architecture)
        q, k, v = problem(4, rows, dim=64, dtype=dtype)
        values = make_mask(mask, 1, 2, 4, rows, dtype)
        check_dense(fast_host, fast_backend, q, k, v, values, None, mask)
        check_quantized(fast_host, fast_backend, q, k, v, (8, 4), 32, values, None, mask)


@pytest.mark.parametrize("score", ["peak", "softmax", "abs_logit"])
def test_dense_decodes_keep_what_the_reference_keeps(fast_host, fast_backend, score):
    mx.random.seed(2)
    fast_host.set_architecture(PHONE)
    config = CONFIG.__class__(40, sink_size=2, recent_budget=10, score=score)
    ours, theirs = H2OKVCache(config, fast_backend), H2OKVCache(config, reference)
    for i in range(120):
        new = random_tokens(1)
        out, wanted = step(ours, *new), step(theirs, *new)
        evaluated(fast_host, out, *ours.ledger)
        assert largest_difference(out, wanted) <= 1e-4, i
        assert kept(ours) == kept(theirs), i


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "dense"])
def test_quantized_decodes_stay_within_their_steps(fast_host, fast_backend, name):
    mx.random.seed(3)
    ours, theirs = FORMATS[name](CONFIG, fast_backend), H2OKVCache(CONFIG, reference)
    for i in range(40):  # nothing is evicted yet: the same rows, rounded
        new = random_tokens(1)
        out, wanted = step(ours, *new), step(theirs, *new)
        evaluated(fast_host, out, *ours.ledger)
        assert largest_difference(out, wanted) <= (0.6 if "4" in name else 0.05), i
    for _ in range(60):
        evaluated(fast_host, step(ours, *random_tokens(1)), *ours.ledger)
    assert ours.length == 48


@pytest.mark.parametrize("value", [0.0, float("inf"), float("nan")])
def test_odd_keys_leave_a_finite_ledger(fast_host, fast_backend, value):
    mx.random.seed(4)
    cache = H2OKVCache(CONFIG, fast_backend)
    for i in range(90):
        q, k, v = random_tokens(1)
        if i in (10, 60):
            k = mx.full(k.shape, value)
        cache.update_and_fetch(k, v)
        evaluated(fast_host, cache.attend(q, scale=0.125, mask=None), *cache.ledger)
        assert mx.isfinite(cache.ledger.scores).all().item(), i
        assert mx.isfinite(cache.ledger.novelty).all().item(), i
    assert all(len(set(head)) == 48 for head in kept(cache)[0])
