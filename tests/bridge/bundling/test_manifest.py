from __future__ import annotations

import json
from dataclasses import replace

import pytest

from h2o_pack.bundling import manifest
from h2o_pack.bundling.manifest import BundledFile, Manifest
from h2o_pack.errors import UserError
from tests.bridge.trees import build_tree
from tests.messages import says

FILES = tuple(
    BundledFile(path, 2, digit * 64)
    for path, digit in [
        ("model.safetensors", "1"),
        ("config.json", "2"),
        ("tokenizer.json", "3"),
        ("tokenizer_config.json", "4"),
        ("generation_config.json", "5"),
    ]
)
DIGEST = Manifest("tiny", FILES).digest


def changed(path: str) -> str:
    """Return the digest of a model of which one file has other content."""
    files = (replace(each, sha256="0" * 64) if each.path == path else each for each in FILES)
    return Manifest("tiny", tuple(files)).digest


@pytest.mark.parametrize("path", ["model.safetensors", "config.json", "tokenizer.json"])
def test_what_decides_the_caches_decides_the_digest(path):
    assert changed(path) != DIGEST


@pytest.mark.parametrize("path", ["tokenizer_config.json", "generation_config.json"])
def test_a_chat_template_and_defaults_of_sampling_do_not(path):
    assert changed(path) == DIGEST


def test_names_and_order_do_not_change_the_digest():
    assert Manifest("other", FILES[::-1], "c" * 40).digest == DIGEST


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    written = Manifest("tiny", FILES)
    build_tree(tmp_path, {"Model/manifest.json": written.to_json()})
    assert manifest.read(tmp_path) == written


def test_a_digest_that_is_not_of_the_files_is_refused(tmp_path):
    document = json.loads(Manifest("tiny", FILES).to_json()) | {"digest": "0" * 64}
    build_tree(tmp_path, {"Model/manifest.json": json.dumps(document)})
    with pytest.raises(UserError) as caught:
        manifest.read(tmp_path)
    says(caught.value)
