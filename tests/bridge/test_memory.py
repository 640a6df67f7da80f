from __future__ import annotations

from h2o_pack.memory import MemoryPlan, plan_memory
from h2o_pack.models.local import from_folder
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
