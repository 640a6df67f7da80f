"""Model folders: described whole, or refused with all that is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files.paths import why_unsafe
from h2o_pack.hub.resolve import resolve
from h2o_pack.model import ModelFile
from h2o_pack.models.files import from_folder
from tests.bridge.models.checkpoints import (
    ALL,
    EMBEDDING,
    TENSORS,
    checkpoint,
    folder_of,
    index,
    packed,
)
from tests.messages import says

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "mine")


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        resolve(str(folder))
    assert caught.value.code == ExitCode.MODEL
    return str(caught.value)


def test_a_folder_is_taken_as_it_is(folder):
    model = resolve(str(folder))
    assert (model.id, model.commit, model.folder) == ("mine", "", folder)
    assert model.files == tuple(
        ModelFile(name, (folder / name).stat().st_size)
        for name in ("README.md", "config.json", "model.safetensors", "tokenizer.json")
    )
    assert (model.weights.bytes, model.weights.embedding_bytes) == (ALL, EMBEDDING)


def test_weights_are_counted_by_their_headers_and_not_by_the_files_size(folder):
    with (folder / "model.safetensors").open("ab") as file:
        file.write(bytes(1000))
    assert resolve(str(folder)).weights.bytes == ALL


def test_activations_have_the_dtype_of_the_tensors_and_not_of_the_config(tmp_path):
    tensors = {**TENSORS, "model.embed_tokens.weight": ("BF16", [100, 32])}
    folder = folder_of(tmp_path / "m", tensors, torch_dtype="float32")
    assert from_folder("m", folder).config.dtype == "bfloat16"


def test_tied_embeddings_are_decided_by_the_tensors_and_not_by_the_config(tmp_path):
    head = {"lm_head.weight": ("F32", [100, 32])}
    apart = folder_of(tmp_path / "a", {**TENSORS, **head}, tie_word_embeddings=True)
    tied = folder_of(tmp_path / "b", tie_word_embeddings=False)
    assert not from_folder("a", apart).weights.tied_embeddings
    assert from_folder("b", tied).weights.tied_embeddings


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ("model.safetensors", "there is no model*.safetensors"),
        ("tokenizer.json", "there is no tokenizer.json"),
    ],
)
def test_a_folder_that_lacks_a_file_is_refused(folder, missing, what):
    (folder / missing).unlink()
    says(refusal(folder))


def test_all_problems_of_a_folder_are_told_together(tmp_path):
    folder = folder_of(tmp_path / "mine", num_hidden_layers="2", vocab_size=None)
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").write_bytes(b"")
    (folder / INDEX).write_text('{"weight_map": {"a": "../x", "b": "model-9.safetensors"}}')
    said = refusal(folder)
    for what in (
        "there is no tokenizer.json",
        'num_hidden_layers is "2"',
        "config.json lacks vocab_size",
        "model.safetensors is not a safetensors file",
        f'{INDEX} names the file "../x", which leads out of its folder',
        f'{INDEX} names "model-9.safetensors", which is missing',
    ):
        assert what in said
    assert len(said.splitlines()) == 6


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {"a": ["b"]}}'])
def test_an_index_that_cannot_be_read_is_refused(folder, text):
    (folder / INDEX).write_text(text)
    assert INDEX in refusal(folder)


@pytest.mark.parametrize("name", ["../w", "/w", "a\\w", "a\0w", "a//w", "./w", "C:w", ""])
def test_an_index_that_leads_elsewhere_is_refused(folder, name):
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    says(refusal(folder))


def test_a_stale_index_is_named_tensor_by_tensor(folder):
    more = {"model.gone": ("F32", [1]), **TENSORS}
    del more["model.norm.weight"]
    (folder / INDEX).write_text(index(model=more))
    said = refusal(folder)
    says(said)


def test_an_index_that_names_another_file_is_stale(folder):
    (folder / "model-2.safetensors").write_bytes(checkpoint({"model.x": ("F32", [1])}))
    (folder / INDEX).write_text(index(model_2=TENSORS, model={"model.x": ("F32", [1])}))
    says(refusal(folder))


def test_a_tensor_in_two_files_is_refused(folder):
    shutil.copy(folder / "model.safetensors", folder / "model-1.safetensors")
    said = refusal(folder)
    says(said)
    says(said)


def test_a_file_that_is_cut_short_is_refused(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    says(refusal(folder))


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_followed(folder, tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (folder / "generation_config.json").symlink_to(secret)
    assert "generation_config.json is a link to" in refusal(folder)
    (folder / "generation_config.json").unlink()
    (folder / "kept").mkdir()
    (folder / "tokenizer.json").rename(folder / "kept/t.json")
    (folder / "tokenizer.json").symlink_to("kept/t.json")
    assert resolve(str(folder)).files[-1].path == "tokenizer.json"


def test_a_snapshot_of_the_hubs_cache_may_link_to_its_blobs_only(folder, tmp_path):
    snapshot = tmp_path / "models--a--b/snapshots/0"
    snapshot.mkdir(parents=True)
    shutil.copytree(folder, snapshot.parent.parent / "blobs")
    for path in folder.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert from_folder("a/b", snapshot).weights.bytes == ALL
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(folder / "config.json")
    with pytest.raises(UserError, match="is a link to"):
        from_folder("a/b", snapshot)


def test_a_dangling_or_circular_link_is_refused(folder):
    (folder / "merges.txt").symlink_to("merges.txt")
    assert "merges.txt" in refusal(folder)
    (folder / "merges.txt").unlink()
    (folder / "merges.txt").symlink_to("nowhere")
    assert "merges.txt" in refusal(folder)


def test_only_the_text_model_of_a_model_in_parts_is_weighed(tmp_path):
    tensors = {**TENSORS, "vision_tower.layers.0.weight": ("F32", [1000])}
    model = from_folder("m", folder_of(tmp_path / "m", tensors))
    assert (model.weights.bytes, model.weights.skipped_bytes) == (ALL, 4000)


def test_a_header_that_names_no_tensors_is_a_model_without_weights(folder):
    (folder / "model.safetensors").write_bytes(packed({}))
    says(refusal(folder))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("model.safetensors", None),
        ("folder/model 1.safetensors", None),
        ("..", "leads out of its folder"),
        ("a/../../b", "leads out of its folder"),
        ("/a", "is not inside the model's folder"),
        ("~/a", "is not inside the model's folder"),
        ("c:\\a", "has a backslash"),
        ("a\u202eb", "has control or unprintable characters"),
        ("a\ud800", "has control or unprintable characters"),
        ("a" * 300, "is too long"),
        (None, "is not a name"),
    ],
)
def test_a_name_is_a_path_inside_the_folder_or_says_why_not(name, reason):
    assert why_unsafe(name) == reason
