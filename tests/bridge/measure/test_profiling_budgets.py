"""Budgets from a profile: the published rule, and the file that caches read."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.models.cache import make_prompt_cache

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure.profiling import rules
from h2o_pack.measure.profiling.report import read_profile
from h2o_pack.measure.profiling.rules import heavy_share, layer_shares, split
from h2o_py.budgets import load_budgets
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigWarning
from h2o_py.models import attach_h2o_cache, detach_h2o_cache
from tests.bridge import schemas
from tests.bridge.measure.profiles import profiled
from tests.h2o_py.small_models import small_model

shares = st.floats(0.3, 0.7)


def found(concentrations, max_kv=260):
    return list(layer_shares(dict(enumerate(concentrations)), max_kv, sink_size=4).values())


def profile_file(folder, **changes):
    """A profile.json of a small model with sliding layers first and third."""
    profile, _ = profiled(small_model("gemma3_text"))
    path = folder / "profile.json"
    path.write_text(json.dumps({**msgspec.to_builtins(profile), **changes}))
    return path


@pytest.fixture
def make(run, tmp_path):
    """Run `h2o-pack budgets --json`; returns what it printed, and the file it wrote."""

    def made(*flags):
        output = tmp_path / "budgets.json"
        measure = () if "--measure" in flags else ("--measure", "concentration")
        result = run("budgets", "--output", output, "--json", *flags, *measure)
        assert result.exit_code == 0, result.output
        return schemas.check(json.loads(result.stdout), "budgets"), output

    return made


@pytest.mark.parametrize(
    ("ratio", "share"),
    [(1.0, 0.5), (1.04, 0.6), (0.96, 0.4), (1.08, 0.7), (1.5, 0.7), (0.9, 0.3), (0.0, 0.3)],
)
def test_the_rule_is_the_published_one(ratio, share):
    assert heavy_share(ratio) == pytest.approx(share)


def test_a_worked_example():
    layers = found([0.80, 0.84, 0.78, 0.78])
    assert [each.ratio for each in layers] == pytest.approx([1, 1.05, 0.975, 0.975])
    assert [each.share for each in layers] == pytest.approx([0.5, 0.625, 0.4375, 0.4375])
    assert [each.heavy_budget for each in layers] == [128, 160, 112, 112]
    assert [each.recent_budget for each in layers] == [128, 96, 144, 144]


@given(st.floats(1e-6, 1e6), st.integers(1, 40), st.integers(80, 4096))
def test_a_profile_without_differences_gives_half_everywhere(value, count, max_kv):
    for each in found([value] * count, max_kv):
        assert each.share == 0.5
        least = min(round((max_kv - 4) / 2), max_kv - 4 - 64)
        assert each.heavy_budget == max(least, round(0.3 * (max_kv - 4)))


@given(st.lists(st.floats(0, 50), min_size=1, max_size=40), st.integers(8, 5000))
def test_shares_and_budgets_stay_within_the_rules_bounds(values, max_kv):
    available = max_kv - 4
    for each in found(values, max_kv):
        assert 0.3 <= each.share <= 0.7
        heavy, recent = each.heavy_budget, each.recent_budget
        assert heavy + recent == available
        assert round(0.3 * available) <= max(heavy, 1)
        assert heavy <= round(0.7 * available)
        if available - 64 >= round(0.3 * available):
            assert recent >= 64


@given(st.floats(0, 3), st.floats(0, 3))
def test_a_larger_ratio_never_gives_a_smaller_share(one, other):
    low, high = sorted((one, other))
    assert heavy_share(low) <= heavy_share(high)


@given(shares, st.integers(2, 3000), st.integers(0, 8))
def test_every_split_is_a_policy_that_caches_accept(share, available, sink_size):
    max_kv = available + sink_size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OConfigWarning)
        config = H2OConfig(
            max_kv, sink_size=sink_size, **split(share, max_kv, sink_size).to_dict()
        )
    assert config.heavy_budget >= 1


def test_too_few_rows_are_refused():
    with pytest.raises(UserError, match=r"--max-kv 5 leaves 1 rows .* Raise it to 6"):
        split(0.5, 5, 4)


def test_layers_without_a_share_have_no_budget():
    made = rules.budgets(layer_shares({1: 0.5, 3: 0.5}, 260, 4), 4)
    assert [each and each.heavy_budget for each in made.layers] == [None, 128, None, 128]
    with pytest.raises(UserError, match="no layer with full attention"):
        found([])


def test_a_model_profiled_gets_its_budgets_in_its_caches(make, tmp_path):
    document, path = make("--profile", profile_file(tmp_path), "--max-kv", 200)
    budgets = load_budgets(path)
    assert [each is None for each in budgets.layers] == [True, False, True, False]
    assert document["layers"][0] is None
    assert "7.803 against 7.807" in document["note"]
    model = small_model("gemma3_text")
    attach_h2o_cache(model, H2OConfig(200), budgets=budgets)
    try:
        caches = make_prompt_cache(model)
    finally:
        detach_h2o_cache(model)
    assert [isinstance(cache, H2OKVCache) for cache in caches] == [False, True] * 2
    for cache, entry in zip(caches[1::2], document["layers"][1::2], strict=True):
        assert cache.config.heavy_budget == entry["heavy_budget"]
        assert cache.config.recent_budget == entry["recent_budget"]
        assert entry["heavy_budget"] == round(entry["share"] * 196)


def test_layers_that_differ_get_budgets_that_differ(make, tmp_path):
    document = json.loads(profile_file(tmp_path).read_text())
    document["layers"][1]["figures"]["concentration"] = 0.9
    document["layers"][3]["figures"]["concentration"] = 0.8
    path = profile_file(tmp_path, layers=document["layers"])
    _, output = make("--profile", path, "--max-kv", 256)
    layers = load_budgets(output).layers
    assert layers[1].heavy_budget == round((0.5 + (0.9 / 0.85 - 1) * 2.5) * 252)
    assert layers[3].heavy_budget == round((0.5 + (0.8 / 0.85 - 1) * 2.5) * 252)
    made, _ = make("--profile", path, "--max-kv", 256, "--measure", "entropy")
    one, other = (document["layers"][i]["figures"]["entropy"] for i in (1, 3))
    ratios = [each and each["ratio"] for each in made["layers"]]
    assert ratios == [
        None,
        pytest.approx(2 * one / (one + other)),
        None,
        pytest.approx(2 * other / (one + other)),
    ]


def test_budgets_may_come_from_a_model_at_once(make, demo_text):
    flags = ["--text", demo_text, "--tokens", 96, "--samples", 1, "--max-kv", 150]
    document, output = make("--model", "demo", *flags)
    layers = document["layers"]
    assert len({layer["ratio"] for layer in layers}) == 4
    assert sum(layer["ratio"] for layer in layers) == pytest.approx(4)
    assert len(load_budgets(output).layers) == 4


@pytest.fixture
def demo_text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("import os, sys\nprint(os.getcwd())\n" * 40)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "$.format"),
        ({"layers": {}}, "$.layers"),
        ({"layers": [{}]}, "$.layers[0]"),
        ({"layers": [{"index": 0, "cache": "KVCache", "kind": "wide"}]}, "$.layers[0].kind"),
        ({"layers": [], "skipped": []}, "has no layer with full attention"),
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
    options = ("--measure", "reach" if "windows" in changes else "concentration")
    result = run("budgets", "--profile", path, "--max-kv", 256, "--output", output, *options)
    assert result.exit_code == ExitCode.USAGE
    assert message in " ".join(result.stderr.split())
    assert not output.exists()


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"layers": []}', "[" * 100_000, "\xff"])
def test_a_file_that_is_no_profile_is_refused(tmp_path, content):
    path = tmp_path / "profile.json"
    path.write_text(content, "latin-1")
    with pytest.raises(UserError, match=r"Give the\s+profile\.json"):
        read_profile(path)


def test_the_committed_profile_can_be_read():
    found = read_profile(Path(__file__).parents[3] / "docs/results/profile/profile.json")
    assert (found.model, found.caches, len(found.full)) == ("demo", 4, 4)


def test_the_table_shows_what_was_published(run, tmp_path):
    output = tmp_path / "budgets.json"
    flags = ["--profile", profile_file(tmp_path), "--max-kv", 200, "--output", output]
    shown = run("budgets", *flags, "--measure", "concentration").stdout
    assert "No gain was published" in shown
    assert "the model's own cache" in shown
    assert f"written to {output}" in shown
