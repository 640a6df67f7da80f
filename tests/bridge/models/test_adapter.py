import json
import os
from functools import partial
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.models.adapter import Adapter, read_adapter
from tests.bridge.models.checkpoints import checkpoint
from tests.messages import refused, says

LAYERS, RANK = 4, 8
PARAMETERS = {"rank": RANK, "scale": 20.0, "dropout": 0.05}
CONFIG = {"fine_tune_type": "lora", "num_layers": -1, "lora_parameters": PARAMETERS}
QUERY, VALUE = "model.layers.2.self_attn.q_proj", "model.layers.3.self_attn.v_proj"
MODEL = {f"{QUERY}.weight": (64, 32), f"{VALUE}.weight": (16, 4), f"{VALUE}.scales": (16, 1)}
"""The second weight is of 32 inputs with 4 bits each."""

refusal = partial(refused, read_adapter, code=ExitCode.MODEL)


def pair(path, inputs, outputs, rank=RANK):
    """Return the tensors of an adapted linear layer."""
    return {
        f"{path}.lora_a": ("F32", [inputs, rank]),
        f"{path}.lora_b": ("F32", [rank, outputs]),
    }


TENSORS = {**pair(QUERY, 32, 64), **pair(VALUE, 32, 16)}


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes an adapter, with changes of its configuration."""

    def write(tensors=TENSORS, **changes) -> Path:
        config = {**CONFIG, **changes}
        (tmp_path / "adapter_config.json").write_text(json.dumps(config), "utf-8")
        (tmp_path / "adapters.safetensors").write_bytes(checkpoint(tensors))
        return tmp_path

    return write


def test_an_adapter_is_described_by_its_tensors(folder):
    path = folder()
    assert read_adapter(path, LAYERS) == Adapter(
        folder=path,
        type="lora",
        rank=RANK,
        scale=20.0,
        layers=2,
        keys=("self_attn.q_proj", "self_attn.v_proj"),
        bytes=4 * RANK * (32 + 64 + 32 + 16),
    )


def test_its_configuration_leaves_nothing_to_choose(folder):
    assert json.loads(read_adapter(folder(), LAYERS).to_json()) == {
        "fine_tune_type": "lora",
        "num_layers": 2,
        "lora_parameters": {
            "rank": RANK,
            "scale": 20.0,
            "dropout": 0.0,
            "keys": ["self_attn.q_proj", "self_attn.v_proj"],
        },
    }


def test_dora_has_a_third_tensor(folder):
    tensors = {**pair(QUERY, 32, 64), f"{QUERY}.m": ("F32", [64])}
    assert read_adapter(folder(tensors, fine_tune_type="dora"), LAYERS).type == "dora"
    assert "has the tensors lora_a, lora_b, m instead of" in refusal(folder(tensors), LAYERS)


@pytest.mark.parametrize(
    "changes",
    [
        {"fine_tune_type": []},
        {"fine_tune_type": "full"},
        {"lora_parameters": {**PARAMETERS, "rank": 0}},
        {"lora_parameters": {"rank": 8, "alpha": 16}},
        {"lora_parameters": None},
        {"lora_parameters": {**PARAMETERS, "rank": 4}},
    ],
)
def test_a_configuration_that_swift_cannot_apply_is_refused(folder, changes):
    says(refusal(folder(**changes), LAYERS))


@pytest.mark.parametrize(
    "tensors",
    [
        pair("model.embed_tokens", 99, 32),
        pair("model.layers.4.mlp.up_proj", 8, 8),
        {f"{QUERY}.lora_a": ("F32", [32, 8])},
        {f"{QUERY}.lora_a": ("F32", [2, 8, 8]), f"{QUERY}.lora_b": ("F32", [2, 8, 8])},
        {},
    ],
)
def test_tensors_that_swift_cannot_apply_are_refused(folder, tensors):
    says(refusal(folder(tensors), LAYERS))


def test_a_folder_without_an_adapter_is_refused(tmp_path):
    says(refusal(tmp_path, LAYERS))


def test_an_adapter_that_is_no_folder_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    says(refusal(tmp_path / "pipe", LAYERS))


def test_an_adapter_fits_dense_and_quantized_weights_of_its_shape(folder):
    read_adapter(folder(), LAYERS, MODEL, "tiny")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (f"{QUERY}.weight", (64, 48)),
        (f"{QUERY}.weight", (48, 32)),
        (f"{VALUE}.weight", (16, 7)),
        (f"{VALUE}.weight", None),
    ],
)
def test_an_adapter_of_another_model_is_refused(folder, name, shape):
    shapes = {**MODEL, name: shape}
    model = {name: shape for name, shape in shapes.items() if shape is not None}
    says(refusal(folder(), LAYERS, model, "tiny"))
