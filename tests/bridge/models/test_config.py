from __future__ import annotations

import json
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.models.config import ModelConfig, read_config
from tests.bridge.trees import CONFIG, write_model

SUPPORTED = (
    "Supported: gemma, glm4, granite, llama, mistral, mixtral, olmo2, phi3, qwen2, qwen3, "
    "qwen3_moe, smollm3."
)


def config_of(folder: Path, **changes: object) -> ModelConfig:
    return read_config(write_model(folder, **changes) / "config.json")


def refusal(folder: Path, **changes: object) -> str:
    with pytest.raises(UserError) as caught:
        config_of(folder, **changes)
    assert caught.value.code == ExitCode.MODEL
    return str(caught.value)


def test_shapes_are_read(tmp_path):
    assert config_of(tmp_path, quantization={"bits": 4, "group_size": 64}) == ModelConfig(
        model_type="qwen3",
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        hidden_size=32,
        vocabulary=100,
        context=1024,
        dtype="float32",
        bits=4,
    )


def test_an_explicit_head_dim_wins_over_the_quotient(tmp_path):
    assert config_of(tmp_path, head_dim=64).head_dim == 64


def test_without_kv_heads_every_query_head_has_its_own(tmp_path):
    assert config_of(tmp_path, num_key_value_heads=None).kv_heads == 4


def test_an_unknown_architecture_is_refused_with_the_list_of_known_ones(tmp_path):
    assert refusal(tmp_path, model_type="qwen4") == (
        f'model_type "qwen4" is not supported ({tmp_path}/config.json). '
        f'Did you mean "qwen3"? {SUPPORTED}'
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"sliding_window": 512},
        {"sliding_window": 512, "use_sliding_window": True},
    ],
)
def test_sliding_windows_are_refused(tmp_path, changes):
    assert refusal(tmp_path, **changes) == (
        'this "qwen3" model has sliding-window layers, whose caches do not evict '
        f"({tmp_path}/config.json). Choose a model whose layers all attend to the whole "
        f"context. {SUPPORTED}"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 512, "use_sliding_window": False},
        {"sliding_window": None},
        {"sliding_window": 4096},
        {"sliding_window": 512, "layer_types": ["full_attention", "full_attention"]},
    ],
)
def test_a_window_that_never_slides_is_no_obstacle(tmp_path, changes):
    assert config_of(tmp_path, **changes).layers == 2


def test_a_model_that_brings_code_is_refused(tmp_path):
    assert refusal(tmp_path, model_file="evil.py").startswith(
        "config.json names a model_file, Python code that comes with the model"
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model_type": None}, "config.json names no model_type"),
        ({"num_hidden_layers": None}, "config.json lacks num_hidden_layers"),
        (
            {"num_hidden_layers": "2"},
            "num_hidden_layers in config.json should be a positive whole number",
        ),
        (
            {"num_hidden_layers": 1e300},
            "num_hidden_layers in config.json should be a positive whole number",
        ),
        ({"hidden_size": True}, "hidden_size in config.json should be a positive whole number"),
        ({"vocab_size": 0}, "vocab_size in config.json should be a positive whole number"),
        ({"head_dim": -8}, "head_dim in config.json should be a positive whole number"),
        ({"num_key_value_heads": 3}, "4 query heads cannot share 3 KV heads evenly"),
        ({"torch_dtype": "int8"}, "dtype 'int8' is none of bfloat16, float16, float32"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(tmp_path, changes, what):
    assert refusal(tmp_path, **changes) == (
        f"{what} ({tmp_path}/config.json). Download the model again, or choose another one."
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "config.json is not valid JSON"),
        ("{", "config.json is not valid JSON"),
        ("[" * 100_000, "config.json is not valid JSON"),
        ("[]", "config.json is not a JSON object"),
        ('{"model_type": NaN}', "config.json names no model_type"),
        (json.dumps({**CONFIG, "x": "y" * (1 << 20)}), "config.json is larger than 1 MiB"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, text, what):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError) as caught:
        read_config(tmp_path / "config.json")
    assert str(caught.value) == (
        f"{what} ({tmp_path}/config.json). Download the model again, or choose another one."
    )


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError) as caught:
        read_config(tmp_path / "config.json")
    assert "config.json cannot be read: No such file or directory" in str(caught.value)
