"""Headers of safetensors files: what is true is read, what cannot be is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.model import Tensor
from h2o_pack.models.files import BYTES, LENGTH, parse_header, read_tensors
from tests.bridge.models.checkpoints import packed
from tests.messages import says


def refusal(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_tensors(path)
    assert caught.value.code == ExitCode.MODEL
    return str(caught.value)


def tensor(**changes: object) -> dict[str, object]:
    made = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return {key: value for key, value in made.items() if value is not None}


def test_a_file_that_mlx_wrote_is_read(tmp_path):
    path = tmp_path / "model.safetensors"
    arrays = {
        "a": mx.zeros((3, 5), mx.bfloat16),
        "b": mx.zeros((7,), mx.uint32),
        "c": mx.array(1.0),
    }
    mx.save_safetensors(str(path), arrays, metadata={"format": "mlx"})
    found = {each.name: each for each in read_tensors(path)}
    assert {name: each.bytes for name, each in found.items()} == {
        name: array.nbytes for name, array in arrays.items()
    }
    assert found["a"] == Tensor("a", "BF16", 30, (3, 5))


def test_a_tensor_may_be_empty(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(packed({"a": tensor(shape=[0, 4], data_offsets=[0, 0])}))
    assert read_tensors(path) == (Tensor("a", "F32", 0, (0, 4)),)


@pytest.mark.parametrize("dtype", sorted(BYTES))
def test_every_type_that_is_accepted_is_one_that_mlx_loads_in_that_size(tmp_path, dtype):
    path = tmp_path / "model.safetensors"
    size = 2 * BYTES[dtype]
    path.write_bytes(packed({"a": tensor(dtype=dtype, data_offsets=[0, size])}, size))
    assert mx.load(str(path))["a"].nbytes == read_tensors(path)[0].bytes == size


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "model.safetensors is not a safetensors file: it has 0 bytes"),
        (b"1234567", "it has 7 bytes"),
        (b"\xff" * 16, "and 100 MiB are the limit"),
        (struct.pack("<Q", (100 << 20) + 1), "and 100 MiB are the limit"),
        (struct.pack("<Q", 100) + b"{}", "would be 100 bytes long, and the file has 10"),
        (struct.pack("<Q", 0) + b"{}", "would be 0 bytes long"),
        (packed(b"[]"), "the header of model.safetensors is not a JSON object"),
        (packed(b"{x}"), "the header of model.safetensors is not valid JSON"),
        (packed(b'{"a": ' + b"[" * 99_999 + b"}"), "is not valid JSON"),
        (packed(b'{"a": {}, "a": {}}'), "the header of model.safetensors gives 'a' twice"),
        (packed(b'{"a": {"dtype": "F32", "dtype": "F16"}}'), "gives 'dtype' twice"),
    ],
)
def test_what_is_no_header_is_refused(tmp_path, content, what):
    assert what in refusal(tmp_path / "model.safetensors", content)


@pytest.mark.parametrize(
    ("described", "what"),
    [
        ([], "is a list of 0 but should be an object"),
        (tensor(dtype="F4"), 'has the dtype "F4", which mlx cannot load'),
        (tensor(dtype=None), "has the dtype null"),
        (tensor(shape=[-2]), "has no shape of whole numbers"),
        (tensor(shape=[2.0]), "has no shape of whole numbers"),
        (tensor(shape=[True, 2]), "has no shape of whole numbers"),
        (tensor(shape=[float("inf")]), "has no shape of whole numbers"),
        (tensor(shape=[1] * 100), "has no shape of whole numbers"),
        (tensor(shape=[10**30]), "has no shape of whole numbers"),
        (tensor(data_offsets=[8, 0]), "has no pair of data_offsets"),
        (tensor(data_offsets=[0]), "has no pair of data_offsets"),
        (tensor(data_offsets=None), "has no pair of data_offsets"),
        (tensor(data_offsets=[1, 9]), "ends at byte 9, and the file has 8: it is cut short"),
        (tensor(shape=[3]), "does not have as many bytes as its shape and dtype need"),
    ],
)
def test_a_tensor_that_cannot_be_is_named(tmp_path, described, what):
    said = refusal(tmp_path / "model.safetensors", packed({"a\nb": described}, 8))
    says(said)


def test_tensors_that_share_bytes_are_named_and_all_problems_told(tmp_path):
    document = {"a": tensor(), "b": tensor(data_offsets=[4, 12]), "c": tensor(dtype="X")}
    said = refusal(tmp_path / "model.safetensors", packed(document, 12))
    says(said)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError) as caught:
        read_tensors(tmp_path / "model.safetensors")
    says(caught.value)


VALUES = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "dtype": VALUES | st.sampled_from(sorted(BYTES)),
        "shape": VALUES | st.lists(VALUES | st.integers(0, 9), max_size=3),
        "data_offsets": VALUES | st.lists(VALUES | st.integers(0, 40), max_size=3),
    },
)


@settings(max_examples=300)
@given(st.dictionaries(st.text(max_size=4), VALUES | ROWS, max_size=4))
def test_any_header_is_read_within_the_file_or_refused(document):
    header = json.dumps(document).encode()
    size = LENGTH + len(header) + 32
    try:
        found = parse_header(header, size, "model.safetensors", "x")
    except UserError as error:
        found = ()
        str(error).encode()
    assert sum(each.bytes for each in found) <= 32
