"""Level 3's Python half: the request, and the comparison with answers made up here."""

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import pytest

from h2o_pack.errors import UserError
from h2o_pack.files import lock
from h2o_pack.files.lock import Lock, LockedModel
from h2o_pack.parity import parity, tokens
from h2o_pack.parity import request as requests
from h2o_pack.parity.request import TokenCase
from h2o_pack.parity.swift import Host, build
from h2o_pack.spec import CacheSpec, ModelSpec, PackageSpec, to_document
from h2o_py import H2OConfig, routing_installed
from tests.bridge.parity.conftest import BY_LAYER, MAX_KV, PINNED, Answer
from tests.bridge.trees import resolve

CASES = [
    "nothing evicted", "kv 16", "kv 8", "kv heavy=4,recent=8", "kv 16, recall",
    "the package's own",
]  # fmt: skip


@pytest.fixture(scope="module")
def right_answer(token_request, tmp_path_factory) -> Answer:
    return Answer(token_request, tmp_path_factory.mktemp("answer"))


@pytest.fixture
def answer(right_answer, tmp_path) -> Answer:
    own = copy.copy(right_answer)
    own.request = replace(right_answer.request, folder=tmp_path)
    own.arrays, own.cases = dict(own.arrays), copy.deepcopy(own.cases)
    return own


def compared(answer: Answer, *names: str) -> dict[str, tokens.CaseResult]:
    answer.write()
    cases = tuple(case for case in answer.request.cases if not names or case.name in names)
    results = tokens.compare(replace(answer.request, cases=cases), resolve("demo").folder)
    return {result.name: result for result in results}


def test_the_first_prompt_is_longer_than_the_budget(token_request):
    assert len(token_request.opening) > MAX_KV
    assert [case.name for case in token_request.cases] == CASES
    assert len(token_request.turns) == 3
    assert not routing_installed()


def test_one_case_has_room_for_all_tokens(token_request):
    rest = requests.REPLY * 3 + sum(map(len, token_request.turns[1:]))
    assert token_request.cases[0].config.max_size > len(token_request.opening) + rest


def test_swift_reads_turns_and_storages(token_request):
    document = json.loads((token_request.folder / "request.json").read_text())
    assert set(document) == {
        "format", "dtype", "instructions", "tools", "thinking", "turns", "max_tokens", "cases",
        "left_out",
    }  # fmt: skip
    kvs = [case["kv"] for case in document["cases"]]
    assert kvs == ["16", "16", "8", "heavy=4,recent=8", "16", "8"]
    assert [case["returns"] for case in document["cases"]] == [False] * 5 + [True]
    assert document["cases"][1]["config"]["max_size"] == MAX_KV


def test_recall_has_cases_of_its_own():
    cases = list(requests.token_cases(H2OConfig(MAX_KV), {"k8v4": 64}))
    assert [case.name for case in cases if case.config.recall] == [
        "kv 16, recall", "kv k8v4, recall",
    ]  # fmt: skip


def test_a_storage_that_one_rounding_changes_is_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "LEFT_OUT", {"bfloat16": ("kv 8",)})
    demo = resolve("demo")
    own = TokenCase(requests.OWN, "16", 64, H2OConfig(16), returns=True)
    storages = {"8": 64, "4": 64}
    request = requests.ask(demo.folder, {}, H2OConfig(16), 256, storages, tmp_path, own)
    assert request.left_out == ("kv 8",)
    assert [case.kv for case in request.cases] == ["16", "16", "4", "16", "16"]
    assert tokens.describe(request, Host("upstream", tmp_path, tmp_path)) == (
        "sessions on upstream against mlx-lm, bfloat16: instructions, 3 turns; kv 8 left out, "
        "see docs/how-it-works.md"
    )


def test_instructions_and_a_tool_are_there_where_template_and_rows_allow(tmp_path):
    demo = resolve("demo")
    _, tokenizer = requests.load(demo.folder)
    chat = {"template": True, "system": True, "tools": True}
    rendering = SimpleNamespace(
        apply_chat_template=lambda messages, tools, **_: [
            7, *(8 for _ in messages), *([9] * 40 if tools else []),
        ],
        encode=tokenizer.encode, decode=tokenizer.decode,
    )  # fmt: skip
    kinds = list(requests.Writer(rendering, chat).kinds())
    assert [tools for _, tools in kinds] == [True, False, False]
    assert kinds[-1] == (None, False)
    assert list(requests.Writer(rendering, {"template": True, "system": False}).kinds()) == [
        (None, False), (None, False),
    ]  # fmt: skip
    model, _ = requests.load(demo.folder)
    case = TokenCase("kv 16", "16", 64, H2OConfig(MAX_KV))
    assert requests.fits(case, model, 8)
    assert not requests.fits(case, model, 41)


