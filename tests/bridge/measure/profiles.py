"""Attention of a whole model computed the long way, and profiles of small models."""

import math
from pathlib import Path

import mlx.core as mx
import msgspec
import numpy as np
from mlx_lm.models import base

from h2o_pack.measure.machine import Machine
from h2o_pack.measure.profiling.options import Options
from h2o_pack.measure.profiling.profile_report import (
    Figures,
    LayerProfile,
    Profile,
    SkippedLayer,
)
from h2o_pack.measure.profiling.profiler import profile_model
from h2o_pack.progress import silent
from h2o_py import routing
from tests.h2o_py.small_models import VOCABULARY

TOKENS = 150


def pieces(tokens=TOKENS, count=1):
    random = np.random.default_rng(3)
    return [random.integers(0, VOCABULARY, tokens).tolist() for _ in range(count)]


def profiled(model, texts=None, **options):
    """Profile a model on random tokens."""
    texts = texts or pieces()
    settings = Options(
        tokens=len(texts[0]), samples=len(texts), text=Path("random.txt"),
        **options,
    )  # fmt: skip
    return profile_model(model, texts, settings, silent)


def attention_of(model, piece, monkeypatch):
    """Probabilities [Hq, T, T], logits and mask of every layer, from a pass without caches."""
    calls = []

    def watched(queries, keys, values, cache, scale, mask, sinks=None):
        calls.append((queries[0], keys[0], scale, mask))
        return upstream(queries, keys, values, cache=cache, scale=scale, mask=mask, sinks=sinks)

    name = "scaled_dot_product_attention"
    upstream = getattr(base, name)
    with monkeypatch.context() as patched:
        routing._replace(base, name, upstream, watched)
        try:
            mx.eval(model(mx.array([piece])))
        finally:
            routing._replace(base, name, watched, upstream)
        del patched
    return [by_hand(*call) for call in calls]


def by_hand(queries, keys, scale, mask):
    q, k = (np.array(array.astype(mx.float32), np.float64) for array in (queries, keys))
    logits = scale * q @ np.repeat(k, len(q) // len(k), axis=0).swapaxes(1, 2)
    tokens = logits.shape[1]
    visible = np.tril(np.ones((tokens, tokens), bool))
    if isinstance(mask, mx.array):
        visible = np.array(mask).reshape(tokens, tokens)
    weights = np.where(visible, np.exp(logits - logits.max()), 0)
    probabilities = weights / weights.sum(-1, keepdims=True)
    return probabilities, np.where(visible, logits, np.nan), visible


def figures_by_hand(probabilities, logits, mask, first_row):
    """The five figures [Hq, 5] from whole matrices, a query at a time."""
    figures = []
    for head in range(len(probabilities)):
        entropy, normalized, top, variance, faint, visible = [], [], [], [], 0, 0
        for row in range(first_row, len(mask)):
            p = probabilities[head, row, mask[row]]
            h = -sum(x * math.log(x) for x in p if x > 0)
            entropy.append(h)
            normalized.append(h / math.log(len(p)))
            top.append(sum(sorted(p)[-32:]))
            variance.append(np.var(logits[head, row, mask[row]]))
            faint += int((p < 0.01 * p.max()).sum())
            visible += len(p)
        means = [float(np.mean(values)) for values in (entropy, normalized, top, variance)]
        figures.append([*means, faint / visible])
    return np.array(figures)


def made_up():
    """The text of a profile.json with two layers with full attention, and one that has none."""
    figures = Figures(1.0, 0.5, 0.9, 1.0, 0.8)
    layers = tuple(
        LayerProfile(
            index, "KVCache", "full", None, figures, figures, beyond, retrieval,
        )
        for index, beyond, retrieval in ((0, (0.3, 0.1, 0.0), 0.04), (1, (0.9, 0.5, 0.0), 1.0))
    )  # fmt: skip
    profile = Profile(
        machine=Machine("a processor", 2, "Linux", "avx2", "3.11", "0.32", "0.32", "0.1"),
        model="made up", family="qwen3", text="a text", tokens=64, samples=1, first_row=16,
        unfit=None, windows=(8, 32, 64), layers=layers,
        skipped=(SkippedLayer(2, "ArraysCache", "recurrent"),),
    )  # fmt: skip
    return msgspec.json.encode(profile).decode()
