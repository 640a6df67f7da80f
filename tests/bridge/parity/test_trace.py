"""Traces of models, and the comparison of their steps with the core."""

import json
import shutil
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_pack.models.config import describe
from h2o_pack.parity import op
from h2o_pack.parity import trace as traces
from h2o_pack.parity.op import TIE, tied
from h2o_pack.parity.trace import (
    DECODED,
    DRAFT,
    MOST_BYTES,
    Case,
    Trace,
    attention_inputs,
    calls,
    cases,
    chunks,
    fitting,
    prompt_length,
    record,
    record_case,
)
from h2o_py import H2OConfig, routing_installed
from h2o_py.models import STORAGES
from h2o_py.rows import Ledger
from tests.bridge.models.small_configs import VOCABULARY, small_config, small_model
from tests.bridge.trees import resolve


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Trace:
    demo = resolve("demo")
    folder = tmp_path_factory.mktemp("trace")
    names = ("float32", "not routed", "recall", "bfloat16")  # test_parity.py has all
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "DECODED", 20)
        patch.setattr(traces, "cases", lambda *of: [c for c in cases(*of) if c.name in names])
        (recording,) = record(demo.folder, H2OConfig(32), demo.config, folder)
    return recording


def changed(trace, folder, case, step, change) -> Trace:
    """Copy a trace's case, with other arrays in one step."""
    shutil.copytree(trace.folder / case.folder, folder / case.folder)
    arrays = trace.arrays(case, step)
    mx.eval(arrays)
    change(arrays)
    mx.save_safetensors(str(folder / case.folder / f"{step}.safetensors"), arrays)
    return Trace(folder, trace.cases)


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
def test_the_prompt_is_twice_the_cache_where_the_context_allows(max_kv):
    assert prompt_length(max_kv, 100_000) >= 2 * max_kv
    assert prompt_length(max_kv, 2048) + DECODED <= 2048


def test_the_prompt_is_given_in_order_and_then_decoded():
    tokens = list(range(100))
    given_tokens = list(calls(tokens, 16))
    assert [token for call in given_tokens for token in call] == tokens
    assert given_tokens[-DECODED:] == [[]] * DECODED


@pytest.mark.parametrize(("head_dim", "group_size"), [(64, 64), (96, 32), (128, 64)])
def test_there_is_a_case_for_each_storage_with_groups_that_divide(head_dim, group_size):
    groups_of = {
        case.kv: case.group_size for case in cases(H2OConfig(128), head_dim) if case.routed
    }
    assert groups_of == {"16": 64, **dict.fromkeys(list(STORAGES)[1:], group_size)}


def test_heads_that_no_group_divides_have_dense_rows():
    assert {case.kv for case in cases(H2OConfig(128), 80)} == {"16"}


def test_the_trace_describes_itself(trace):
    document = json.loads((trace.folder / "trace.json").read_text())
    assert document["format"] == 7
    case = document["cases"][0]
    assert {
        key: case[key] for key in ("name", "folder", "dtype", "layers", "scale", "routed")
    } == {
        "name": "float32",
        "folder": "float32",
        "dtype": "float32",
        "layers": [0, 3],
        "scale": 0.125,
        "routed": True,
    }
    assert case["config"]["max_size"] == 32
    assert sum(case["steps"]) >= 2 * 32


def test_the_recorded_layers_have_their_arrays_in_the_dtype_of_the_case(trace):
    for case in trace.cases:
        routed = ("out", "q", "scores") if case.routed else ()
        whats = ("k", "v", "positions", *routed)
        names = {f"{layer}.{what}" for layer in case.layers for what in whats}
        for step, tokens in enumerate(case.steps):
            arrays = trace.arrays(case, step)
            assert set(arrays) == names
            assert arrays["0.k"].shape == (1, 2, tokens, 64)
            assert arrays["0.k"].dtype == getattr(mx, case.dtype)
            assert arrays["0.positions"].shape == (1, 2, 32)
            assert arrays["0.positions"].dtype == mx.int32


