from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import refused_types, swift_models
from h2o_pack.model import Layer, ModelConfig
from h2o_pack.models.config import Described, describe, read_config
from tests.bridge.models.small_configs import small_config
from tests.bridge.trees import CONFIG, write_model
from tests.messages import says

ELSE = "Download the model again, or choose another one."


def config_of(folder: Path, **changes: object) -> ModelConfig:
    return read_config(write_model(folder, **changes) / "config.json")


def refusal(folder: Path, **changes: object) -> str:
    with pytest.raises(UserError) as caught:
        config_of(folder, **changes)
    assert caught.value.code == ExitCode.MODEL
    return str(caught.value)


def test_shapes_are_read(tmp_path):
    found = config_of(tmp_path, quantization={"bits": 4, "group_size": 64})
    assert found == ModelConfig(
        model_type="qwen3",
        layers=(Layer("full", 2, 8, 8),) * 2,
        heads=4,
        hidden_size=32,
        intermediate_size=64,
        vocabulary=100,
        context=1024,
        dtype="float32",
        bits=4,
        group_size=64,
    )
    assert (found.evicting, found.kv_heads, found.head_dim) == ((0, 1), 2, 8)


def test_an_explicit_head_dim_wins_where_mlx_lm_reads_it(tmp_path):
    assert config_of(tmp_path, head_dim=64).head_dim == 64
    assert config_of(tmp_path, model_type="qwen2", head_dim=64).head_dim == 8


def test_without_kv_heads_every_query_head_has_its_own(tmp_path):
    assert config_of(tmp_path, model_type="llama", num_key_value_heads=None).kv_heads == 4


def test_an_unknown_architecture_is_refused_with_the_list_of_known_ones(tmp_path):
    said = refusal(tmp_path, model_type="qwen4")
    assert said.startswith(
        f'model_type "qwen4" is not supported ({tmp_path}/config.json). Did you mean "qwen3"? '
        f"Supported: {', '.join(sorted(swift_models()))}. --assume-full-attention takes"
    )


@pytest.mark.parametrize("model_type", ["gemma2", "deepseek_v32", "mamba2"])
def test_a_known_architecture_that_cannot_work_is_refused_with_the_reason(tmp_path, model_type):
    said = refusal(tmp_path, model_type=model_type)
    reason = refused_types()[model_type].reason
    assert said.startswith(f'model_type "{model_type}" is not supported: {reason} (')


def test_an_unknown_architecture_may_be_assumed_to_be_plain(tmp_path):
    path = write_model(tmp_path, model_type="new", head_dim=None) / "config.json"
    found = describe(json.loads(path.read_text()), str(path), assume_full_attention=True)
    assert found.assumed
    assert found.config.layers == (Layer("full", 2, 8, 8),) * 2
    says(found.remarks[0])
    assert not describe(CONFIG, "x", assume_full_attention=True).assumed


def test_a_model_in_parts_may_be_assumed_too():
    found = describe(
        {"model_type": "new", "text_config": {**CONFIG, "model_type": "inner"}},
        "config.json",
        assume_full_attention=True,
    )
    assert found.config.kv_heads == 2


def test_what_is_known_to_fail_is_not_assumed_away():
    with pytest.raises(UserError, match="gemma2"):
        describe({**CONFIG, "model_type": "gemma2"}, "x", assume_full_attention=True)


def test_windows_that_mlx_lm_does_not_read_do_not_slide(tmp_path):
    assert config_of(tmp_path, sliding_window=512).kinds() == {"full": 2}


def test_a_model_that_brings_code_is_refused(tmp_path):
    assert refusal(tmp_path, model_file="evil.py").startswith(
        "config.json names a model_file, Python code that comes with the model"
    )


COUNT = "a whole number of 0 to 16,777,216"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model_type": None}, "config.json names no model_type"),
        ({"num_hidden_layers": None}, "config.json lacks num_hidden_layers"),
        (
            {"num_hidden_layers": "2"},
            'num_hidden_layers is "2" but should be a whole number of 0 to 10,000',
        ),
        (
            {"num_hidden_layers": 1e300},
            "num_hidden_layers is 1e+300 but should be a whole number of 0 to 10,000",
        ),
        ({"hidden_size": True}, f"hidden_size is true but should be {COUNT}"),
        ({"hidden_size": math.inf}, f"hidden_size is inf but should be {COUNT}"),
        (
            {"hidden_size": 10**3000},
            f"hidden_size is a number of more than 20 digits but should be {COUNT}",
        ),
        ({"vocab_size": 0}, "mlx_lm cannot build a model from config.json: AssertionError"),
        ({"head_dim": -8}, f"head_dim is -8 but should be {COUNT}"),
        ({"head_dim": [8]}, f"head_dim is a list of 1 but should be {COUNT}"),
        (
            {"num_key_value_heads": 3},
            "mlx_lm cannot build a model from config.json: [scaled_dot_product_attention] "
            "n_heads must be a multiple of n_kv_heads, found n_heads 4 for n_kv_heads 3.",
        ),
        (
            {"torch_dtype": "int8"},
            'torch_dtype is "int8" but should be bfloat16, float16, float32',
        ),
    ],
)
def test_a_value_that_makes_no_sense_is_named(tmp_path, changes, what):
    assert refusal(tmp_path, **changes) == f"{what} ({tmp_path}/config.json). {ELSE}"


