"""Level 3's Python half: the request, and the comparison with answers made up here."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_pack.errors import UserError
from h2o_pack.files import lock
from h2o_pack.files.lock import Lock, LockedModel
from h2o_pack.hub.resolve import resolve
from h2o_pack.parity import parity, tokens
from h2o_pack.parity import request as requests
from h2o_pack.parity.request import Request
from h2o_pack.parity.swift import Host, build
from h2o_pack.parity.trace import load
from h2o_pack.spec import CacheSpec, ModelSpec, PackageSpec, to_document
from h2o_py import H2OConfig, routing_installed
from tests.bridge.models.small_configs import small_model
from tests.bridge.parity.conftest import BY_LAYER, MAX_KV, Answer

CASES = ["full cache", "kv dense", "kv 8", "kv r8h4", "kv dense, recall", "kv 8, by layer"]


@pytest.fixture
def answer(token_request) -> Answer:
    return Answer(token_request)


def compared(request: Request, answer: Answer) -> dict[str, tokens.CaseResult]:
    answer.write()
    return {result.name: result for result in tokens.compare(request)}


def test_the_prompt_is_longer_than_the_budget_and_then_tokens_are_decoded(token_request):
    assert len(token_request.prompt) == 64 > MAX_KV
    assert token_request.prefill == MAX_KV
    assert [case.name for case in token_request.cases] == CASES
    assert all(len(case.tokens) == 24 for case in token_request.cases)
    assert not routing_installed()


def test_the_control_has_the_models_own_caches(token_request):
    assert [set(case.evicting) for case in token_request.cases] == [{False}, *[{True}] * 5]


def test_swift_reads_ids_texts_chunks_and_storages(token_request):
    document = json.loads((token_request.folder / "request.json").read_text())
    assert set(document) == {
        "format", "dtype", "prompt", "prefill", "texts", "cases", "left_out",
    }  # fmt: skip
    kvs = [case["kv"] for case in document["cases"]]
    assert kvs == [None, "dense", "8", "r8h4", "dense", "8"]
    assert document["cases"][1]["config"]["max_size"] == MAX_KV
    assert document["prompt"] == list(token_request.prompt)


def test_rows_are_recalled_where_eviction_can_spare_some():
    storages = {"k8v4": 64}
    names = [case.name for case in requests.token_cases(H2OConfig(MAX_KV), storages)]
    assert names[-2:] == ["kv dense, recall", "kv k8v4, recall"]
    config = H2OConfig(10, sink_size=4, heavy_budget=0, recent_budget=5)
    names = [case.name for case in requests.token_cases(config, storages)]
    assert names == ["full cache", "kv dense", "kv k8v4"]


def test_a_storage_that_one_rounding_changes_is_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "LEFT_OUT", {"bfloat16": ("kv 8",)})
    demo = resolve("demo")
    request = requests.ask(demo.folder, H2OConfig(16), 256, {"8": 64, "4": 64}, tmp_path)
    assert request.left_out == ("kv 8",)
    assert [case.kv for case in request.cases] == [None, "dense", "4", "dense"]
    assert tokens.describe(request, Host("upstream", tmp_path, tmp_path)) == (
        "the model of mlx-swift-lm on upstream against mlx-lm, bfloat16; kv 8 left out, "
        "see docs/parity.md"
    )


def test_the_prompt_itself_is_among_the_texts(token_request):
    assert token_request.texts[0].text.endswith("The code of LANTERN is")
    assert len(token_request.texts) == 1 + len(json.loads(requests.PROBES.read_text()))


def test_messages_are_asked_for_where_there_is_a_chat_template():
    tokenizer = SimpleNamespace(
        has_chat_template=True,
        encode=lambda text: [len(text)],
        apply_chat_template=lambda messages, **_: [7, len(messages[0]["content"])],
    )
    texts = requests.probe(tokenizer, "prompt")
    assert texts[0] == requests.Text("prompt", message=False, ids=(6,))
    messages = [text for text in texts if text.message]
    assert all(text.ids == (7, len(text.text)) and text.text for text in messages)
    assert messages


@pytest.mark.parametrize(
    ("chunk", "window", "chunks"),
    [
        (4, 0, (4, 4, 2)),
        (5, 0, (5, 5)),
        (10, 0, (10,)),
        (4, 8, (4, 4, 1, 1)),
        (8, 3, (3, 3, 3, 1)),
        (20, 20, (9, 1)),
    ],
)
def test_the_prompt_comes_in_the_chunks_of_upstream(monkeypatch, chunk, window, chunks):
    assert requests.prompt_chunks(10, chunk, window) == chunks
    lengths = []

    def model(ids, cache):
        lengths.append(ids.shape[1])
        return mx.zeros((1, ids.shape[1], 8))

    monkeypatch.setattr(requests, "DECODED", 3)
    requests.generate(model, [], list(range(10)), chunks)
    assert lengths == [*chunks, 1, 1]


def test_gemma_3_reads_prompts_in_chunks_of_its_window(tmp_path, monkeypatch):
    model = small_model("gemma3_text")
    monkeypatch.setattr(requests, "load", lambda _: (model, load(resolve("demo").folder)[1]))
    request = requests.ask(tmp_path, H2OConfig(16), 256, {}, tmp_path)
    assert len(request.prompt) == 64
    assert (request.prefill, request.chunks) == (16, (8,) * 7 + (7, 1))


@given(st.integers(64, 2000))
def test_the_last_chunk_of_a_prompt_evicts_where_the_context_allows(max_kv):
    assert max_kv < requests.prompt_length(max_kv, 100_000) < 1.2 * max_kv
    assert requests.prompt_length(max_kv, 2048) + requests.DECODED <= 2048


def test_the_same_answer_is_equal(token_request, answer):
    results = compared(token_request, answer)
    assert list(results) == ["token ids", *CASES]
    for name, result in results.items():
        assert result.equal, result.first_difference
        assert result.largest_score_difference is None
        assert result.dtype == "bfloat16"
        assert result.comparisons == (
            len(token_request.texts)
            if name == "token ids"
            else 1 + 2 * len(token_request.cases[0].tokens)
        )


def test_a_wrong_id_is_named(token_request, answer):
    answer.texts[1]["ids"][2] += 1
    first = compared(token_request, answer)["token ids"].first_difference
    ids = token_request.texts[1].ids
    assert first is not None
    assert first.detail == (
        f"id 2 of 'the code of LANTERN is 4821.' is {ids[2] + 1} in Swift "
        f"and {ids[2]} in Python"
    )


def test_missing_ids_and_a_tokenizers_error_are_named(token_request, answer):
    answer.texts[1]["ids"].pop()
    answer.texts[2] = {"ids": [], "error": "no such token"}
    answer.texts.pop()
    result = compared(token_request, answer)["token ids"]
    assert result.first_difference is not None
    assert "is no id in Swift" in result.first_difference.detail
    answer.texts[1]["ids"] = list(token_request.texts[1].ids)
    first = compared(token_request, answer)["token ids"].first_difference
    assert first is not None
    assert first.detail.endswith(": no such token")
    answer.texts[2] = {"ids": list(token_request.texts[2].ids)}
    first = compared(token_request, answer)["token ids"].first_difference
    assert (first.step, first.detail) == (len(token_request.texts) - 1, "Swift gave no ids")


def test_a_wrong_token_is_named_with_its_logits(token_request, answer):
    logits = answer.arrays["kv 8.5"].astype(mx.float32)
    right = token_request.cases[2].tokens[5]
    wrong = int(mx.argmin(logits).item())
    answer.cases["kv 8"]["tokens"][5] = wrong
    results = compared(token_request, answer)
    first = results["kv 8"].first_difference
    assert first is not None
    assert (first.layer, first.step, first.kind) == (None, 5, "token")
    for text in (f"Swift chose {wrong} (logits ", f"Python {right} ("):
        assert text in first.detail
    assert not results["kv 8"].equal
    assert results["kv dense"].equal


def test_a_near_tie_is_reported_and_no_difference(token_request, tmp_path):
    folder = Path(shutil.copytree(token_request.folder, tmp_path / "tokens"))
    token_request = replace(token_request, folder=folder)
    answer = Answer(token_request)
    logits = answer.arrays["kv dense.7"]
    best, second = (int(token) for token in mx.argsort(-logits.astype(mx.float32))[:2].tolist())
    logits[second] = logits[best]
    mx.save_safetensors(str(folder / requests.EXPECTED), answer.arrays)
    answer.cases["kv dense"]["tokens"][7] = second
    result = compared(token_request, answer)["kv dense"]
    assert result.equal
    [tie] = result.ties
    assert tie.step == 7
    assert tie.detail.startswith(f"near tie: Swift chose {second} ")
    assert tie.detail.endswith("they are 0 apart in Python")


@pytest.mark.parametrize(("value", "size"), [(40.0, ""), (float("nan"), "inf")])
def test_logits_that_are_off_are_named(token_request, answer, value, size):
    logits = answer.arrays["kv r8h4.9"].astype(mx.float32)
    logits[11] = value
    answer.arrays["kv r8h4.9"] = logits
    result = compared(token_request, answer)["kv r8h4"]
    assert result.first_difference is not None
    assert (result.first_difference.step, result.first_difference.kind) == (9, "logits")
    assert f"the logits differ by {size}" in result.first_difference.detail
    assert ", allowed is 0.062; most at token 11: " in result.first_difference.detail
    assert result.largest_output_difference < float("inf")


@pytest.mark.parametrize(
    ("spoil", "detail"),
    [
        (lambda answer: answer.cases.pop("kv 8"), "Swift gave no answer for it"),
        (lambda answer: answer.cases["kv 8"].update(error="unfit"), "Swift says: unfit"),
        (lambda answer: answer.cases["kv 8"]["tokens"].pop(), "Swift made no token"),
        (lambda answer: answer.arrays.pop("kv 8.3"), "Swift made no token"),
        (
            lambda answer: answer.arrays.update({"kv 8.3": mx.zeros((1, 5))}),
            "Swift has 5 logits, Python 1024",
        ),
        (
            lambda answer: answer.cases["kv 8"].update(evicting=[False] * 4),
            "0 of 4 caches evict in Swift, 4 of 4 in Python",
        ),
    ],
)
def test_what_is_missing_is_named(token_request, answer, spoil, detail):
    spoil(answer)
    result = compared(token_request, answer)["kv 8"]
    assert not result.equal
    assert result.first_difference is not None
    assert result.first_difference.detail == detail


def test_other_rows_at_last_are_remarked_upon(token_request, answer):
    positions = answer.arrays["kv dense.kept.2"]
    lost = int(mx.max(positions[0, 1]).item())
    answer.arrays["kv dense.kept.2"] = mx.where(positions == lost, 9999, positions)
    result = compared(token_request, answer)["kv dense"]
    assert result.equal
    [remark] = result.ties
    assert remark.kind == "kept"
    assert "different rows are kept at the end in 1 layers: layer 2, head " in remark.detail
    assert f"keeps [9999], Python [{lost}] instead" in remark.detail


@pytest.mark.parametrize(
    ("dtype", "kv", "allowed"),
    [
        ("float32", None, 1e-4),
        ("float32", "dense", 1e-4),
        ("float32", "8", 1e-2),
        ("float32", "k8v4", 1e-2),
        ("float16", "dense", 2**-7),
        ("float16", "8", 1e-2),
        ("bfloat16", "4", 2**-4),
    ],
)
def test_the_tolerance_follows_dtype_and_storage(dtype, kv, allowed):
    assert tokens.tolerance(dtype, kv) == allowed


def test_an_old_answer_is_not_taken_for_a_new_one(token_request, answer, tmp_path):
    answer.write()
    host = Host("h", tmp_path, tmp_path)
    answers_nothing = shutil.which("true")
    package = build(host, answers_nothing, tmp_path, print)
    with pytest.raises(UserError, match="swift test failed"):
        tokens.answer(token_request, Path("Model"), package, print)


def test_budgets_by_layer_are_the_packages_own(token_request):
    case = next(case for case in token_request.cases if case.name == "kv 8, by layer")
    assert case.budgets == BY_LAYER
    arrays = mx.load(str(token_request.folder / requests.EXPECTED))
    rows = [arrays[f"{case.name}.kept.{layer}"].shape[2] for layer in range(4)]
    assert rows == [20, 44, MAX_KV, MAX_KV]
    for budgets in (BY_LAYER, None):
        spec = PackageSpec((ModelSpec("demo", CacheSpec(max_kv=MAX_KV, budgets=budgets)),))
        record = Lock(
            h2o_pack="",
            package="",
            module="",
            spec=to_document(spec, lock.NAME),
            models=(LockedModel(model="demo", config=H2OConfig(MAX_KV).to_dict(), kv="8"),),
            upstream={},
            files={},
        )
        own = parity.own_case(Path(), record)
        assert (own and own.budgets.layers) == (budgets and budgets.layers)