def test_traces_that_would_be_too_large_come_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "MOST_BYTES", 750_000)
    demo = resolve("demo")
    names, layers = [], {}
    parts = record(demo.folder, H2OConfig(32), demo.config, tmp_path / "trace")
    for part in islice(parts, 3):
        names += [case.name for case in part.cases]
        layers |= {case.name: case.layers for case in part.cases}
        files = [path for path in (tmp_path / "trace").rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 750_000
        assert all(op.compare(part, case).equal for case in part.cases)
    assert names == [case.name for case in cases(H2OConfig(32), 64)][:3]
    assert set(layers.values()) == {(0, 3)}


def test_a_model_of_any_size_leaves_room_for_one_layer_of_fewer_rows(monkeypatch):
    config, model_config = H2OConfig(1024, pinned=((0, 4),)), resolve("demo").config
    large = replace(model_config, heads=64, context=1 << 20)
    assert fitting(H2OConfig(64), large).max_size == 64
    small = fitting(replace(config, max_size=65536, heavy_budget=32768), large)
    layer = large.layers[0]
    elements = (large.heads + layer.kv_heads) * (layer.key_dim + layer.value_dim)
    tokens = prompt_length(small.max_size, large.context) + DECODED
    assert 4 * elements * tokens <= MOST_BYTES
    assert small.max_size > 512
    assert small.heavy_budget / small.max_size == pytest.approx(0.5, abs=0.01)


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

    def change(arrays):
        arrays[f"3.{what}"][:, 1] = arrays[f"3.{what}"][:, 1] + 1

    result = op.compare(changed(trace, tmp_path, case, 20, change), case)
    assert not result.equal
    first = result.first_difference
    assert first is not None
    assert (first.layer, first.step, first.kind) == (3, 20, kind)
    assert first.detail.startswith(detail)


def test_a_value_that_is_no_number_is_a_difference(trace, tmp_path):
    case = trace.cases[0]

    def change(arrays):
        arrays["3.out"] = arrays["3.out"] * float("nan")

    result = op.compare(changed(trace, tmp_path, case, 25, change), case)
    assert not result.equal
    assert result.largest_output_difference == float("inf")


# Models in which only some layers evict


@pytest.mark.parametrize("model_type", ["gemma3_text", "lfm2", "falcon_h1", "nemotron_h"])
def test_the_layers_that_evict_are_recorded_and_the_others_keep_their_caches(
    model_type, tmp_path
):
    tokens = mx.random.randint(0, VOCABULARY, (70,), key=mx.random.key(1)).tolist()
    case = Case("float32", "float32", H2OConfig(16))
    inputs = attention_inputs(small_model(model_type), tokens, case.config)
    recording = record_case(inputs, case, tmp_path)
    config = describe(small_config(model_type), "config.json").config
    evicting = len(config.evicting)
    assert recording.layers == tuple(sorted({0, evicting - 1}))
    result = op.compare(Trace(tmp_path, ()), recording)
    assert result.first_difference is None
    assert result.comparisons > 0


# Ties

TYING = H2OConfig(16, sink_size=1, heavy_budget=1, recent_budget=1)


def cache(positions: list[int], scores: list[float]) -> SimpleNamespace:
    """Return what `tied` asks of a cache, of one head that knows these rows."""
    ledger = Ledger(
        mx.array([[scores]], mx.float32),
        mx.array([[positions]], mx.int32),
        mx.array([[-1]], mx.int32),
    )
    return SimpleNamespace(ledger=ledger, positions=ledger.positions, config=TYING)


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize(("gap", "tie"), [(TIE / 2, True), (5 * TIE, False)])
def test_rows_of_almost_the_same_importance_tie(tokens, gap, tie):
    ours, theirs = cache([0, 1, 2], [1.0, 0.5, 0.3]), cache([0, 1, 3], [1.0, 0.5, 0.3 + gap])
    before = cache([0, 1, 2, 3], [1.0, 0.5, 0.3, 0.3 + gap]).ledger
    explanation = tied(ours, theirs, before, tokens)
    assert bool(explanation) == tie
    assert explanation.startswith("in head 0 [2] ties with [3]: their importances" * tie)


def test_neither_equal_positions_nor_a_row_that_was_not_there_are_a_tie():
    ours, theirs = (cache([0, 1, last], [1.0, 0.5, 0.3]) for last in (2, 3))
    assert tied(ours, ours, ours.ledger, 1) == ""
    assert tied(ours, theirs, ours.ledger, 1) == ""
