"""Budgets per layer from a file, and pinned positions, from the setting to the kept rows."""

from __future__ import annotations

import dataclasses
import json
import warnings

import mlx_lm
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache, save_prompt_cache

from h2o_py import __main__ as commands
from h2o_py import errors, generation, routing
from h2o_py.budgets import Budgets, LayerBudget, load_budgets
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.errors import H2OConfigWarning
from h2o_py.families import shares_one_mask, why_unfit
from h2o_py.models import make_h2o_cache
from tests.conftest import DEMO
from tests.h2o_py.cases import kept
from tests.h2o_py.small_models import (
    FAMILIES,
    greedy,
    random_prompt,
    small_model,
)
from tests.nightly import nightly_except

COMMON = H2OConfig(48, sink_size=2, heavy_budget=20, recent_budget=20)


def budget_file(folder, layers, **changes):
    path = folder / "budgets.json"
    path.write_text(json.dumps({"format": 1, "layers": layers, **changes}))
    return path


def entry(heavy, recent):
    return {"heavy_budget": heavy, "recent_budget": recent}


def test_a_file_gives_each_layer_its_budgets(tmp_path):
    path = budget_file(tmp_path, [entry(36, 10), None, entry(5, 41), None])
    caches = make_h2o_cache(small_model("qwen3"), COMMON, budgets=load_budgets(path))
    budgets = [(c.config.heavy_budget, c.config.recent_budget) for c in caches]
    assert budgets == [(36, 10), (20, 20), (5, 41), (20, 20)]
    assert {(c.config.max_size, c.config.sink_size) for c in caches} == {(48, 2)}


def test_layers_with_their_own_cache_have_null(tmp_path):
    model = small_model("gemma3_text")
    budgets = load_budgets(budget_file(tmp_path, [None, entry(10, 30), None, entry(30, 10)]))
    caches = make_h2o_cache(model, COMMON, budgets=budgets)
    assert [c.config.recent_budget for c in caches if isinstance(c, H2OKVCache)] == [30, 10]
    wrong = load_budgets(budget_file(tmp_path, [entry(10, 30), None, None, None]))
    with pytest.raises(ValueError) as error:
        make_h2o_cache(model, COMMON, budgets=wrong)
    assert error.value.code == "layer_keeps_own_cache"
    assert "layers[0]" in error.value.where


def test_layers_that_budgets_leave_out_do_not_recall():
    common = dataclasses.replace(COMMON, recall=H2ORecall(reach=3))
    budgets = Budgets((None, LayerBudget(5, 30), None), recall=(1, 2))
    configs = [budgets.config_of(i, common) for i in range(3)]
    recalling = common.recall
    assert [config.recall for config in configs] == [None, recalling, recalling]
    assert (configs[1].heavy_budget, configs[2].heavy_budget) == (5, 20)
    assert budgets.config_of(0, COMMON) == COMMON
    every = Budgets((None,) * 3)
    assert [every.config_of(i, common).recall for i in range(3)] == [recalling] * 3
    named = dataclasses.replace(COMMON, recall=H2ORecall(reach=3, layers=(0,)))
    recalls = [budgets.config_of(i, named).recall is not None for i in range(3)]
    assert recalls == [True, False, False]


def test_budgets_that_do_not_fit_are_refused_naming_the_layer(tmp_path):
    model = small_model("qwen3")
    path = budget_file(tmp_path, [None, None, entry(30, 30), None])
    with pytest.raises(ValueError, match=r"layers\[2\]: sink_size \+ heavy_budget"):
        make_h2o_cache(model, COMMON, budgets=load_budgets(path))
    short = Budgets((LayerBudget(3, 30),))
    with pytest.raises(ValueError, match="layers must have 4 entries for qwen3, and has 1"):
        make_h2o_cache(model, COMMON, budgets=short)


def test_the_python_call_takes_pinned_storage_and_budgets(demo, tmp_path, monkeypatch):
    calls = []
    original = generation.make_h2o_cache
    monkeypatch.setattr(
        generation,
        "make_h2o_cache",
        lambda *a, **k: calls.append(original(*a, **k)) or calls[-1],
    )
    path = budget_file(tmp_path, [entry(30, 20), None, None, None])
    generation.generate(
        *demo, "import os, sys\n" * 12,
        h2o_config={"max_size": 64, "pinned": [[4, 9]]}, h2o_kv="k8v4", kv_group_size=32,
        h2o_budgets=load_budgets(path), max_tokens=8,
    )  # fmt: skip
    (caches,) = calls
    assert [c.config.heavy_budget for c in caches] == [30, 32, 32, 32]
    assert {(c.row_format.key_bits, c.row_format.value_bits) for c in caches} == {(8, 4)}
    for cache in caches:
        assert cache.offset > 64 == cache.length
        assert all(set(range(4, 9)) <= set(head) for head in kept(cache)[0])
    assert not routing.routing_installed()
    plain = generation.generate(*demo, "import os", max_tokens=4)
    assert plain == mlx_lm.generate(*demo, "import os", max_tokens=4)


