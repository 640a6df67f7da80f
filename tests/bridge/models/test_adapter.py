from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.models.adapter import Adapter, read_adapter
from tests.bridge.models.checkpoints import checkpoint
from tests.bridge.refusals import refused
from tests.messages import says

LAYERS, RANK = 4, 8
PARAMETERS = {"rank": RANK, "scale": 20.0, "dropout": 0.05}
CONFIG = {"fine_tune_type": "lora", "num_layers": -1, "lora_parameters": PARAMETERS}
QUERY, VALUE = "model.layers.2.self_attn.q_proj", "model.layers.3.self_attn.v_proj"
MODEL = {
    f"{QUERY}.weight": (64, 32),
    f"{VALUE}.weight": (16, 4),
    f"{VALUE}.scales": (16, 1),
}
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
    assert "has lora_a, lora_b, m, not lora_a, lora_b" in refusal(folder(tensors), LAYERS)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"fine_tune_type": []}, "fine_tune_type is a list of 0"),
        ({"fine_tune_type": "full"}, 'fine_tune_type is "full"; mlx-swift-lm applies lora'),
        ({"lora_parameters": {**PARAMETERS, "rank": 0}}, "rank of lora_parameters is 0"),
        ({"lora_parameters": {"rank": 8, "alpha": 16}}, "scale of lora_parameters is null"),
        ({"lora_parameters": None}, "rank of lora_parameters is null"),
        (
            {"lora_parameters": {**PARAMETERS, "rank": 4}},
            "has tensors of the ranks 8 and 8, not 4",
        ),
    ],
)
def test_a_configuration_that_swift_cannot_apply_is_refused(folder, changes, what):
    assert what in refusal(folder(**changes), LAYERS)


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        (pair("model.embed_tokens", 99, 32), "in none of the model's 4 layers"),
        (pair("model.layers.4.mlp.up_proj", 8, 8), "in none of the model's 4 layers"),
        ({f"{QUERY}.lora_a": ("F32", [32, 8])}, "has lora_a, not lora_a, lora_b"),
        (
            {f"{QUERY}.lora_a": ("F32", [2, 8, 8]), f"{QUERY}.lora_b": ("F32", [2, 8, 8])},
            "is no linear layer",
        ),
        ({}, "adapters.safetensors has no tensors"),
    ],
)
def test_tensors_that_swift_cannot_apply_are_refused(folder, tensors, what):
    assert what in refusal(folder(tensors), LAYERS)


def test_a_folder_without_an_adapter_is_refused(tmp_path):
    said = refusal(tmp_path, LAYERS)
    says(said)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapters.safetensors"])
def test_a_pipe_is_refused_without_being_opened(folder, name):
    path = folder() / name
    path.unlink()
    os.mkfifo(path)
    assert "is not a regular file" in refusal(path.parent, LAYERS)


def test_an_adapter_fits_dense_and_quantized_weights_of_its_shape(folder):
    read_adapter(folder(), LAYERS, MODEL, "tiny")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({f"{QUERY}.weight": (64, 48)}, "is for 32 inputs and 64 outputs"),
        ({f"{QUERY}.weight": (48, 32)}, "has the shape [48, 32]"),
        ({f"{VALUE}.weight": (16, 7)}, "is for 32 inputs and 16 outputs"),
        ({f"{VALUE}.weight": None}, "which tiny does not have"),
    ],
)
def test_an_adapter_of_another_model_is_refused(folder, changes, what):
    model = {name: shape for name, shape in {**MODEL, **changes}.items() if shape is not None}
    said = refusal(folder(), LAYERS, model, "tiny")
    assert what in said
