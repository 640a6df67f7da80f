"""A profile's figures are those of the model's attention, whatever way it is read."""

import dataclasses

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from h2o_pack.measure.profiling import attention, profiler
from h2o_py.routing import routed_attention
from tests.bridge.measure.profiles import (
    TOKENS,
    attention_of,
    figures_by_hand,
    pieces,
    profiled,
)
from tests.h2o_py.small_models import SLIDING, small_model
from tests.nightly import nightly_except

MIXED_KINDS = ["qwen3", "llama sliding", "gemma3_text", "gpt_oss", "lfm2", "falcon_h1"]


def values(figures):
    return list(dataclasses.astuple(figures))


@pytest.mark.parametrize(
    "family",
    nightly_except(
        ["llama sliding", "gpt_oss"], ["qwen3", "llama sliding", "gemma3_text", "gpt_oss"]
    ),
)
def test_figures_are_those_of_the_attention_computed_by_hand(family, monkeypatch):
    model, (piece,) = small_model(family), pieces()
    profile = profiled(model, [piece])
    maps = attention_of(model, piece, monkeypatch)
    assert [layer.index for layer in profile.layers] == list(range(len(maps)))
    for layer, call in zip(profile.layers, maps, strict=True):
        expected = figures_by_hand(*call, profile.first_row)
        np.testing.assert_allclose(values(layer.figures), expected.mean(0), rtol=2e-3)


@pytest.mark.parametrize("family", nightly_except(["gpt_oss", "falcon_h1"], MIXED_KINDS))
def test_reading_in_small_chunks_changes_nothing(family, monkeypatch):
    model = small_model(family)
    complete = profiled(model)
    monkeypatch.setattr(profiler, "CHUNK", 37)
    chunked = profiled(model)
    assert len(complete.layers) == len(chunked.layers) > 0
    for layer, other_layer in zip(complete.layers, chunked.layers, strict=True):
        np.testing.assert_allclose(
            values(layer.figures), values(other_layer.figures), rtol=3e-3
        )


def test_sliding_layers_are_marked_and_read_within_their_window():
    profile = profiled(small_model("llama sliding"))
    kinds = [(layer.kind, layer.window) for layer in profile.layers]
    assert kinds == [("sliding", SLIDING), ("full", None)] * 2
    for layer in profile.layers:
        most = np.log(layer.window or TOKENS)
        assert 0 < layer.figures.entropy <= most
        assert (layer.figures.concentration > 0.999) == (layer.kind == "sliding")


def test_layers_without_attention_are_skipped_by_name():
    profile = profiled(small_model("lfm2"))
    assert [layer.index for layer in profile.layers] == [1, 3]
    assert [(layer.index, layer.cache) for layer in profile.skipped] == [
        (0, "ArraysCache"),
        (2, "ArraysCache"),
    ]
    assert all("recurrent" in layer.reason for layer in profile.skipped)


def test_attention_that_shows_no_logits_is_named():
    profile = profiled(small_model("gemma2"))
    assert not profile.layers
    assert [layer.index for layer in profile.skipped] == [0, 1, 2, 3]
    assert {layer.reason for layer in profile.skipped} == {
        "computes attention itself, to cap the logits"
    }


def test_samples_are_averaged_and_their_spread_is_told(monkeypatch):
    model, texts = small_model("qwen3"), pieces(count=2)
    together = profiled(model, texts)
    apart = [profiled(model, [piece]) for piece in texts]
    for i, layer in enumerate(together.layers):
        figures = np.array([values(profile.layers[i].figures) for profile in apart])
        np.testing.assert_allclose(values(layer.figures), figures.mean(0), rtol=1e-5)
        np.testing.assert_allclose(values(layer.deviations), figures.std(0), atol=1e-5)


def test_the_model_keeps_its_own_attention_afterwards():
    from h2o_py.routing import routing_installed

    profiled(small_model("qwen3"))
    assert not routing_installed()


def test_attention_of_the_same_tokens_counts_once():
    calls = []
    cache = make_prompt_cache(small_model("qwen3"))[0]
    attention.record([cache], lambda layer, chunk: calls.append((layer, chunk.end)))
    keys, values = cache.update_and_fetch(mx.ones((1, 2, 5, 8)), mx.ones((1, 2, 5, 8)))
    queries, more = mx.ones((1, 4, 5, 8)), mx.ones((1, 2, 5, 8))
    for layer_values in more, values, values:
        routed_attention(queries, keys, layer_values, cache, scale=1.0, mask="causal")
    assert calls == [(0, 5)]


def test_hidden_rows_do_not_count_as_tokens():
    low = float(mx.finfo(mx.float32).min)
    logits = mx.array([[[1.0, 1.0, low], [-32752.0, 2.0, -1e9]]])
    figures = attention.figures(logits)
    entropy, _, top, _, _, visible = np.array(figures.by_query)
    np.testing.assert_array_equal(visible, [[2, 1]])
    np.testing.assert_allclose(entropy, [[np.log(2), 0]], atol=1e-6)
    np.testing.assert_allclose(top, [[1, 1]], rtol=1e-6)
