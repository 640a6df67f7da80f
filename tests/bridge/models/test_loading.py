"""Models that mlx_lm cannot load: known by their headers, or tried before they are bundled."""

import json
import os
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from h2o_pack.errors import ExitCode
from h2o_pack.facts import known_models
from h2o_pack.model import Contents, Tensor
from h2o_pack.models import loading, trial
from h2o_pack.models.files import from_folder
from h2o_pack.models.loading import check_loads, try_model
from h2o_pack.resolved.python_tokenizer import same_tokenizer
from tests.bridge.models.small_configs import config_of, quantized
from tests.bridge.models.test_files import tensors_of
from tests.bridge.trees import names, pad_endlessly, write_model
from tests.messages import refused, says
from tests.nightly import nightly_except
from tests.processes import output_of

HUB = {model.name: model for model in known_models().values() if model.hub}
FILE = "model.safetensors"


@pytest.fixture
def contents(tmp_path) -> Contents:
    return from_folder("tiny", write_model(tmp_path / "tiny")).contents


def contents_of(config: dict[str, Any], *tensors: Tensor) -> Contents:
    return Contents("tiny", "", config, None, {FILE: tensors}, ())


def refusal(contents: Contents) -> str:
    return refused(check_loads, contents, code=ExitCode.MODEL)


@pytest.mark.parametrize("name", nightly_except([*HUB][::4], HUB))
def test_a_model_of_the_catalogue_loads_and_does_not_without_one_of_its_tensors(name):
    entry = HUB[name]
    tensors = tensors_of(quantized(entry))
    config = config_of(entry) | {"quantization": {"group_size": 64, "bits": 4}}
    check_loads(contents_of(config, *tensors))
    scales = next(tensor for tensor in reversed(tensors) if tensor.name.endswith(".scales"))
    without = (tensor for tensor in tensors if tensor != scales)
    assert scales.name.removesuffix("scales") in refusal(contents_of(config, *without))


def test_tensors_may_be_in_several_files(contents):
    first, *rest = contents.tensors[FILE]
    files = {"model-1.safetensors": (first,), "model-2.safetensors": tuple(rest)}
    check_loads(replace(contents, tensors=files))


def test_all_tensors_that_are_missing_unknown_or_of_another_shape_are_named(contents):
    norm, *rest = sorted(
        contents.tensors[FILE], key=lambda tensor: tensor.name != "model.norm.weight"
    )
    table, *rest = sorted(rest, key=lambda tensor: "embed_tokens" not in tensor.name)
    odd = replace(norm, name="model.odd.weight")
    turned = replace(table, shape=table.shape[::-1])
    says(refusal(contents_of(contents.config, odd, turned, *rest)))


def test_layers_that_only_the_configuration_has_are_missing_tensors(contents):
    config = {**contents.config, "num_hidden_layers": 40}
    says(refusal(replace(contents, config=config)))


@pytest.mark.parametrize("change", [{"model_type": "unheard"}, {"hidden_size": "x"}])
def test_a_configuration_from_which_mlx_lm_makes_no_model_is_refused(contents, change):
    message = refusal(replace(contents, config={**contents.config, **change}))
    assert "mlx_lm cannot build a model from config.json" in message


# Tried before they are bundled


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "tiny")


def refusal_of(folder) -> str:
    return refused(try_model, from_folder("tiny", folder), folder, code=ExitCode.MODEL)


@pytest.mark.parametrize("text", ["{", "", "{}", '{"model": {"type": "unheard"}}'])
def test_a_tokenizer_that_cannot_be_loaded_is_refused(folder, text):
    (folder / "tokenizer.json").write_text(text)
    says(refusal_of(folder))


def test_a_small_model_whose_step_gives_no_numbers_is_refused(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"][:] = np.nan
    save_file(tensors, path)
    assert "not finite" in refusal_of(folder)


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
    pad_endlessly(folder)
    says(refusal_of(folder))


def test_a_tokenizer_with_which_the_library_panics_is_refused(folder):
    endless = replacing({"Regex": "(x{1,1000}){1,1000}b{99999}"}, "x")
    longer = replacing({"String": "a"}, "x" * 1000)
    normalized(folder, {"type": "Sequence", "normalizers": [longer, endless]})
    says(refusal_of(folder))


def test_a_tokenizer_that_takes_too_long_is_refused(folder, monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 1.0)
    longer = replacing({"String": "a"}, "a" * 2000)
    back = [replacing({"String": "a"}, "b"), replacing({"String": "b"}, "a")]
    normalized(folder, {"type": "Sequence", "normalizers": [longer, longer, *back * 1000]})
    says(refused(loading.try_tokenizer, folder / "tokenizer.json", "tiny", code=ExitCode.MODEL))


def test_a_rare_character_that_a_written_tokenizer_reads_otherwise_is_found(folder):
    path, original = folder / "tokenizer.json", folder / "original.json"
    single = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated"}
    document = json.loads(path.read_text()) | {"pre_tokenizer": single | {"invert": False}}
    for file in (path, original):
        file.write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    assert same_tokenizer(str(folder), cleans_up=False) is None
    normalized(folder, replacing({"String": "\u1e02"}, "a"))
    what, text, *ids = same_tokenizer(str(folder), cleans_up=False)
    assert (what, "\u1e02" in text, ids[0][0], ids[1][0]) == ("ids", True, 0, 1)


@pytest.mark.parametrize("answer", [-11, {"refused": [["mlx_lm fails", "Download again."]]}])
def test_a_full_folder_for_temporary_files_is_not_blamed_on_the_model(
    folder, tmp_path, monkeypatch, answer
):
    """MLX starts a compiler that writes there."""
    monkeypatch.setattr(trial.worker, "ask", lambda _request: answer)
    assert "fails" in refused(loading.try_step, folder, 2, "tiny", code=ExitCode.MODEL)
    full = tmp_path / "temporary"
    monkeypatch.setenv("TMPDIR", str(full))
    says(refused(loading.try_step, folder, 2, "tiny", code=ExitCode.OUTPUT))


def test_a_process_that_ended_is_replaced(folder):
    first = trial.worker.start()
    first.kill()
    first.wait()
    try_model(from_folder("tiny", folder), folder)
    assert trial.worker.start().pid != first.pid


def test_the_process_ends_with_the_program():
    code = "from h2o_pack.models.trial import worker; print(worker.start().pid)"
    process = output_of(sys.executable, "-c", code)
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)
