from __future__ import annotations

import hashlib
import json
import os

import pytest

from h2o_pack.bundle import bundle
from h2o_pack.models.local import from_folder
from tests.bridge.trees import write_model


def test_the_model_folder_holds_what_inference_needs_and_a_manifest(model, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    manifest = bundle(model, package)
    names = sorted(path.name for path in (package / "Model").iterdir())
    assert names == ["config.json", "manifest.json", "model.safetensors", "tokenizer.json"]
    written = json.loads((package / "Model/manifest.json").read_text())
    assert written == {
        "format": 1,
        "model": "tiny",
        "files": [
            {
                "path": file.path,
                "size": file.size,
                "sha256": hashlib.sha256((model.folder / file.path).read_bytes()).hexdigest(),
            }
            for file in model.files
        ],
    }
    assert manifest.size == model.size


def test_weights_are_hard_links_and_configurations_are_copies(model, tmp_path):
    bundle(model, tmp_path)
    assert (tmp_path / "Model/model.safetensors").samefile(model.folder / "model.safetensors")
    assert not (tmp_path / "Model/config.json").samefile(model.folder / "config.json")


def test_weights_are_copied_where_links_are_not_possible(model, tmp_path, monkeypatch):
    def refuse(_source, _target):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    bundle(model, tmp_path)
    copy, original = (
        (tmp_path / "Model/model.safetensors"),
        (model.folder / "model.safetensors"),
    )
    assert copy.read_bytes() == original.read_bytes()
    assert not copy.samefile(original)


def test_files_of_the_hubs_cache_are_followed_to_their_content(tmp_path):
    blobs = write_model(tmp_path / "blobs")
    snapshot = tmp_path / "snapshots/commit"
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(path)
    bundle(from_folder("x", snapshot), tmp_path)
    assert not any(path.is_symlink() for path in (tmp_path / "Model").iterdir())


def test_a_model_that_disappears_is_an_os_error(model, tmp_path):
    (model.folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError):
        bundle(model, tmp_path)