def test_the_same_answer_is_equal(answer):
    results = compared(answer)
    assert list(results) == CASES
    for name, result in results.items():
        assert result.equal, result.first_difference
        assert result.largest_score_difference is None
        assert result.dtype == "bfloat16"
        # The last token of each prompt, and each token of a reply.
        assert result.steps == 2 * (1 + requests.REPLY)
        assert result.comparisons == 2 + 2 * result.steps + (name == requests.OWN)
    assert tokens.length(answer.request) == sum(
        len(requests.ids_of(step)) for step in answer.cases[requests.OWN]["steps"]
    )


def test_another_prompt_is_named(answer):
    step = answer.cases["kv 8"]["steps"][0]
    step["read"] = [step["read"][0], step["read"][1] + 1, *step["read"][2:]]
    first = compared(answer, "kv 8")["kv 8"].first_difference
    assert first is not None
    # Other logits come first; without them, the prompt is the difference.
    assert first.kind in ("logits", "token", "prompt")
    case = next(case for case in answer.request.cases if case.name == "kv 8")
    detail = tokens.opening_apart(
        answer.request, case, answer.cases["kv 8"]["steps"], 512, requests.load(
            resolve("demo").folder)[1],
    )  # fmt: skip
    assert detail.startswith("id 1 differs")


def test_other_cuts_are_named(answer):
    case = next(case for case in answer.request.cases if case.name == "kv 8").pinning(PINNED)
    steps = answer.cases["kv 8"]["steps"]
    tokenizer = requests.load(resolve("demo").folder)[1]
    assert tokens.opening_apart(answer.request, case, steps, 512, tokenizer) == ""
    first, second, *rest = steps
    joined = [{"read": first["read"] + second["read"]}, *rest]
    detail = tokens.opening_apart(answer.request, case, joined, 512, tokenizer)
    assert detail.startswith("the session cuts it into chunks of [")


def test_a_session_that_goes_back_and_reads_otherwise_is_named(answer):
    answer.cases[requests.OWN]["straight"][-1] = {"generated": 3}
    first = compared(answer, requests.OWN)[requests.OWN].first_difference
    assert first is not None
    assert first.kind == "steps"
    assert "without that it is {'generated': 3}" in first.detail


def place(answer: Answer, name: str, number: int) -> tuple[int, int]:
    """The number of tokens read when a token was chosen, and the index of its step."""
    steps = answer.cases[name]["steps"]
    chosen = [(c, t) for c, t in tokens.choices(steps) if t is not None][number][0]
    count = 0
    for index, step in enumerate(steps):
        if count == chosen:
            return chosen, index
        count += len(requests.ids_of(step))
    raise AssertionError


def test_a_wrong_token_is_named_with_its_logits(answer):
    count, index = place(answer, "kv 8", -1)
    right = answer.cases["kv 8"]["steps"][index]["generated"]
    wrong = int(mx.argmin(answer.arrays[f"kv 8.{count}"].astype(mx.float32)).item())
    answer.cases["kv 8"]["steps"][index] = {"generated": wrong}
    results = compared(answer, "kv 8", "kv 16")
    first = results["kv 8"].first_difference
    assert first is not None
    assert (first.layer, first.step, first.kind) == (None, count, "token")
    for text in (f"Swift chose {wrong} (logits ", f"Python {right} ("):
        assert text in first.detail
    assert not results["kv 8"].equal
    assert results["kv 16"].equal


def test_a_near_tie_is_reported_and_no_difference(answer):
    result = tokens.empty(answer.request, answer.request.cases[1], 4, 1, 1e-3)
    logits = mx.array([0.0, 2.0, 2.0, 1.0])
    result = tokens.compare_step(result, 7, 2, logits, logits)
    assert result.equal
    [tie] = result.ties
    assert tie.step == 7
    assert tie.detail.startswith("near tie: Swift chose 2 ")
    assert tie.detail.endswith("they are 0 apart in Python")


