"""Models that mlx_lm cannot load are known by their configuration and headers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import known_models
from h2o_pack.model import Headers, Tensor
from h2o_pack.models.files import from_folder
from h2o_pack.models.loading import check_loads
from tests.bridge.models.catalogue_models import config_of, quantized
from tests.bridge.models.test_weights import tensors_of
from tests.bridge.trees import write_model
from tests.messages import says

HUB = [each for each in known_models().values() if each.hub]
FILE = "model.safetensors"


@pytest.fixture
def headers(tmp_path) -> Headers:
    return from_folder("tiny", write_model(tmp_path / "tiny")).headers


def refusal(config: dict[str, Any], tensors: tuple[Tensor, ...]) -> str:
    with pytest.raises(UserError) as caught:
        check_loads(Headers(config, {FILE: tensors}), "tiny")
    assert caught.value.code == ExitCode.MODEL
    return str(caught.value)


@pytest.mark.parametrize("known", HUB, ids=[each.name for each in HUB])
def test_a_model_of_the_catalogue_loads_and_does_not_without_one_of_its_tensors(known):
    tensors = tuple(tensors_of(quantized(known)))
    config = config_of(known) | {"quantization": {"group_size": 64, "bits": 4}}
    check_loads(Headers(config, {FILE: tensors}), known.name)
    scales = next(each for each in reversed(tensors) if each.name.endswith(".scales"))
    without = tuple(each for each in tensors if each != scales)
    assert scales.name.removesuffix("scales") in refusal(config, without)


def test_tensors_may_be_in_several_files(headers):
    first, *rest = headers.tensors[FILE]
    files = {"model-1.safetensors": (first,), "model-2.safetensors": tuple(rest)}
    check_loads(Headers(headers.config, files), "tiny")


def test_all_tensors_that_are_missing_unknown_or_of_another_shape_are_named(headers):
    norm, *rest = sorted(
        headers.tensors[FILE], key=lambda each: each.name != "model.norm.weight"
    )
    table, *rest = sorted(rest, key=lambda each: "embed_tokens" not in each.name)
    odd = replace(norm, name="model.odd.weight")
    turned = replace(table, shape=table.shape[::-1])
    said = refusal(dict(headers.config), (odd, turned, *rest))
    says(said)


def test_layers_that_only_the_configuration_has_are_missing_tensors(headers):
    said = refusal({**headers.config, "num_hidden_layers": 40}, headers.tensors[FILE])
    says(said)


@pytest.mark.parametrize("changed", [{"model_type": "unheard"}, {"hidden_size": "x"}])
def test_a_configuration_from_which_mlx_lm_makes_no_model_is_refused(headers, changed):
    said = refusal({**headers.config, **changed}, headers.tensors[FILE])
    assert "mlx_lm cannot build a model from config.json" in said
