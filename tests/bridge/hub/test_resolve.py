"""Names of models: aliases, folders, ids and addresses of the hub."""

import os
import re
from functools import partial
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.hub.resolve import model_of_address
from tests.bridge.models.checkpoints import repository
from tests.bridge.trees import resolve, write_model
from tests.messages import refused, says
from tests.processes import python

refusal = partial(refused, resolve, code=ExitCode.MODEL)


def test_the_alias_demo_is_the_bundled_demo_model():
    model = resolve("Demo")
    assert (model.id, model.commit) == ("demo", "")
    assert [file.path for file in model.files] == [
        "LICENSE",
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    config = model.config
    assert (len(config.layers), config.kv_heads, config.head_dim) == (4, 2, 64)


def test_an_alias_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    write_model(tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    assert len(resolve("demo").config.layers) == 4
    assert len(resolve("./demo").config.layers) == 2


def test_an_alias_leads_to_the_hub(hub):
    hub.add("mlx-community/Qwen3-4B-4bit", repository())
    assert resolve("qwen3-4b-4BIT").id == "mlx-community/Qwen3-4B-4bit"
    says(refusal("Qwen3-4B-4bit@x"))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b/c",
        "a b/c",
        "../b c",
        "-x/y",
        "a/\n",
        "x" * 5000,
        "\0",
        "a/b..c",
        "a/b--c",
        "é/b",
    ],
)
def test_what_cannot_be_a_hub_id_never_reaches_the_network(hub, name):
    assert "there is no model" in refusal(name) or "is not a folder" in refusal(name)
    assert hub.requests == []


@pytest.mark.parametrize("revision", ["../../x", "a b", "", "a\n", "x@y"])
def test_what_cannot_be_a_revision_never_reaches_the_network(hub, revision):
    says(refusal(f"someone/tiny@{revision}", code=ExitCode.USAGE))
    assert hub.requests == []


def test_two_revisions_or_one_of_a_folder_are_refused(tmp_path):
    for model in ("a/b@v1", str(write_model(tmp_path / "mine"))):
        says(refusal(model, code=ExitCode.USAGE, revision="v2"))


def test_a_folder_may_have_an_at_sign_in_its_name(tmp_path):
    assert resolve(str(write_model(tmp_path / "mine@home"))).id == "mine@home"


def test_without_a_network_the_message_says_what_to_do(tmp_path: Path):
    options = ["ios", "--model", "Qwen3-4B-4bit", "--max-kv", "512"]
    settings = {
        **os.environ,
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(tmp_path / "hub"),
        "H2O_PACK_CACHE": str(tmp_path / "cache"),
    }
    process = python("-m", "h2o_pack", *options, cwd=tmp_path, env=settings)
    assert process.returncode == ExitCode.NETWORK
    says(re.sub(r"\s+", " ", process.stderr).strip())
    assert not (tmp_path / "Qwen3-4B-4bit").exists()


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("pasted", "model"),
    [
        ("https://huggingface.co/org/model", "org/model"),
        ("https://huggingface.co/org/model/", "org/model"),
        ("https://huggingface.co/org/model?library=mlx#usage", "org/model"),
        ("http://hf.co/org/model", "org/model"),
        (" huggingface.co/org/model ", "org/model"),
        ("https://huggingface.co/org/model/tree/main", "org/model@main"),
        (f"https://huggingface.co/org/model/commit/{COMMIT}", f"org/model@{COMMIT}"),
        ("https://huggingface.co/org/model/blob/v1/config.json", "org/model@v1"),
        ("https://huggingface.co/org/model/discussions/3", "org/model"),
        ("org/model", "org/model"),
        ("./folder", "./folder"),
        ("demo", "demo"),
    ],
)
def test_the_address_of_a_model_s_page_names_it(pasted, model):
    assert model_of_address(pasted) == model


@pytest.mark.parametrize(
    "pasted",
    [
        "https://huggingface.co/datasets/org/data",
        "https://huggingface.co/org",
        "https://huggingface.co.example.org/org/model",
        "https://github.com/org/model",
    ],
)
def test_the_address_of_anything_else_is_refused(pasted):
    says(refused(model_of_address, pasted, code=ExitCode.MODEL))
