"""A cache without a bound keeps every token in few bits, without scores and ledger."""

import copy
from itertools import product

import mlx.core as mx
import pytest
from mlx_lm.models.cache import (
    KVCache,
    can_trim_prompt_cache,
    load_prompt_cache,
    make_prompt_cache,
    save_prompt_cache,
    trim_prompt_cache,
)

from h2o_pack.measure.held import active_memory
from h2o_py.cache import QuantizedH2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OError, H2OStateError
from h2o_py.models import make_h2o_cache
from h2o_py.routing import routed
from h2o_py.store import load_cache, save_cache
from tests.h2o_py.cases import (
    BACKENDS,
    TOLERANCE,
    largest_difference,
    make_cache,
    random_tokens,
    step,
)
from tests.h2o_py.small_models import small_model
from tests.nightly import nightly_except

FULL = H2OConfig.unbounded()
STORED = ("16", "8", "k8v4", "4")


def filled(kv, tokens=300, backend=None, **shape):
    mx.random.seed(1)
    cache = make_cache(kv, FULL, backend)
    for count in (tokens - 5, *[1] * 5):
        mx.eval(step(cache, *random_tokens(count, **shape)))
    return cache


KINDS = list(product(STORED, TOLERANCE, BACKENDS))
OF_KINDS = [
    ("16", mx.float16, "fast"), ("8", mx.bfloat16, "fallback"), ("k8v4", mx.float32, "fast"),
    ("4", mx.float32, "fallback"), ("4", mx.float16, "fast"),
]  # fmt: skip


@pytest.mark.parametrize(("kv", "dtype", "backend"), nightly_except(OF_KINDS, KINDS), ids=str)
def test_attention_is_that_over_every_token_as_stored(kv, dtype, backend):
    mx.random.seed(3)
    cache = make_cache(kv, FULL, BACKENDS[backend])
    written = []
    for count in (40, 1, 5, 215, 1, 250, 1):
        q, k, v = random_tokens(count, batch=2, dtype=dtype)
        written.append(k)
        mask, sinks = cache.make_mask(count), mx.array([0.5, -1.0, 0.0, 2.0]).astype(dtype)
        keys, values = cache.update_and_fetch(k, v)
        out = cache.attend(q, scale=0.125, mask=mask, sinks=sinks)
        wide = (array.astype(mx.float32) for array in (q, keys, values))
        expected = mx.fast.scaled_dot_product_attention(
            *wide, scale=0.125, mask=mask, sinks=sinks.astype(mx.float32)
        )
        assert largest_difference(out, expected) <= 2 * TOLERANCE[dtype]
    largest_loss = 0.5 if kv == "4" else 0.05
    assert largest_difference(keys, mx.concatenate(written, 2)) < largest_loss
    assert cache.ledger is cache.scores is cache.positions is None
    assert (cache.offset, cache.length, cache.size()) == (513, 513, 513)


def test_an_array_of_masks_hides_rows():
    cache = filled("8", 40)
    q, k, v = random_tokens(3)
    mask = mx.random.uniform(shape=(1, 4, 3, 43)) < 0.5
    keys, values = cache.update_and_fetch(k, v)
    expected = mx.fast.scaled_dot_product_attention(q, keys, values, scale=0.125, mask=mask)
    assert largest_difference(cache.attend(q, scale=0.125, mask=mask), expected) < 1e-5


@pytest.mark.parametrize("kv", STORED)
def test_its_bytes_are_those_of_its_rows(kv):
    cache = filled(kv, 300, dtype=mx.float16)
    row = {"16": 256, "8": 136, "k8v4": 104, "4": 72}[kv]
    assert cache.nbytes == 2 * 512 * row
    assert sum(array.nbytes for array in cache.arrays) == 2 * 300 * row


@pytest.mark.parametrize("kv", STORED)
def test_files_and_copies_continue_identically(kv, tmp_path):
    cache = filled(kv, 300, dtype=mx.bfloat16)
    copies = [cache.copy(), copy.deepcopy(cache)]
    save_prompt_cache(str(tmp_path / "prompt.safetensors"), [cache])
    save_cache(tmp_path / "own.safetensors", [cache], {})
    [upstream], ([own], _) = (
        load_prompt_cache(str(tmp_path / "prompt.safetensors")),
        load_cache(tmp_path / "own.safetensors"),
    )
    later = [random_tokens(count, dtype=mx.bfloat16) for count in (1, 1, 30, 1)]
    outs = [step(cache, *new) for new in later]
    mx.eval(outs)
    for twin in (upstream, own, *copies):
        assert (twin.config, twin.row_format) == (FULL, cache.row_format)
        for new, out in zip(later, outs, strict=True):
            assert largest_difference(step(twin, *new), out) == 0
        for first, second in zip(twin.arrays, cache.arrays, strict=True):
            assert mx.array_equal(first, second).item()


