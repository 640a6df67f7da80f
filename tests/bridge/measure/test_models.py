"""Models that mlx_lm loads are tried in another process first, those of the hub too."""

from __future__ import annotations

import json
import os
from functools import partial

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.measure.models import load
from tests.bridge.refusals import refused
from tests.bridge.trees import write_model

ID = "someone/tiny"
refusal = partial(refused, load, code=ExitCode.MODEL)


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "tiny")


def hostile(folder) -> None:
    """Give a model a tokenizer of whose text nothing can be made within the limits."""
    path = folder / "tokenizer.json"
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 2000}
    normalizer = {"type": "Sequence", "normalizers": [longer] * 3}
    document = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**document, "normalizer": normalizer}), "utf-8")


def on_hub(hub, folder) -> str:
    hub.add(ID, {path.name: path.read_bytes() for path in folder.iterdir()})
    return ID


@pytest.mark.parametrize("remote", [False, True], ids=["folder", "hub"])
def test_a_tokenizer_that_takes_all_memory_ends_another_process(hub, folder, remote):
    hostile(folder)
    name = on_hub(hub, folder) if remote else str(folder)
    assert "the tokenizers library fails with tokenizer.json" in refusal(name)


@pytest.mark.parametrize("remote", [False, True], ids=["folder", "hub"])
def test_ios_refuses_it_too_and_writes_nothing(hub, run, folder, tmp_path, monkeypatch, remote):
    monkeypatch.setenv("H2O_PACK_CACHE", str(tmp_path / "cache"))
    hostile(folder)
    name = on_hub(hub, folder) if remote else str(folder)
    options = ("--max-kv", 256, "--no-vendor", "--output", tmp_path / "Out")
    result = run("ios", "--model", name, *options)
    assert result.exit_code == ExitCode.MODEL, result.output
    assert "the tokenizers library fails with tokenizer.json" in result.stderr
    assert not (tmp_path / "Out").exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_pipe_among_a_models_files_is_refused_without_being_opened(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert "is not a regular file" in refusal(str(folder))


@pytest.mark.parametrize("name", ["adapter_config.json", "adapters.safetensors"])
def test_a_pipe_among_an_adapters_files_is_refused_without_being_opened(tmp_path, name):
    for each in ("adapter_config.json", "adapters.safetensors"):
        (tmp_path / each).write_text("{}")
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    assert "is not a regular file" in refusal("demo", str(tmp_path))
