"""A model is tried before it is bundled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.models import loading, trial
from h2o_pack.models.files import from_folder
from h2o_pack.models.loading import try_model
from tests.bridge.trees import names, write_model
from tests.messages import says


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "tiny")


def refusal(folder) -> str:
    with pytest.raises(UserError) as caught:
        try_model(from_folder("tiny", folder), folder)
    assert caught.value.code == ExitCode.MODEL
    return str(caught.value)


def test_a_model_that_works_is_not_refused(folder):
    try_model(from_folder("tiny", folder), folder)


@pytest.mark.parametrize("text", ["{", "", "{}", '{"model": {"type": "unheard"}}'])
def test_a_tokenizer_that_cannot_be_loaded_is_refused(folder, text):
    (folder / "tokenizer.json").write_text(text)
    says(refusal(folder))


def test_a_small_model_whose_step_gives_no_numbers_is_refused(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"][:] = np.nan
    save_file(tensors, path)
    assert "not finite" in refusal(folder)


def test_a_large_model_takes_no_step(folder, monkeypatch):
    monkeypatch.setattr(loading, "try_step", None)
    model = from_folder("tiny", folder)
    weights = replace(model.weights, bytes=loading.SMALL + 1)
    try_model(replace(model, weights=weights), folder)


def test_nothing_is_written_when_a_model_does_not_work(run, folder, tmp_path):
    (folder / "tokenizer.json").write_text("{")
    result = run("ios", "--model", folder, "--max-kv", 256, "--output", tmp_path / "Out")
    assert result.exit_code == ExitCode.MODEL
    assert names(tmp_path) == ["tiny"]


def normalized(folder, normalizer):
    """Give a tokenizer a normalizer."""
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "normalizer": normalizer}))


def replacing(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def test_a_tokenizer_that_takes_all_memory_is_refused(folder):
    longer = replacing({"String": "a"}, "a" * 2000)
    normalized(folder, {"type": "Sequence", "normalizers": [longer] * 3})
    says(refusal(folder))


def test_a_tokenizer_with_which_the_library_panics_is_refused(folder):
    endless = replacing({"Regex": "(x{1,1000}){1,1000}b{99999}"}, "x")
    longer = replacing({"String": "a"}, "x" * 1000)
    normalized(folder, {"type": "Sequence", "normalizers": [longer, endless]})
    says(refusal(folder))


def test_a_tokenizer_that_takes_too_long_is_refused(folder, monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 3.0)
    longer = replacing({"String": "a"}, "a" * 2000)
    back = [replacing({"String": "a"}, "b"), replacing({"String": "b"}, "a")]
    normalized(folder, {"type": "Sequence", "normalizers": [longer, longer, *back * 1000]})
    with pytest.raises(UserError) as caught:
        loading.try_tokenizer(folder / "tokenizer.json", "tiny")
    says(str(caught.value))


def test_a_process_that_ended_is_replaced(folder):
    first = trial.worker.start()
    first.kill()
    first.wait()
    try_model(from_folder("tiny", folder), folder)
    assert trial.worker.start().pid != first.pid


def test_the_process_ends_with_the_program():
    code = "from h2o_pack.models.trial import worker; print(worker.start().pid)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