def test_all_problems_are_told_together(tmp_path):
    path = tmp_path / "config.json"
    said = refusal(
        tmp_path,
        hidden_size="x\n\x1b[31m" + "y" * 1000,
        vocab_size=None,
        torch_dtype="int8",
        quantization={"bits": 7, "group_size": 64},
    )
    assert said.splitlines() == [
        f"quantization.bits is 7 but should be one of 2, 3, 4, 5, 6, 8 ({path}). Choose a "
        "model converted with mlx_lm.convert.",
        f'torch_dtype is "int8" but should be bfloat16, float16, float32 ({path}). {ELSE}',
        f'hidden_size is "x\\n\\x1b[31m{"y" * 46}..." but should be {COUNT} ({path}). {ELSE}',
        f"config.json lacks vocab_size ({path}). {ELSE}",
    ]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (
            {"layer_types": 3},
            "layer_types is 3 but should be a list of at most 10,000",
        ),
        ({"layer_types": ["x"] * 4}, "mlx_lm cannot build a model from config.json: "),
        ({"sliding_window": -1}, f"sliding_window is -1 but should be {COUNT}"),
        ({"num_experts_per_tok": 9}, "mlx_lm cannot build a model from config.json: "),
    ],
)
def test_layer_types_are_checked(changes, what):
    with pytest.raises(UserError) as caught:
        describe(small_config("gpt_oss", **changes), "config.json")
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "config.json is not valid JSON"),
        ("{", "config.json is not valid JSON"),
        ("[" * 100_000, "config.json is not valid JSON"),
        ('{"a":' * 100_000, "config.json is not valid JSON"),
        ("[]", "config.json is not a JSON object"),
        ('{"model_type": NaN}', "config.json is not valid JSON"),
        ('{"model_type": Infinity}', "config.json names no model_type"),
        (
            json.dumps({**CONFIG, "x": "y" * (10 << 20)}),
            "config.json cannot be read: it is larger than 1 MiB",
        ),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, text, what):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError) as caught:
        read_config(tmp_path / "config.json")
    assert str(caught.value) == f"{what} ({tmp_path}/config.json). {ELSE}"


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError) as caught:
        read_config(tmp_path / "config.json")
    assert "config.json cannot be read: No such file or directory" in str(caught.value)


ODD = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=6,
)


@st.composite
def configs(draw) -> dict[str, object]:
    """Take a good configuration and spoil some of its values, inner ones too."""
    document = small_config(draw(st.sampled_from(sorted(swift_models()))))
    inner = document.get("text_config")
    for target in (document, inner) if isinstance(inner, dict) else (document,):
        for name in draw(st.lists(st.sampled_from(sorted(target)), max_size=3)):
            target[name] = draw(ODD | st.integers(-1, 9) | st.sampled_from([1 << 24, 1e999]))
    return document


def understood(document: dict[str, object], *, assume: bool) -> Described | None:
    """Describe it; a refusal must be one that can be printed anywhere."""
    try:
        return describe(document, "config.json", assume_full_attention=assume)
    except UserError as error:
        refused = error
    assert refused.code == ExitCode.MODEL
    text = str(refused)
    assert all(character.isprintable() for character in text.replace("\n", ""))
    assert len(text) < 20_000
    return None


@settings(max_examples=150)
@given(configs(), st.booleans())
@example({"model_type": "openelm", "ffn_multipliers": []}, False)
@example({"model_type": "x", "text_config": {"vocab_size": {}}}, True)
@example(small_config("phi") | {"max_position_embeddings": True}, False)
@example(small_config("phi") | {"n_positions": 10**400}, False)
@example(small_config("phi") | {"num_hidden_layers": 0}, False)
@example(small_config("nanochat") | {"num_key_value_heads": 0}, False)
@example(
    small_config("gemma4_text") | {"sliding_window_pattern": 0, "num_kv_shared_layers": 2},
    False,
)
def test_a_config_is_understood_or_refused_and_nothing_else(document, assume):
    found = understood(document, assume=assume)
    if found is not None:
        assert found.config.evicting
        assert all(
            layer.kv_heads > 0 and layer.key_dim > 0
            for layer in found.config.layers
            if layer.kind in ("full", "sliding")
        )


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["model_type", "text_config", *CONFIG]), ODD))
def test_any_json_object_is_understood_or_refused(document):
    understood(document, assume=True)


def test_a_file_in_utf_16_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-16")
    with pytest.raises(UserError) as caught:
        read_config(tmp_path / "config.json")
    says(caught.value)


def test_a_pipe_is_refused_without_being_opened(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UserError) as caught:
        read_config(tmp_path / "config.json")
    says(caught.value)
