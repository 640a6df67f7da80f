from __future__ import annotations

import json
from functools import partial

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.models.texts import check_sampling
from tests.bridge.refusals import refused
from tests.messages import says


def data(**values) -> dict[str, bytes]:
    return {"generation_config.json": json.dumps(values).encode()}


refusal = partial(refused, check_sampling, code=ExitCode.MODEL)


def test_what_models_have_is_accepted():
    check_sampling(
        data(temperature=0.6, top_p=0.95, top_k=20, min_p=0, eos_token_id=[7, 9]), 10, "m"
    )
    check_sampling(
        data(temperature=0, top_k=-1, repetition_penalty=1.05, eos_token_id=0), 10, "m"
    )
    check_sampling(data(temperature=None, eos_token_id=None, max_length=20), 10, "m")


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"temperature": -0.5}, "temperature is -0.5, not a number of at least 0"),
        ({"temperature": "hot"}, 'temperature is "hot", not a number of at least 0'),
        ({"temperature": float("inf")}, "temperature is inf, not a number of at least 0"),
        ({"top_p": 1.5}, "top_p is 1.5, not a number from 0 to 1"),
        ({"top_p": True}, "top_p is true, not a number from 0 to 1"),
        ({"top_k": 2.5}, "top_k is 2.5, not an integer of at least -1"),
        ({"min_p": -1}, "min_p is -1, not a number from 0 to 1"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0, not a number above 0"),
        ({"eos_token_id": 10}, "eos_token_id has 10, which is not one of the 10 tokens"),
        ({"eos_token_id": [1, "</s>"]}, 'eos_token_id has "</s>", which is not one of the 10'),
    ],
)
def test_what_no_model_can_be_sampled_with_is_refused(values, what):
    assert what in refusal(data(**values), 10, "m")


def test_all_that_is_wrong_is_said_at_once():
    said = refusal(data(top_p=2, min_p=2), 10, "m")
    says(said)