@pytest.mark.parametrize("kv", STORED)
def test_it_can_always_be_trimmed(kv):
    cache, shorter = filled(kv, 600), filled(kv, 600)
    more = [random_tokens(count) for count in (20, 1, 1)]
    queued = [step(cache, *new) for new in more]  # not evaluated before the trim
    before = step(shorter, *more[0])
    assert trim_prompt_cache([cache], 22) == 22
    assert shorter.trim(20) == 20
    assert (cache.is_trimmable(), cache.offset, cache.length) == (True, 600, 600)
    new = random_tokens(1)
    out = step(cache, *new)
    assert largest_difference(out, step(shorter, *new)) == 0
    assert largest_difference(queued[0], before) == 0
    assert cache.trim(2**70) == 601
    assert cache.empty()
    assert cache.arrays == []
    assert step(cache, *new).shape == (1, 4, 1, 64)


@pytest.mark.parametrize("kv", nightly_except(("16", "k8v4"), STORED))
def test_rows_are_written_in_place_whoever_reads_them(kv):
    shape = {"kv_heads": 8, "heads": 8, "dim": 128}
    cache = filled(kv, 1100, **shape)
    mx.eval(cache.rows.pool)
    inputs = [random_tokens(1, **shape) for _ in range(20)]
    mx.eval(inputs, cache.state)
    before = active_memory()
    mx.clear_cache()
    mx.reset_peak_memory()
    for new in inputs:
        out = step(cache, *new)
        mx.async_eval(out)
    mx.eval(out)
    assert mx.get_peak_memory() - before < cache.nbytes / 4


def test_attention_elsewhere_needs_no_warning(recwarn):
    cache = make_cache("8", FULL)
    for count in (50, 1, 1):
        keys, values = cache.update_and_fetch(*random_tokens(count)[1:])
    assert keys.shape[2] == values.shape[2] == cache.offset == 52
    assert not recwarn.list


def test_a_ring_is_refused():
    with pytest.raises(ValueError, match="ring"):
        make_cache("heavy=8,recent=16", FULL)


DAMAGE = {
    "none": lambda keys, values: [],
    "one": lambda keys, values: [keys],
    "three": lambda keys, values: [keys, values, values],
    "fewer tokens": lambda keys, values: [keys[:, :, 1:], values],
    "no dimension": lambda keys, values: [keys, values[0]],
    "half a group": lambda keys, values: [keys[..., :-1], values],
    "no words": lambda keys, values: [keys[..., :0], values],
    "other heads": lambda keys, values: [keys, values[:, :1]],
    "another dtype": lambda keys, values: [keys.astype(mx.int32), values],
    "swapped": lambda keys, values: [values, keys],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_refused(damage):
    cache = filled("k8v4", 70)
    with pytest.raises(H2OStateError):
        QuantizedH2OKVCache.restored(DAMAGE[damage](*cache.arrays), cache.header)


def test_headers_of_bounded_and_unbounded_caches_are_not_mixed_up():
    bounded, cache = make_cache("8", H2OConfig(512)), filled("8", 70)
    mx.eval(step(bounded, *random_tokens(70)))
    for arrays, header in ((bounded.arrays, cache.header), (cache.arrays, bounded.header)):
        with pytest.raises(H2OError):
            QuantizedH2OKVCache.restored(arrays, header)


def test_a_model_generates_as_with_its_own_caches():
    model = small_model("qwen3")
    prompt = mx.array(list(range(1, 90)))

    def logits(caches):
        with routed():
            first = model(prompt[None], cache=caches)
            return mx.concatenate([first, model(mx.array([[7]]), cache=caches)], 1)

    own = logits(make_prompt_cache(model))
    assert largest_difference(logits(make_h2o_cache(model)), own) == 0
    spread = mx.abs(own).max().item()
    for kv, share in (("8", 0.02), ("k8v4", 0.2), ("4", 0.2)):
        caches = make_h2o_cache(model, kv=kv)
        assert largest_difference(logits(caches), own) < share * spread
        assert can_trim_prompt_cache(caches)
        assert all(cache.ledger is None for cache in caches)


def test_the_models_own_caches_keep_everything_in_16_bits():
    assert {type(cache) for cache in make_h2o_cache(small_model("qwen3"))} == {KVCache}


def test_recent_bits_need_a_bound():
    with pytest.raises(H2OError, match="keeps every token"):
        make_h2o_cache(small_model("qwen3"), kv="heavy=8,recent=16")
