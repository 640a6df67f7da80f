import json
import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import swift_models
from h2o_pack.model import Layer, ModelConfig
from h2o_pack.models.config import Described, describe, read_config
from tests.bridge.models.small_configs import small_config
from tests.bridge.trees import CONFIG, write_model
from tests.messages import refused, says


def config_of(folder: Path, **changes: object) -> ModelConfig:
    return read_config(write_model(folder, **changes) / "config.json")


def refusal(folder: Path, **changes: object) -> str:
    return refused(config_of, folder, **changes, code=ExitCode.MODEL)


def test_shapes_are_read(tmp_path):
    config = config_of(tmp_path, quantization={"bits": 4, "group_size": 64})
    assert config == ModelConfig(
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
    assert (config.evicting, config.kv_heads, config.head_dim) == ((0, 1), 2, 8)


@pytest.mark.parametrize(
    ("changes", "layer"),
    [
        ({"head_dim": 64}, Layer("full", 2, 64, 64)),
        ({"head_dim": 64, "model_type": "qwen2"}, Layer("full", 2, 8, 8)),
        ({"num_key_value_heads": None, "model_type": "llama"}, Layer("full", 4, 8, 8)),
        ({"sliding_window": 512}, Layer("full", 2, 8, 8)),
    ],
)
def test_only_keys_that_mlx_lm_reads_count_with_its_defaults(tmp_path, changes, layer):
    assert config_of(tmp_path, **changes).layers == (layer,) * 2


def test_an_unknown_architecture_is_refused_with_the_list_of_known_ones(tmp_path):
    message = refusal(tmp_path, model_type="qwen4")
    assert message == (
        f'model_type "qwen4" is not supported ({tmp_path}/config.json). Did you mean "qwen3"? '
        f"Choose a model of another family. Supported: {', '.join(sorted(swift_models()))}."
    )


def test_what_is_known_to_fail_is_refused_with_the_reason():
    with pytest.raises(UserError, match="gemma2"):
        describe({**CONFIG, "model_type": "gemma2"}, "x")


def test_a_model_that_brings_code_is_refused(tmp_path):
    assert refusal(tmp_path, model_file="evil.py").startswith(
        "config.json names a model_file, which is Python code of the model"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": None},
        {"num_hidden_layers": None},
        {"num_hidden_layers": "2"},
        {"num_hidden_layers": 1e300},
        {"hidden_size": True},
        {"hidden_size": math.inf},
        {"hidden_size": 10**3000},
        {"vocab_size": 0},
        {"head_dim": -8},
        {"head_dim": [8]},
        {"num_key_value_heads": 3},
        {"torch_dtype": "int8"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_value_that_makes_no_sense_is_named(tmp_path, changes):
    says(refusal(tmp_path, **changes))


def test_all_problems_are_told_together(tmp_path):
    changes = {"hidden_size": "x\n\x1b[31m" + "y" * 1000, "vocab_size": None}
    quantization = {"bits": 7, "group_size": 64}
    says(refusal(tmp_path, torch_dtype="int8", quantization=quantization, **changes))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"layer_types": 3}, "layer_types is 3 but should be a list of at most 10,000"),
        ({"layer_types": ["x"] * 4}, "mlx_lm cannot build a model from config.json: "),
        ({"sliding_window": -1}, "sliding_window is -1 but should be a whole number"),
        ({"num_experts_per_tok": 9}, "mlx_lm cannot build a model from config.json: "),
    ],
)
def test_layer_types_are_checked(changes, what):
    document = small_config("gpt_oss", **changes)
    assert what in refused(describe, document, "config.json", code=ExitCode.MODEL)


DAMAGED = {
    "empty": b"",
    "open": b"{",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "a list": b"[]",
    "not a number": b'{"model_type": NaN}',
    "infinity": b'{"model_type": Infinity}',
    "long": json.dumps({**CONFIG, "x": "y" * (10 << 20)}).encode(),
    "utf-16": json.dumps(CONFIG).encode("utf-16"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_refused(tmp_path, kind):
    (tmp_path / "config.json").write_bytes(DAMAGED[kind])
    says(refused(read_config, tmp_path / "config.json", code=ExitCode.MODEL))


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


def understood(document: dict[str, object]) -> Described | None:
    """Describe it; a refusal must be one that can be printed anywhere."""
    try:
        return describe(document, "config.json")
    except UserError as error:
        refusal = error
    assert refusal.code == ExitCode.MODEL
    text = str(refusal)
    assert all(character.isprintable() for character in text.replace("\n", ""))
    assert len(text) < 20_000
    return None


@settings(max_examples=150)
@given(configs())
@example({"model_type": "openelm", "ffn_multipliers": []})
@example(small_config("phi") | {"max_position_embeddings": True})
@example(small_config("phi") | {"n_positions": 10**400})
@example(small_config("phi") | {"num_hidden_layers": 0})
@example(small_config("nanochat") | {"num_key_value_heads": 0})
@example(small_config("gemma4_text") | {"sliding_window_pattern": 0, "num_kv_shared_layers": 2})
def test_a_config_is_understood_or_refused_and_nothing_else(document):
    model = understood(document)
    if model is not None:
        assert model.config.evicting
        assert all(
            layer.kv_heads > 0 and layer.key_dim > 0
            for layer in model.config.layers
            if layer.kind in ("full", "sliding")
        )


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["model_type", "text_config", *CONFIG]), ODD))
def test_any_json_object_is_understood_or_refused(document):
    understood(document)
    understood({**document, "model_type": "llama"})
