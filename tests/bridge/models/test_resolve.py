from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.models.resolve import inference_needs, resolve
from tests.bridge.trees import write_model


def refusal(name: str) -> str:
    with pytest.raises(UserError) as caught:
        resolve(name)
    assert caught.value.code == ExitCode.MODEL
    return str(caught.value)


def test_the_alias_demo_is_the_embedded_model():
    model = resolve("Demo")
    assert model.id == "demo"
    assert model.files == (
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    )
    assert (model.config.layers, model.config.kv_heads, model.config.head_dim) == (4, 2, 64)


def test_the_model_card_names_the_weights_that_are_there():
    model = resolve("demo")
    card = (model.path / "README.md").read_text("utf-8")
    weights = (model.path / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() in card


def test_a_folder_is_taken_as_it_is(tmp_path):
    folder = write_model(tmp_path / "mine")
    model = resolve(str(folder))
    assert (model.id, model.path) == ("mine", folder)
    assert model.files == ("config.json", "model.safetensors", "tokenizer.json")


def test_an_alias_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    write_model(tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    assert resolve("demo").config.layers == 4
    assert resolve("./demo").config.layers == 2


def test_an_unknown_name_is_answered_with_the_nearest_alias():
    assert refusal("Qwen3-4B-4bits") == (
        "there is no model 'Qwen3-4B-4bits'. Did you mean \"Qwen3-4B-4bit\"? Give an alias "
        "(demo, Qwen3-0.6B-4bit, Qwen3-1.7B-4bit, Qwen3-4B-4bit, Qwen3-8B-4bit, "
        "Llama-3.2-1B-Instruct-4bit, Llama-3.2-3B-Instruct-4bit, SmolLM3-3B-4bit), a folder, "
        "or an id on huggingface.co such as mlx-community/Qwen3-4B-4bit."
    )


@pytest.mark.parametrize("name", ["./missing", "/nowhere/model", "~nobody-here/model"])
def test_a_path_that_is_no_folder_is_named(name):
    assert refusal(name) == (
        f"{name!r} is not a folder. Give the folder that holds config.json and the weights."
    )


@pytest.mark.parametrize(
    "name", ["", "a/b/c", "a b/c", "../b c", "-x/y", "a/\n", "x" * 5000, "\0"]
)
def test_what_cannot_be_a_hub_id_never_reaches_the_network(name):
    assert "there is no model" in refusal(name) or "is not a folder" in refusal(name)


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ("model.safetensors", "there is no model*.safetensors"),
        ("tokenizer.json", "there is no tokenizer.json"),
    ],
)
def test_a_folder_that_lacks_a_file_is_refused(tmp_path, missing, what):
    folder = write_model(tmp_path / "mine")
    (folder / missing).unlink()
    assert refusal(str(folder)) == (
        f"{what} ({folder}). Download the model again, or choose another one."
    )


def test_an_index_that_names_a_missing_shard_is_refused(tmp_path):
    folder = write_model(tmp_path / "mine")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "the index names 'model-00002-of-00002.safetensors', which is missing" in refusal(
        str(folder)
    )


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {"a": ["b"]}}'])
def test_an_index_that_cannot_be_read_is_refused(tmp_path, text):
    folder = write_model(tmp_path / "mine")
    (folder / "model.safetensors.index.json").write_text(text)
    assert "the index of the weights is not readable" in refusal(str(folder))


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("model-00001-of-00002.safetensors", True),
        ("chat_template.jinja", True),
        ("adapters.safetensors", False),
        ("pytorch_model.bin", False),
        ("modeling_evil.py", False),
    ],
)
def test_only_what_inference_needs_is_taken(name, needed):
    assert inference_needs(name) == needed


def test_without_a_network_the_message_says_what_to_do(tmp_path: Path):
    options = ["ios", "--model", "Qwen3-4B-4bit", "--max-kv", "512"]
    done = subprocess.run(
        [sys.executable, "-m", "h2o_pack", *options],
        cwd=tmp_path,
        env={
            **os.environ,
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "HF_HOME": str(tmp_path / "hub"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.MODEL
    assert re.sub(r"\s+", " ", done.stderr).strip() == (
        "error: mlx-community/Qwen3-4B-4bit cannot be fetched: the hub cannot be reached and "
        "the model is not in its cache. Check the network, or give a local folder as --model."
    )
    assert not (tmp_path / "Qwen3-4B-4bit").exists()
