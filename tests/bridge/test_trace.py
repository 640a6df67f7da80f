from __future__ import annotations

import json

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_pack.hub.resolve import resolve
from h2o_pack.parity import op
from h2o_pack.parity.trace import (
    DECODED,
    DRAFT,
    Trace,
    calls,
    cases,
    chunks,
    prompt_length,
    record,
)
from h2o_py import H2OConfig, routing_installed
from h2o_py.models import STORAGES


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Trace:
    demo = resolve("demo")
    folder = tmp_path_factory.mktemp("trace")
    return record(demo.folder, H2OConfig(32), demo.config.context, folder)


@given(st.integers(5, 600), st.integers(64, 3000))
def test_the_chunks_of_a_prompt_cover_it(max_kv, prompt):
    sizes = list(chunks(max_kv, prompt))
    assert sum(sizes) == prompt
    assert all(size > 0 for size in sizes)
    assert sizes[-1] == DRAFT


@pytest.mark.parametrize("max_kv", [6, 64, 300])
def test_one_chunk_is_larger_than_the_cache_and_some_tokens_come_alone(max_kv):
    sizes = list(chunks(max_kv, prompt_length(max_kv, 100_000)))
    assert max(sizes) > max_kv
    assert sizes[1:4] == [1, 1, 1]
    assert sum(sizes[:4]) <= max_kv


@given(st.integers(5, 2000))
def test_the_prompt_is_four_times_the_cache_where_the_context_allows(max_kv):
    assert prompt_length(max_kv, 100_000) >= 4 * max_kv
    assert prompt_length(max_kv, 2048) + DECODED <= 2048


def test_the_prompt_is_given_in_order_and_then_decoded():
    tokens = list(range(100))
    given_tokens = list(calls(tokens, 16))
    assert [token for call in given_tokens for token in call] == tokens
    assert given_tokens[-DECODED:] == [[]] * DECODED


def test_there_is_a_case_for_each_dtype_the_published_policy_and_no_routing():
    every = [case for case in cases(H2OConfig(128), 64) if case.config.recall is None]
    dense = [case for case in every if case.kv == "dense"]
    assert [(case.name, case.dtype, case.routed) for case in dense] == [
        ("float32", "float32", True),
        ("published policy", "float32", True),
        ("not routed", "float32", False),
        ("float16", "float16", True),
        ("bfloat16", "bfloat16", True),
    ]


@pytest.mark.parametrize(("head_dim", "group_size"), [(64, 64), (96, 32), (128, 64)])
def test_there_is_a_case_for_each_storage_with_groups_that_divide(head_dim, group_size):
    stored = {
        case.kv: case.group_size for case in cases(H2OConfig(128), head_dim) if case.routed
    }
    assert stored == {"dense": 64, **dict.fromkeys(list(STORAGES)[1:], group_size)}


def test_heads_that_no_group_divides_have_dense_rows():
    assert {case.kv for case in cases(H2OConfig(128), 80)} == {"dense"}


def test_the_trace_describes_itself(trace):
    document = json.loads((trace.folder / "trace.json").read_text())
    assert document["format"] == 4
    case = document["cases"][0]
    assert {
        key: case[key] for key in ("name", "file", "dtype", "layers", "scale", "routed")
    } == {
        "name": "float32",
        "file": "float32.safetensors",
        "dtype": "float32",
        "layers": 4,
        "scale": 0.125,
        "routed": True,
    }
    assert case["config"]["max_size"] == 32
    assert sum(case["steps"]) >= 4 * 32


def test_every_layer_and_step_has_its_arrays_in_the_dtype_of_the_case(trace):
    for case in trace.cases:
        arrays = mx.load(str(trace.folder / case.file))
        routed = ("out", "q", "scores") if case.routed else ()
        held = ("held",) if case.config.get("recall") else ()
        wanted = {
            f"{layer}.{step}.{what}"
            for layer in range(case.layers)
            for step in range(len(case.steps))
            for what in ("k", "v", "positions", *routed, *held)
        }
        assert set(arrays) == wanted
        for step, tokens in enumerate(case.steps):
            assert arrays[f"0.{step}.k"].shape == (1, 2, tokens, 64)
            assert arrays[f"0.{step}.k"].dtype == getattr(mx, case.dtype)
            assert arrays[f"0.{step}.positions"].shape == (1, 2, 32)
            assert arrays[f"0.{step}.positions"].dtype == mx.int32


def test_routing_is_as_it_was_after_recording(trace):
    assert not routing_installed()


@pytest.mark.parametrize(
    ("what", "kind", "detail"),
    [
        ("out", "output", "the outputs differ by"),
        ("positions", "positions", "head 1 keeps ["),
        ("scores", "scores", "the scores differ by"),
    ],
)
def test_a_difference_is_named_by_layer_and_step(trace, tmp_path, what, kind, detail):
    case = trace.cases[0]
    arrays = mx.load(str(trace.folder / case.file))
    changed = arrays[f"2.20.{what}"]
    changed[:, 1] = changed[:, 1] + 1
    mx.save_safetensors(str(tmp_path / case.file), arrays)
    result = op.compare_case(Trace(tmp_path, trace.cases), case)
    assert not result.equal
    first = result.first_difference
    assert first is not None
    assert (first.layer, first.step, first.kind) == (2, 20, kind)
    assert first.detail.startswith(detail)


def test_what_was_recalled_is_compared_too(trace, tmp_path):
    case = next(case for case in trace.cases if case.config.get("recall"))
    arrays = mx.load(str(trace.folder / case.file))
    held = arrays["2.20.held"]
    assert held.any().item()
    arrays["2.20.held"] = mx.zeros(held.shape, mx.bool_)
    mx.save_safetensors(str(tmp_path / case.file), arrays)
    first = op.compare_case(Trace(tmp_path, trace.cases), case).first_difference
    assert first is not None
    assert (first.layer, first.step, first.kind) == (2, 20, "held")
    assert first.detail.startswith("of what was recalled, head 0 keeps [")


def test_a_value_that_is_no_number_is_a_difference(trace, tmp_path):
    case = trace.cases[0]
    arrays = mx.load(str(trace.folder / case.file))
    arrays["1.30.out"] = arrays["1.30.out"] * float("nan")
    mx.save_safetensors(str(tmp_path / case.file), arrays)
    result = op.compare_case(Trace(tmp_path, trace.cases), case)
    assert not result.equal
    assert result.largest_output_difference == float("inf")
