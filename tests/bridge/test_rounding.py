"""Level 3: a difference that one rounding of the weights makes in mlx-lm too is none."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import mlx.core as mx
import pytest

from h2o_pack.hub.resolve import resolve
from h2o_pack.parity import rounding
from h2o_pack.parity.tokens import compare, compare_case, tolerance
from tests.bridge.test_tokens import Answer, asked  # noqa: F401

STEP = 3


@pytest.fixture
def other(asked):  # noqa: F811
    """An answer in which a quantized element before step 3 has another code."""
    answer = Answer(asked)
    for kv in ("8", "dense"):
        for step in range(STEP, len(asked.cases[0].tokens)):
            answer.arrays[f"kv {kv}.{step}"] = answer.arrays[f"kv {kv}.{step}"] + 4
    answer.write()
    return answer


def runs(answer: Answer, more: float):
    """Runs of mlx-lm: one with the very weights, and one that gives the answer plus `more`."""

    def moved(case):
        tokens = list(case.tokens)
        its = mx.load(str(answer.folder / "expected.safetensors"))
        yield tokens, [its[f"{case.name}.{step}"] for step in range(len(tokens))]
        yield (
            tokens,
            [answer.arrays[f"{case.name}.{step}"] + more for step in range(len(tokens))],
        )

    return moved


def test_logits_that_mlx_lm_gives_after_one_rounding_are_no_difference(asked, other):  # noqa: F811
    results = {each.name: each for each in compare(asked, runs(other, 0))}
    assert results["kv 8"].equal
    assert results["kv 8"].largest_output_difference == 0
    [tie] = results["kv 8"].ties
    assert tie.step == STEP
    assert tie.detail.startswith("decided by rounding: the logits differ by ")
    assert tie.detail.endswith("when each weight is moved by one rounding (draw 2)")


def test_other_logits_remain_a_difference(asked, other):  # noqa: F811
    results = {each.name: each for each in compare(asked, runs(other, 4))}
    for name in ("kv 8", "kv dense"):
        first = results[name].first_difference
        assert first is not None
        assert (first.step, first.kind) == (STEP, "logits")


def test_rows_that_are_not_quantized_have_no_codes_to_decide(asked, other):  # noqa: F811
    results = {each.name: each for each in compare(asked, runs(other, 0))}
    assert not results["kv dense"].equal


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_each_element_moves_to_itself_or_a_neighbor(dtype):
    weight = mx.random.normal((64, 64), key=mx.random.key(1)).astype(dtype)
    weight[0] = 0
    moved = rounding.moved(weight, mx.random.key(2))
    word = rounding.WORDS[dtype.size]
    steps = (moved.view(word) - weight.view(word)).astype(mx.int32)
    assert sorted(set(steps.reshape(-1).tolist())) == [-1, 0, 1]
    assert (moved[0] == 0).all().item()


def test_codes_of_a_quantized_weight_stay():
    codes = mx.random.randint(0, 9, (4, 4)).astype(mx.uint32)
    assert rounding.moved(codes, mx.random.key(2)) is codes


def test_runs_go_on_with_the_tokens_of_the_request(asked):  # noqa: F811
    case = asked.cases[2]
    folder = resolve("demo").folder
    (first, logits), (_, others) = islice(rounding.moved_runs(folder, asked, case), 2)
    assert any(not mx.array_equal(a, b) for a, b in zip(logits, others, strict=True))
    said = {"tokens": first, "evicting": list(case.evicting)}
    arrays = {f"{case.name}.{step}": each for step, each in enumerate(logits)}
    expected = mx.load(str(asked.folder / "expected.safetensors"))
    # Later steps may differ by a code; had Python gone on with other tokens, all would.
    early = replace(case, tokens=case.tokens[:2])
    result = compare_case(replace(asked, cases=(early,)), early, said, arrays, expected)
    assert result.equal, result.first_difference
    assert result.tolerance == tolerance("bfloat16", "8")
