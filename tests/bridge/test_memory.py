from __future__ import annotations

import json
import struct

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.memory import MemoryPlan, plan_memory, tensor_bytes
from h2o_pack.models.resolve import from_folder
from h2o_py.config import H2OConfig
from tests.bridge.trees import write_model


def test_the_plan_adds_up_weights_caches_and_a_chunk(tmp_path):
    folder = write_model(tmp_path / "m", head_dim=8, torch_dtype="bfloat16")
    plan = plan_memory(from_folder("m", folder), H2OConfig(max_size=100, recent_budget=46))
    layers, heads, head_dim = 2, 2, 8
    row = 2 * head_dim * 2 + 12
    assert plan == MemoryPlan(
        weights=8,
        caches=layers * heads * (100 * row + (head_dim + 1) * 4),
        prefill=512 * (layers * heads * head_dim * 2 * 2 + 16 * 32 * 2) + 100 * 4,
        buffer_cache=20 << 20,
    )


def test_weights_are_counted_by_their_headers_and_not_by_the_files_size(tmp_path):
    path = tmp_path / "model.safetensors"
    header = json.dumps(
        {
            "__metadata__": {"format": "mlx"},
            "a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
            "b": {"dtype": "U8", "shape": [9], "data_offsets": [16, 25]},
        }
    ).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert tensor_bytes(path) == 25


@pytest.mark.parametrize(
    "content", [b"", b"1234567", b"\xff" * 16, struct.pack("<Q", 2) + b"[]", b"\2" + bytes(9)]
)
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        tensor_bytes(path)
    assert caught.value.code == ExitCode.MODEL
    assert "model.safetensors is not a readable safetensors file" in str(caught.value)
