"""Budgets from a profile: how far attention looks, and layers that recall."""

import json
import math
import warnings
from functools import cache

import mlx.core as mx
import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure.profiling import attention, profile_tables, rules
from h2o_pack.measure.profiling.profile_report import Profile, read_profile
from h2o_pack.measure.profiling.profiler import PASSAGE
from h2o_pack.measure.profiling.rules import (
    Reach,
    allocate_rows,
    layer_rows,
)
from h2o_py.budgets import Budgets, load_budgets, read_budgets
from h2o_py.config import POLICIES, H2OConfig
from h2o_py.errors import H2OBudgetsError, H2OConfigWarning
from h2o_py.models import make_h2o_cache
from tests.bridge import schemas
from tests.bridge.measure.profiles import attention_of, pieces, profiled
from tests.h2o_py.small_models import small_model


@cache
def small_profile():
    return profiled(small_model("gemma3_text"))


def profile_file(folder, **changes):
    """A profile.json of a small model with sliding layers first and third."""
    profile = small_profile()
    path = folder / "profile.json"
    path.write_text(json.dumps({**msgspec.to_builtins(profile), **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "$.format"),
        ({"layers": {}}, "$.layers"),
        ({"layers": [{}]}, "$.layers[0]"),
        ({"layers": [{"index": 0, "cache": "KVCache", "kind": "wide"}]}, "$.layers[0].kind"),
        ({"layers": [], "skipped": []}, "does not say how far layers with full attention"),
        (
            {"skipped": [{"index": 9, "cache": "ArraysCache", "reason": "recurrent"}]},
            "must name every layer once",
        ),
        ({"unfit": "it shares keys"}, "cannot use H2O caches: it shares keys"),
        ({"layers": [], "skipped": [], "windows": []}, "does not say how far"),
        ({"windows": [8, 8]}, "windows must be increasing"),
        ({"windows": [8]}, ".beyond must have a share for each"),
        ({"windows": [0, 8]}, "$.windows"),
    ],
)
def test_a_wrong_profile_is_refused_naming_what_is_wrong(run, tmp_path, changes, message):
    path, output = profile_file(tmp_path, **changes), tmp_path / "budgets.json"
    result = run("profile", "--profile", path, "--max-kv", 256, "--budgets", output)
    assert result.exit_code == ExitCode.USAGE
    assert message in " ".join(result.stderr.split())
    assert not output.exists()


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"layers": []}', "[" * 100_000, "\xff"])
def test_a_file_that_is_no_profile_is_refused(tmp_path, content):
    path = tmp_path / "profile.json"
    path.write_text(content, "latin-1")
    with pytest.raises(UserError, match=r"Give the\s+profile\.json"):
        read_profile(path)


# Reach


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
    sums = np.zeros((heads, queries, len(sizes)))
    for i in range(queries):
        position = end - queries + i
        for j in range(tokens):
            token = end - tokens + j
            for k, size in enumerate(sizes):
                if attention.SINKS <= token <= position - size:
                    sums[:, i, k] += probabilities[:, i, j]
    return sums


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
    sums = attention.beyond(mx.array(probabilities), end, sizes)
    expected = by_hand(probabilities, end, sizes)
    np.testing.assert_allclose(np.array(sums), expected, atol=1e-6)
    assert (expected > 0).any() == (end > attention.SINKS + 1)


@pytest.mark.parametrize("tokens", [2, 8, 9, 100, 1024, 1536, 32768])
def test_windows_grow_up_to_the_sample(tokens):
    sizes = attention.windows(tokens)
    assert sizes[0] == min(8, tokens)
    assert sizes[-1] == tokens
    assert (np.diff(sizes) > 0).all()
    assert (sizes[1:] <= 1.3 * sizes[:-1] + 1).all()


def test_a_profile_tells_how_far_each_layer_looks():
    profile = profiled(small_model("qwen3"), pieces(96))
    reaches = rules.reaches(profile)
    assert [reach.index for reach in reaches] == [layer.index for layer in profile.layers]
    for reach in reaches:
        assert reach.windows[-1] == profile.tokens
        assert reach.beyond[-1] == 0
        assert 0 < reach.beyond[0] < 1
        assert list(reach.beyond) == sorted(reach.beyond, reverse=True)


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
    rows = allocate_rows([Reach(i, WINDOWS, curve) for i, curve in enumerate(layers)], max_kv)
    assert sum(rows.values()) == max_kv * len(layers)
    assert min(rows.values()) >= max_kv / 2


STEEP = (1, 1, 1, 1, 1, 0.05, 0, 0)
STEEPER = (1, 1, 1, 1, 1, 0.002, 0, 0)


@given(curves, st.integers(2, 6), st.lists(curves, max_size=4), st.integers(1, 600))
@example(STEEP, 2, [], 419)
@example(STEEPER, 2, [], 466)
@example(STEEP, 3, [FAR, NEAR], 419)
def test_equal_layers_get_equal_rows_up_to_one(curve, count, other_curves, max_kv):
    layers = [*other_curves, *[curve] * count]
    rows = allocate_rows([Reach(i, WINDOWS, layer) for i, layer in enumerate(layers)], max_kv)
    equal = [rows[i] for i, layer in enumerate(layers) if layer == curve]
    assert max(equal) - min(equal) <= 1


