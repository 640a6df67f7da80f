"""The trace that an app replays: what caches answer, and nothing that a rounding decides."""

from __future__ import annotations

import base64
from pathlib import Path

import mlx.core as mx
import pytest

from h2o_pack.parity import op, short_trace
from h2o_pack.parity.case import RecordedCase
from h2o_pack.parity.one_layer import OneLayer, Tokens
from h2o_pack.parity.short_trace import Settings, decided, drawn, moved_by, scaled
from h2o_pack.parity.trace import Trace
from h2o_py.config import POLICIES, H2OConfig
from h2o_py.models import STORAGES
from h2o_py.recall import H2ORecall

SMALL = 256_000  # bytes of a trace of heads of 128 elements
RECALL = H2ORecall(ask=8, every=5)


def settings(kv="dense", recall=None, dims=(64, 64), policy="standard"):
    return Settings(POLICIES[policy](512, recall=recall), kv, 64, dims)


def replayed(made, folder: Path):
    """What the reference finds in a trace's cases, as `parity` compares those of a folder."""
    results = []
    for entry in made["cases"]:
        case = RecordedCase(**{**entry, "steps": tuple(entry["steps"])})
        arrays = {}
        for name in ("inputs", case.file):
            path = folder / f"{name}.safetensors"
            path.write_bytes(base64.b64decode(made["files"][name]))
            arrays |= mx.load(str(path))
        kind = getattr(mx, case.dtype)
        arrays = {
            name: each.astype(kind) if name[-1] in "qkv" else each
            for name, each in arrays.items()
        }
        mx.save_safetensors(str(folder / case.file), arrays)
        file = f"{case.file}.safetensors"
        results.append(
            op.compare_case(Trace(folder, ()), RecordedCase(**{**vars(case), "file": file}))
        )
    return results


@pytest.mark.parametrize("recall", [None, RECALL])
@pytest.mark.parametrize("kv", STORAGES)
def test_the_reference_answers_a_trace_of_every_storage_alike(kv, recall, tmp_path):
    results = replayed(short_trace.short_trace(settings(kv, recall)), tmp_path)
    assert [each.dtype for each in results] == ["float32", "float16"]
    for each in results:
        assert each.first_difference is None
        assert each.ties == ()
        assert each.equal


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_kept_depends_on_no_rounding(policy):
    own = settings("r8h4", RECALL, policy=policy)
    small = Settings(scaled(own.config), own.kv, own.group_size, own.dims)
    tokens = decided(small)
    kept = short_trace.kept_of(small, tokens)
    for seed in range(20, 24):
        moved = moved_by(1e-6, tokens, mx.random.key(seed))
        assert mx.array_equal(short_trace.kept_of(small, moved), kept)


def test_tokens_whose_codes_a_rounding_decides_are_left_out():
    own = settings("4")
    vectors = short_trace.settled(own, 64, 32, mx.random.key(0))
    codes = mx.quantize(vectors, 64, 4)[0]
    for seed in range(4):
        noise = 1e-6 * mx.random.normal(vectors.shape, key=mx.random.key(seed))
        assert mx.array_equal(mx.quantize(vectors + noise, 64, 4)[0], codes)


@pytest.mark.parametrize("recall", [None, RECALL])
@pytest.mark.parametrize("kv", ["dense", "k8v4", "r16h4"])
def test_one_layer_is_a_cache_of_h2o_py(kv, recall):
    config = scaled(settings(kv, recall).config)
    layer, cache = OneLayer(config, kv, 64, 0.125), STORAGES[kv](config, 64)
    small = Settings(config, kv, 64, (64, 64))
    tokens = drawn(small, mx.random.key(3))
    for first, end in short_trace.spans(short_trace.steps_of(config)):
        part: Tokens = tokens.part(first, end)
        made = layer.step(part)
        cache.update_and_fetch(part.k, part.v)
        out = cache.attend(part.q, scale=0.125, mask="causal" if end - first > 1 else None)
        assert mx.array_equal(made["out"], out)
        assert mx.array_equal(made["positions"], cache.positions)
        assert mx.array_equal(made["scores"], cache.scores)
        assert ("held" in made) == (recall is not None)
    assert recall is None or cache.recalled > 0


def test_the_rows_are_shared_out_as_they_were():
    config = H2OConfig(512, heavy_budget=128, recent_budget=256, pinned=((9, 90),))
    small = scaled(config)
    assert (small.max_size, small.sink_size, small.pinned) == (16, 2, ((2, 3),))
    assert (small.heavy_budget, small.recent_budget) == (4, 8)
    assert (small.score, small.decay) == (config.score, config.decay)


@pytest.mark.parametrize("recent", [1, 507])
def test_extreme_budgets_leave_rows_to_evict(recent, tmp_path):
    config = H2OConfig(512, sink_size=4, heavy_budget=0, recent_budget=recent)
    made = short_trace.short_trace(Settings(config, "dense", 64, (64, 64)))
    assert all(each.equal for each in replayed(made, tmp_path))


def test_a_trace_is_small():
    made = short_trace.short_trace(settings("k8v4", dims=(128, 128)))
    assert sum(map(len, made["files"].values())) < SMALL


def test_the_same_settings_make_the_same_trace():
    own = settings("rotated4", RECALL)
    assert short_trace.short_trace(own) == short_trace.short_trace(own)
