from __future__ import annotations

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.hub.resolve import model_of_address
from tests.messages import says

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
    with pytest.raises(UserError) as caught:
        model_of_address(pasted)
    says(caught.value)
    assert caught.value.code == ExitCode.MODEL
