"""How far attention looks, and the rows that follow from it."""

from __future__ import annotations

import json
import warnings

import mlx.core as mx
import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from h2o_pack.measure.profiling import attention, rules
from h2o_pack.measure.profiling.rules import Reach, allocate_rows, layer_rows
from h2o_py.budgets import load_budgets
from h2o_py.config import POLICIES, H2OConfig
from h2o_py.errors import H2OConfigWarning
from h2o_py.models import make_h2o_cache
from tests.bridge import schemas
from tests.bridge.measure.profiles import pieces, profiled
from tests.h2o_py.small_models import small_model

WINDOWS = (8, 16, 32, 64, 128, 256, 512, 1024)


def looking(index, *beyond):
    return Reach(index, WINDOWS, beyond)


NEAR = (0.2, 0.05, 0.01, 0.005, 0.002, 0.001, 0.0, 0.0)
FAR = (0.9, 0.85, 0.7, 0.55, 0.38, 0.2, 0.06, 0.0)
curves = st.lists(st.floats(0, 1), min_size=8, max_size=8).map(
    lambda values: tuple(sorted(values, reverse=True))
)


def by_hand(probabilities, end, sizes):
    """The definition: tokens older than a window that ends with the query, sinks aside."""
    heads, queries, tokens = probabilities.shape
    found = np.zeros((heads, queries, len(sizes)))
    for i in range(queries):
        position = end - queries + i
        for j in range(tokens):
            token = end - tokens + j
            for k, size in enumerate(sizes):
                if attention.SINKS <= token <= position - size:
                    found[:, i, k] += probabilities[:, i, j]
    return found


@pytest.mark.parametrize(
    ("queries", "tokens", "end"), [(5, 40, 40), (1, 3, 3), (7, 20, 60), (40, 40, 40)]
)
def test_attention_beyond_a_window_is_as_defined(queries, tokens, end):
    rng = np.random.default_rng(0)
    probabilities = rng.random((3, queries, tokens))
    visible = np.arange(end - tokens, end) <= np.arange(end - queries, end)[:, None]
    probabilities = probabilities * visible
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    sizes = np.array([1, 2, 8, 33, 100])
    found = attention.beyond(mx.array(probabilities), end, sizes)
    expected = by_hand(probabilities, end, sizes)
    np.testing.assert_allclose(np.array(found), expected, atol=1e-6)
    assert (expected > 0).any() == (end > attention.SINKS + 1)


@pytest.mark.parametrize("tokens", [2, 8, 9, 100, 1024, 1536, 32768])
def test_windows_grow_up_to_the_sample(tokens):
    sizes = attention.windows(tokens)
    assert sizes[0] == min(8, tokens)
    assert sizes[-1] == tokens
    assert (np.diff(sizes) > 0).all()
    assert (sizes[1:] <= 1.3 * sizes[:-1] + 1).all()


def test_a_profile_tells_how_far_each_layer_looks():
    profile, _ = profiled(small_model("qwen3"), pieces(96))
    found = rules.reaches(profile)
    assert [each.index for each in found] == [layer.index for layer in profile.layers]
    for each in found:
        assert each.windows[-1] == profile.tokens
        assert each.beyond[-1] == 0
        assert 0 < each.beyond[0] < 1
        assert list(each.beyond) == sorted(each.beyond, reverse=True)


def test_what_a_window_loses_is_interpolated():
    far = looking(0, *FAR)
    assert far.lost(64) == 0.55
    assert far.lost(96) == pytest.approx((0.55 + 0.38) / 2)
    assert (far.lost(1), far.lost(9999)) == (0.9, 0.0)


def test_layers_that_look_far_get_the_rows():
    rows = allocate_rows([looking(0, *NEAR), looking(1, *FAR), looking(2, *NEAR)], 128)
    assert rows == {0: 64, 1: 256, 2: 64}