def test_the_command_takes_pinned_storage_and_budgets(tmp_path, monkeypatch):
    caches_used = []
    step = routing._step

    def watched(prompt, model, *stream, **options):
        options.setdefault("prompt_cache", make_prompt_cache(model))
        caches_used.append(options["prompt_cache"])
        return step(prompt, model, *stream, **options)

    monkeypatch.setattr(routing, "_step", watched)
    path = budget_file(tmp_path, [entry(30, 20), None, None, None])
    flags = ["generate", "--model", str(DEMO), "--prompt", "import os, sys " * 12,
             "--max-tokens", "5", "--verbose", "False", "--max-kv", "64",
             "--pin", "3:7", "9:11", "--kv", "8", "--kv-group-size", "32",
             "--budgets", str(path)]  # fmt: skip
    assert commands.main(flags) == 0
    assert not routing.routing_installed()
    (caches,) = caches_used
    assert [c.config.heavy_budget for c in caches] == [30, 32, 32, 32]
    assert {c.config.pinned for c in caches} == {((3, 7), (9, 11))}
    for cache in caches:
        assert (cache.row_format.key_bits, cache.row_format.group_size) == (8, 32)
        assert all({3, 4, 5, 6, 9, 10} <= set(head) for head in kept(cache)[0])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sink-size", "8"], "--max-kv is missing"),
        (["--max-kv", "64", "--pin", "3"], "'3' is not BEGIN:END, as in 0:120"),
        (
            ["--max-kv", "64", "--pin", "7:3"],
            "--pin must be half-open",
        ),
        (["--max-kv", "64", "--budgets", "none.json"], "none.json"),
        (["--max-kv", "64", "--prompt-cache-file", "x"], "--prompt-cache-file and --max-kv"),
        (["--max-kv", "4"], "--max-kv = 4 leaves no room for recent tokens"),
        (["--max-kv", "64", "--kv-bits", "8"], "--kv-bits and --max-kv cannot"),
        (["--max-kv", "64", "--max-kv-size", "8"], "--max-kv-size and --max-kv"),
    ],
)
def test_the_command_refuses_wrong_settings(flags, message, capsys):
    with pytest.raises(SystemExit) as error:
        commands.main(["generate", *flags])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_the_command_names_what_does_not_fit_the_model(tmp_path):
    path = budget_file(tmp_path, [None])
    flags = ["generate", "--model", str(DEMO), "--max-kv", "64"]
    with pytest.raises(
        SystemExit, match=r"error: .*layers must have 4 entries for .*, and has 1"
    ):
        commands.main([*flags, "--budgets", str(path)])
    with pytest.raises(
        SystemExit, match="error: --kv must be one of 16, 8, k8v4, 4, heavy=8,recent=16"
    ):
        commands.main([*flags, "--kv", "dense"])


def test_the_command_continues_from_a_file_of_h2o_caches(tmp_path, demo, monkeypatch):
    model, tokenizer = demo
    caches = make_h2o_cache(model, H2OConfig(40))
    routing.install_routing()
    mlx_lm.generate(model, tokenizer, "import os\n" * 20, max_tokens=3, prompt_cache=caches)
    routing.remove_routing()
    path = str(tmp_path / "cache.safetensors")
    save_prompt_cache(path, caches, {"model": str(DEMO), "tokenizer_config": "{}"})
    monkeypatch.setattr(errors, "_reported", set())
    flags = ["generate", "--prompt-cache-file", path, "--prompt", "import sys"]
    # Unrouted attention would warn, and warnings are errors here.
    assert commands.main([*flags, "--max-tokens", "3", "--verbose", "False"]) == 0


def alternating(model):
    """16 and 48 rows in turns in the layers that evict; and how many rows each has."""
    layers, rows = [], []
    for i, cache in enumerate(make_prompt_cache(model)):
        plain = type(cache) is KVCache
        size = 48 if i % 2 else 16
        layers.append(LayerBudget(size // 2, size // 4, size) if plain else None)
        rows.append(size if plain else None)
    return Budgets(tuple(layers)), rows


@pytest.mark.usefixtures("routed")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("family", nightly_except([*FAMILIES][::4], FAMILIES))
def test_every_family_reads_on_or_is_refused(family):
    model = small_model(family)
    budgets, rows = alternating(model)
    if why_unfit(model) is not None or not any(rows):
        pytest.skip("no H2O cache serves it")
    if shares_one_mask(model):
        with pytest.raises(ValueError) as error:
            make_h2o_cache(model, H2OConfig(24), budgets=budgets)
        assert error.value.code == "one_mask"
        return
    caches = make_h2o_cache(model, H2OConfig(24), budgets=budgets)
    greedy(model, random_prompt(60), caches)  # chunks fill some layers and not others
    for cache, size in zip(caches, rows, strict=True):
        if size is not None:
            assert (cache.max_size, cache.size()) == (size, size)


def test_settings_of_one_layer_alone_warn_as_ever():
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        Budgets((LayerBudget(8, 4, 16),)).config_of(0, H2OConfig(512))
    assert [warning.category for warning in records] == [H2OConfigWarning]
