"""Prompts far longer than the cache, in chunks of any size."""

from __future__ import annotations

import importlib

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache

from h2o_pack.measure.held import active_memory
from h2o_py.config import H2OConfig
from h2o_py.models import STORAGES, make_h2o_cache
from tests.h2o_py.cases import kept, largest_difference, random_tokens, step
from tests.h2o_py.small_models import VOCABULARY, small_model
from tests.nightly import nightly_except

EVERYDAY = ("dense", "k8v4", "r16h4")

generate_step = importlib.import_module("mlx_lm.generate").generate_step

CHUNKS = (1, 7, 64, 300)
SHARP = {"heads": 2, "kv_heads": 1, "dim": 32}


class Plain(KVCache):
    """The growing cache that the measurement must be able to tell."""

    def attend(self, queries, **options):
        keys, values = (rows[..., : self.offset, :] for rows in (self.keys, self.values))
        return mx.fast.scaled_dot_product_attention(queries, keys, values, **options)

    def make_mask(self, count):
        return super().make_mask(count, return_array=False, window_size=None)


def peaks_up_to(counts, cache, chunk):
    """Most bytes above the start while one layer's cache reads up to each count of tokens."""
    mx.clear_cache()
    before = active_memory()
    fed, peaks = 0, []
    for count in counts:
        mx.reset_peak_memory()
        while fed < count:
            new = random_tokens(chunk, heads=2, kv_heads=1)
            mx.eval(step(cache, *new), cache.state)
            fed += chunk
        peaks.append(mx.get_peak_memory() - before)
    return peaks


@pytest.mark.parametrize("kv", nightly_except(EVERYDAY, STORAGES))
def test_8000_tokens_take_no_more_memory_than_2000(kv):
    cache = STORAGES[kv](H2OConfig(512), 64)
    short, long = peaks_up_to((2000, 8000), cache, 512)
    assert cache.offset >= 8000
    assert long <= 1.03 * short


def test_the_measurement_tells_a_cache_that_grows():
    short, long = peaks_up_to((1000, 3000), Plain(), 256)
    assert long > 1.5 * short


@pytest.mark.usefixtures("routed")
def test_a_model_reads_an_8000_token_prompt_in_flat_memory():
    model = small_model("qwen3")
    peaks = {}
    for tokens in (2000, 8000):
        prompt = mx.random.randint(0, VOCABULARY, (tokens,))
        caches = make_h2o_cache(model, H2OConfig(512))
        mx.eval(prompt)
        mx.clear_cache()
        before = active_memory()
        mx.reset_peak_memory()
        steps = generate_step(
            prompt, model, max_tokens=4, prompt_cache=caches, prefill_step_size=512
        )
        assert len(list(steps)) == 4
        assert {(c.offset, c.length) for c in caches} == {(tokens + 4, 512)}
        peaks[tokens] = mx.get_peak_memory() - before
    assert peaks[8000] <= 1.03 * peaks[2000]


@pytest.mark.parametrize("kv", nightly_except(EVERYDAY, STORAGES))
def test_a_chunk_leaves_no_more_memory_in_use_than_the_cache_says(kv):
    cache = STORAGES[kv](H2OConfig(512), 64)
    for _ in range(3):
        new = random_tokens(400, heads=2, kv_heads=1)
        overhead = active_memory() - cache.nbytes
        mx.eval(step(cache, *new), cache.state)
        del new
    reused = 16 * 1024  # MLX takes freed buffers that are up to two pages larger
    assert active_memory() - cache.nbytes <= overhead + reused


def by_position(cache, values):
    """One KV head's values, in the order of positions."""
    order = mx.argsort(cache.positions[0, 0, : cache.length])
    return values[0, 0, : cache.length][order]


@pytest.mark.parametrize("score", ["peak", "softmax", "abs_logit"])
def test_scores_depend_on_chunking_by_the_observation_window_alone(score):
    wide = H2OConfig(512, score=score, observation_window=300)
    caches = [_refilled(wide, chunk) for chunk in CHUNKS]
    scores = [by_position(cache, cache.scores) for cache in caches]
    for row in scores[1:]:
        assert largest_difference(row, scores[0]) < 1e-5
    narrow = H2OConfig(512, score=score, observation_window=20)
    unseen = [by_position(c, c.scores) for c in (_refilled(narrow, chunk) for chunk in CHUNKS)]
    assert largest_difference(unseen[0], unseen[1]) < 1e-5  # no chunk longer than the window
    assert largest_difference(unseen[0], unseen[3]) > 1e-3


def test_without_scores_and_without_attention_the_kept_rows_are_those_of_novelty():
    config = H2OConfig(
        64, sink_size=4, heavy_budget=20, recent_budget=24, novelty=2.0, novelty_margin=0.0
    )
    complete = _refilled(H2OConfig(512, novelty_margin=0.0), 300)
    novelty = by_position(complete, complete.ledger.novelty).tolist()
    assert sum(value > 0 for value in novelty) > 36
    cache = _refilled(config, 300, attend=False)
    evictable = sorted(range(4, 276), key=lambda p: novelty[p])
    assert kept(cache)[0][0] == sorted({*range(4), *range(276, 300), *evictable[-36:]})


def _refilled(config, chunk, *, attend=True):
    """A cache that has seen the same 300 tokens in chunks of this size."""
    mx.random.seed(2)
    queries, keys, values = random_tokens(300, **SHARP)
    cache = STORAGES["dense"](config, 64)
    for begin in range(0, 300, chunk):
        part = slice(begin, begin + chunk)
        new = [a[:, :, part] for a in (queries, keys, values)]
        if attend:
            mx.eval(step(cache, *new))
        else:
            cache.update_and_fetch(*new[1:])
            cache.settle()
    return cache