@given(curves, curves, st.integers(16, 600))
def test_allocated_rows_never_lose_more_than_equal_rows(first, second, max_kv):
    convex = [_convex(first), _convex(second)]
    reaches = [Reach(i, WINDOWS, curve) for i, curve in enumerate(convex)]
    rows = allocate_rows(reaches, max_kv)
    lost = sum(reach.lost(rows[reach.index]) for reach in reaches)
    step = sum(reach.saved(rows[reach.index]) for reach in reaches) * rules.STEP
    assert lost <= sum(reach.lost(max_kv) for reach in reaches) + step + 1e-9


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
    assert sum(layer.max_size for layer in rows.values()) == 600
    for layer in rows.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", H2OConfigWarning)
            alone = POLICIES[policy](layer.max_size)
        assert layer.heavy_budget == alone.heavy_budget
        assert layer.recent_budget == alone.recent_budget
    assert rows[1].lost == looking(1, *FAR).lost(rows[1].max_size)


def test_the_command_writes_what_caches_read(run, tmp_path):
    path, output = profile_file(tmp_path), tmp_path / "budgets.json"
    flags = ["--profile", path, "--max-kv", 200, "--policy", "paper"]
    result = run("profile", *flags, "--json", "--budgets", output)
    assert result.exit_code == 0, result.output
    document = schemas.check(json.loads(result.stdout), "profile")
    budgets = load_budgets(output)
    assert [layer and layer.to_dict() for layer in budgets.layers] == [
        layer and {name: layer[name] for name in ("heavy_budget", "recent_budget", "max_size")}
        for layer in document["layers"]
    ]
    sizes = [layer.max_size for layer in budgets.layers if layer]
    assert sum(sizes) == 200 * len(sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OConfigWarning)
        caches = make_h2o_cache(
            small_model("gemma3_text"), H2OConfig.paper(200), budgets=budgets
        )
    cache_sizes = [
        cache.max_size for cache, layer in zip(caches, budgets.layers, strict=True) if layer
    ]
    assert cache_sizes == sizes


# Recall


def test_retrieval_is_the_sum_of_squares_of_the_largest_probabilities(monkeypatch):
    model, (piece,) = small_model("gemma3_text"), pieces(count=1)
    profile = profiled(model, [piece])
    first = len(piece) // 4
    repeated = [*piece[:-PASSAGE], *piece[first : first + PASSAGE]]
    by_layer = attention_of(model, repeated, monkeypatch)
    for layer in profile.full:
        probabilities = by_layer[layer.index][0]
        largest = probabilities[:, -PASSAGE:, first : first + PASSAGE].max(axis=1)
        assert layer.retrieval == pytest.approx(float((largest**2).sum()), rel=1e-4)


def test_a_layer_that_no_longer_sees_the_passage_retrieves_nothing():
    observed = attention.ObservedAttention(mx.zeros((2, 4, 8)), 1, 20, None)
    assert attention.retrieval(observed, 11, 4) == 0
    assert attention.retrieval(observed, 12, 4) == pytest.approx(2 * 4 / 64)


def test_sinks_take_part_of_the_retrieval():
    observed = attention.ObservedAttention(mx.zeros((1, 4, 8)), 1, 8, mx.array([math.log(8)]))
    assert attention.retrieval(observed, 0, 4) == pytest.approx(4 / 256)


@pytest.fixture
def uneven(tmp_path):
    """A profile.json of a small model, in which layer 3 finds passages."""
    layers = json.loads(profile_file(tmp_path).read_text())["layers"]
    layers[1]["retrieval"], layers[3]["retrieval"] = 0.04, 1.0
    return profile_file(tmp_path, layers=layers)


def test_budgets_name_the_layers_only_if_asked(run, tmp_path, uneven):
    output = tmp_path / "budgets.json"
    flags = ["--profile", uneven, "--max-kv", 80, "--budgets", output]
    result = run("profile", "--json", *flags)
    assert schemas.check(json.loads(result.stdout), "profile")["recall"] is None
    assert set(json.loads(output.read_text())) == {"format", "layers"}
    result = run("profile", "--json", *flags, "--recall")
    assert schemas.check(json.loads(result.stdout), "profile")["recall"] == [3]
    budgets = load_budgets(output)
    assert budgets.recall == (3,)
    assert read_budgets(budgets.to_dict(), budgets.source) == budgets
    shown = run("profile", *flags, "--recall")
    assert "layers that recall: 3" in shown.stdout


def test_a_profile_marks_the_layers_that_recall(uneven):
    profile = msgspec.json.decode(uneven.read_bytes(), type=Profile)
    tables = {table.title: table for table in profile_tables.sections(profile)}
    table = tables["Layers that find a repeated passage"]
    assert table.rows == (("1", "0.04", ""), ("3", "1.00", "recall"))


@pytest.mark.parametrize("recall", [3, [1, 1], [2, 1], [-1], [4], ["1"], [True], [0.0], {}])
def test_a_wrong_list_of_layers_is_refused(recall):
    document = {"format": 1, "layers": [None] * 4, "recall": recall}
    with pytest.raises(H2OBudgetsError, match="recall: the value must be a list of incr"):
        read_budgets(document, "budgets")


def test_recall_in_a_layer_that_evicts_nothing_is_refused():
    budgets = Budgets((None, None), recall=(1,))
    with pytest.raises(H2OBudgetsError, match=r"layer 1 of gemma3 .* Leave the layer out"):
        budgets.check_layers([True, False], "gemma3")
