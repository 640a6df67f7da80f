"""Generation with mlx_lm on the bundled demo model through H2O caches."""

import argparse
import gc
import inspect
import textwrap
import weakref

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache

from h2o_py import H2ORecall, generation, loading, models
from h2o_py import __main__ as commands
from h2o_py.config import H2OConfig
from h2o_py.models import attach_h2o_cache, detach_h2o_cache, make_h2o_cache
from h2o_py.policy_fields import FIELDS
from h2o_py.store import load_cache, save_cache
from tests.h2o_py.small_models import greedy

FACT = "\nthe code of bravo is 7291.\n"
QUESTION = "\nthe code of bravo is"


def long_prompt(tokenizer, tokens):
    """Source text of about this many tokens, a fact near its start, asked at its end."""
    text = tokenizer.encode(inspect.getsource(argparse)[4000 : 4000 + 8 * tokens])
    start = tokenizer.encode(inspect.getsource(textwrap))[100:150]
    body = [*start, *tokenizer.encode(FACT), *text[: tokens - 80]]
    return [*body, *tokenizer.encode(QUESTION)]


@pytest.mark.parametrize("recall", [None, H2ORecall(ask=5)])
def test_caches_that_nothing_uses_leave_memory_before_garbage_is_collected(
    demo, routed, recall
):
    model, tokenizer = demo
    config = H2OConfig(200, recall=recall)
    gc.collect()
    gc.disable()
    try:
        caches = make_h2o_cache(model, config)
        greedy(model, long_prompt(tokenizer, 300), caches, chunk=64)
        references = [weakref.ref(cache) for cache in caches]
        del caches
        assert [ref() for ref in references] == [None] * len(references)
    finally:
        gc.enable()


@pytest.mark.parametrize("option", ["draft_model", "kv_bits", "max_kv_size", "prompt_cache"])
def test_options_that_contradict_h2o_config_are_refused_by_name(demo, option):
    with pytest.raises(ValueError) as error:
        generation.generate(*demo, "x", h2o_config={"max_size": 40}, **{option: 8})
    assert (error.value.code, error.value.values["option"]) == ("excluded_option", option)


def test_attaching_makes_the_models_own_caches_h2o_and_detaching_undoes_it(demo):
    model, _ = demo
    attach_h2o_cache(model, H2OConfig(64))
    attach_h2o_cache(model, H2OConfig(72))
    assert [c.max_size for c in make_prompt_cache(model)] == [72] * 4
    detach_h2o_cache(model)
    detach_h2o_cache(model)
    assert {type(c) for c in make_prompt_cache(model)} == {KVCache}


def test_files_of_another_kind_are_refused_by_name(demo, tmp_path):
    model, _ = demo
    path = tmp_path / "weights.safetensors"
    mx.save_safetensors(str(path), {"x": mx.zeros(3)}, {"format": "mlx"})
    with pytest.raises(ValueError) as error:
        load_cache(path)
    assert error.value.code == "not_a_cache_file"
    with pytest.raises(ValueError, match="cache 0 is empty"):
        save_cache(tmp_path / "x.safetensors", make_h2o_cache(model, H2OConfig(64)))
    with pytest.raises(ValueError, match="cache 0 is KVCache"):
        save_cache(tmp_path / "x.safetensors", [KVCache()])
    newer = tmp_path / "newer.safetensors"
    header = {"kind": "h2o-pack cache", "version": "9"}
    mx.save_safetensors(str(newer), {"x": mx.zeros(3)}, header)
    with pytest.raises(ValueError) as error:
        load_cache(newer)
    assert error.value.code == "other_cache_version"


def test_another_mlx_is_refused_with_what_to_run(monkeypatch, capsys):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.99.0")
    assert commands.main(["generate"]) == 6
    assert capsys.readouterr().err == (
        "error: h2o_py was compiled for mlx 0.32.4, but 0.99.0 is installed. Run: pip install "
        "mlx==0.32.4, or build h2o-pack again for another mlx.\n"
    )


def test_the_command_alone_tells_how_to_use_it(capsys):
    assert commands.main([]) == 2
    assert "usage: python -m h2o_py generate" in capsys.readouterr().err
    assert commands.main(["bench"]) == 2
    output = capsys.readouterr().err
    assert output.startswith("error: 'bench' is not a command of h2o_py.\nusage: ")
    assert "h2o-pack --help" in output
    assert commands.main(["--help"]) == 0


def test_the_command_has_an_option_for_each_setting(capsys):
    with pytest.raises(SystemExit):
        commands.main(["generate", "--help"])
    output = capsys.readouterr().out
    assert all(f"  {field.flag} " in output for field in FIELDS)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("demo", "/h2o_pack/models/demo"),
        ("qwen3-4b-4bit", "mlx-community/Qwen3-4B-4bit"),
        ("somebody/else", "somebody/else"),
    ],
)
def test_the_command_takes_the_names_of_models_that_h2o_pack_takes(name, place, monkeypatch):
    def load(name, *_arguments, **_options):
        raise SystemExit(name)

    monkeypatch.setattr(loading, "load", load)
    with pytest.raises(SystemExit) as ended:
        commands.main(["generate", "--model", name, "--max-kv", "64"])
    assert str(ended.value.code).endswith(place)


def test_the_command_takes_recall_in_words(tmp_path, monkeypatch, capsys):
    configs = []

    def attach(_model, config, **_storage):
        configs.append(config)
        raise SystemExit

    monkeypatch.setattr(loading, "load", lambda *_, **__: (None, None))
    monkeypatch.setattr(models, "attach_h2o_cache", attach)
    command = ["generate", "--model", str(tmp_path), "--max-kv", "512", "--recall"]
    for words in ([], ["layers=1,3", "--recall-reach", "9", "--recall-ask", "48"]):
        with pytest.raises(SystemExit):
            commands.main([*command, *words])
    assert [config.recall for config in configs] == [
        H2ORecall(), H2ORecall(ask=48, reach=9, layers=(1, 3))
    ]  # fmt: skip
    for word, problem in (
        ("reach=-1", "--recall-reach must be between 0 and 2147483647, got -1"),
        ("reach", "--recall-reach must be an integer, got ''"),
        ("rech=4", "'recall.rech' is not a setting of the cache"),
        ("--archive-limit=x", "--archive-limit must be an integer"),
    ):
        with pytest.raises(SystemExit):
            commands.main([*command, word])
        assert problem in capsys.readouterr().err