@pytest.mark.parametrize(("value", "size"), [(40.0, ""), (float("nan"), "inf")])
def test_logits_that_are_off_are_named(answer, value, size):
    count, _ = place(answer, "kv heavy=4,recent=8", 5)
    logits = answer.arrays[f"kv heavy=4,recent=8.{count}"].astype(mx.float32)
    logits[11] = value
    answer.arrays[f"kv heavy=4,recent=8.{count}"] = logits
    result = compared(answer, "kv heavy=4,recent=8")["kv heavy=4,recent=8"]
    assert result.first_difference is not None
    assert (result.first_difference.step, result.first_difference.kind) == (count, "logits")
    assert f"the logits differ by {size}" in result.first_difference.detail
    assert ", allowed is 0.062; most at token 11: " in result.first_difference.detail
    assert result.largest_output_difference < float("inf")


@pytest.mark.parametrize(
    ("spoil", "detail"),
    [
        (lambda answer, _: answer.cases.pop("kv 8"), "Swift gave no answer for it"),
        (lambda answer, _: answer.cases["kv 8"].update(error="unfit"), "Swift says: unfit"),
        (lambda answer, name: answer.arrays.pop(name), "Swift has no logits"),
        (
            lambda answer, name: answer.arrays.update({name: mx.zeros((1, 5))}),
            "Swift has 5 logits, Python 1024",
        ),
        (
            lambda answer, _: answer.cases["kv 8"].update(evicting=[False] * 4),
            "0 of 4 caches evict in Swift, 4 of 4 in Python",
        ),
    ],
)
def test_missing_parts_of_an_answer_are_named(answer, spoil, detail):
    spoil(answer, f"kv 8.{place(answer, 'kv 8', 3)[0]}")
    result = compared(answer, "kv 8")["kv 8"]
    assert not result.equal
    assert result.first_difference is not None
    assert result.first_difference.detail == detail


def test_other_rows_at_last_are_remarked_upon(answer):
    last = max(count for count, _ in tokens.choices(answer.cases["kv 16"]["steps"]))
    name = f"kv 16.kept.2.{last}"
    positions = answer.arrays[name]
    lost = int(mx.max(positions[0, 1]).item())
    answer.arrays[name] = mx.where(positions == lost, 9999, positions)
    result = compared(answer, "kv 16")["kv 16"]
    assert result.equal
    [remark] = result.ties
    assert remark.kind == "kept"
    assert "different rows are kept at the end in 1 layers: layer 2, head " in remark.detail
    assert f"keeps [9999], Python [{lost}] instead" in remark.detail


@pytest.mark.parametrize(
    ("dtype", "kv", "allowed"),
    [
        ("float32", "16", 1e-4),
        ("float32", "8", 1e-2),
        ("float32", "k8v4", 1e-2),
        ("float16", "16", 2**-7),
        ("float16", "8", 1e-2),
        ("bfloat16", "4", 2**-4),
    ],
)
def test_the_tolerance_follows_dtype_and_storage(dtype, kv, allowed):
    assert tokens.tolerance(dtype, kv) == allowed


def test_an_old_answer_is_not_taken_for_a_new_one(answer, tmp_path):
    answer.write()
    host = Host("h", tmp_path, tmp_path)
    answers_nothing = shutil.which("true")
    package = build(host, answers_nothing, tmp_path, print)
    with pytest.raises(UserError, match="swift test failed"):
        tokens.answer(answer.request, Path("Model"), package, print)


def test_the_packages_own_case_has_its_budgets_and_storage(answer):
    rows = [
        answer.arrays[f"{requests.OWN}.kept.{layer}.{place(answer, requests.OWN, 0)[0]}"].shape[
            2
        ]
        for layer in range(4)
    ]
    assert rows == [20, 44, MAX_KV, MAX_KV]
    for budgets in (BY_LAYER, None):
        spec = PackageSpec((ModelSpec("demo", CacheSpec(max_kv=MAX_KV, budgets=budgets)),))
        model = LockedModel(model="demo", config=H2OConfig(MAX_KV).to_dict(), kv="8")
        record = Lock(
            h2o_pack="",
            package="",
            module="",
            spec=to_document(spec, lock.NAME),
            models=(model,),
            upstream={},
            files={},
        )
        run = parity.ModelRun(Path(), record, model, None, None, print)  # type: ignore[arg-type]
        own = run.own_case()
        assert (own.kv, own.returns) == ("8", True)
        assert (own.budgets and own.budgets.layers) == (budgets and budgets.layers)