@given(st.lists(curves, min_size=1, max_size=12), st.integers(1, 2000))
def test_all_rows_are_allocated_and_each_layer_keeps_half(layers, max_kv):
    rows = allocate_rows([Reach(i, WINDOWS, each) for i, each in enumerate(layers)], max_kv)
    assert sum(rows.values()) == max_kv * len(layers)
    assert min(rows.values()) >= max_kv / 2


STEEP = (1, 1, 1, 1, 1, 0.05, 0, 0)
STEEPER = (1, 1, 1, 1, 1, 0.002, 0, 0)


@given(curves, st.integers(2, 6), st.lists(curves, max_size=4), st.integers(1, 600))
@example(STEEP, 2, [], 419)
@example(STEEPER, 2, [], 466)
@example(STEEP, 3, [FAR, NEAR], 419)
def test_equal_layers_get_equal_rows_up_to_one(curve, count, others, max_kv):
    layers = [*others, *[curve] * count]
    rows = allocate_rows([Reach(i, WINDOWS, each) for i, each in enumerate(layers)], max_kv)
    equal = [rows[i] for i, each in enumerate(layers) if each == curve]
    assert max(equal) - min(equal) <= 1


@given(curves, curves, st.integers(16, 600))
def test_allocated_rows_never_lose_more_than_equal_rows(one, other, max_kv):
    convex = [_convex(one), _convex(other)]
    reaches = [Reach(i, WINDOWS, each) for i, each in enumerate(convex)]
    rows = allocate_rows(reaches, max_kv)
    lost = sum(each.lost(rows[each.index]) for each in reaches)
    step = sum(each.saved(rows[each.index]) for each in reaches) * rules.STEP
    assert lost <= sum(each.lost(max_kv) for each in reaches) + step + 1e-9


def _convex(curve):
    """The largest convex curve below: what more rows save grows ever less."""
    sizes, values = np.array(WINDOWS), np.array(curve)
    for i in range(len(sizes)):
        for a in range(i):
            for b in range(i + 1, len(sizes)):
                part = (sizes[i] - sizes[a]) / (sizes[b] - sizes[a])
                values[i] = min(values[i], values[a] + part * (values[b] - values[a]))
    return tuple(values.tolist())


@pytest.mark.parametrize("policy", POLICIES)
def test_each_layer_gets_its_policys_split(policy):
    rows = layer_rows([looking(0, *NEAR), looking(1, *FAR)], 300, POLICIES[policy])
    assert sum(each.max_size for each in rows.values()) == 600
    for each in rows.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", H2OConfigWarning)
            alone = POLICIES[policy](each.max_size)
        assert each.heavy_budget == alone.heavy_budget
        assert each.recent_budget == alone.recent_budget
    assert rows[1].lost == looking(1, *FAR).lost(rows[1].max_size)


def test_the_command_writes_what_caches_read(run, tmp_path):
    model = small_model("gemma3_text")
    profile, _ = profiled(model)
    path, output = tmp_path / "profile.json", tmp_path / "budgets.json"
    path.write_text(json.dumps(msgspec.to_builtins(profile)))
    flags = ["--profile", path, "--max-kv", 200, "--policy", "tuned"]  # reach is the default
    result = run("budgets", *flags, "--json", "--output", output)
    assert result.exit_code == 0, result.output
    document = schemas.check(json.loads(result.stdout), "budgets")
    budgets = load_budgets(output)
    assert [each and each.to_dict() for each in budgets.layers] == [
        each and {name: each[name] for name in ("heavy_budget", "recent_budget", "max_size")}
        for each in document["layers"]
    ]
    sizes = [each.max_size for each in budgets.layers if each]
    assert sum(sizes) == 200 * len(sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OConfigWarning)
        caches = make_h2o_cache(model, H2OConfig.tuned(200), budgets=budgets)
    made = [each.max_size for each, told in zip(caches, budgets.layers, strict=True) if told]
    assert made == sizes
