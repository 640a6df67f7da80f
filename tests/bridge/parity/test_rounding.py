"""Level 3: a difference that one rounding of the weights makes in mlx-lm too is none."""

import math
from dataclasses import replace
from functools import partial
from itertools import islice

import mlx.core as mx
import pytest

from h2o_pack.hub.resolve import resolve
from h2o_pack.parity import request as requests
from h2o_pack.parity import rounding
from h2o_pack.parity.op import importances, kept
from h2o_pack.parity.rounding import Exchange, Run
from h2o_pack.parity.tokens import all_tie, compare, compare_case, tolerance
from h2o_pack.parity.trace import load
from tests.bridge.parity.conftest import Answer
from tests.nightly import nightly_except

STEP = 3


@pytest.fixture
def drifting_answer(token_request):
    """An answer in which a quantized element before step 3 has another code."""
    answer = Answer(token_request)
    for kv in ("8", "dense"):
        for step in range(STEP, len(token_request.cases[0].tokens)):
            answer.arrays[f"kv {kv}.{step}"] = answer.arrays[f"kv {kv}.{step}"] + 4
    answer.write()
    return answer


def runs(answer: Answer, more: float | None):
    """Runs of mlx-lm: one with the very weights, and one that gives the answer plus `more`.

    None: one that gives what the first does, but for a little.
    """

    def given(case, _swift):
        tokens = list(case.tokens)
        arrays = mx.load(str(answer.folder / "expected.safetensors"))
        own = [arrays[f"{case.name}.{step}"] for step in range(len(tokens))]
        yield Run(tokens, own)
        if more is None:
            yield Run(tokens, [logits + 1e-3 for logits in own])
            return
        yield Run(
            tokens, [answer.arrays[f"{case.name}.{step}"] + more for step in range(len(tokens))]
        )

    return given


def results_of(request, answer, more):
    return {result.name: result for result in compare(request, runs(answer, more))}


def test_logits_that_mlx_lm_gives_after_one_rounding_are_no_difference(
    token_request, drifting_answer
):
    results = results_of(token_request, drifting_answer, 0)
    assert results["kv 8"].equal
    assert results["kv 8"].largest_output_difference == 0
    [tie] = results["kv 8"].ties
    assert tie.step == STEP
    assert tie.detail.startswith("decided by rounding: the logits differ by ")
    assert tie.detail.endswith("with each weight moved by one rounding (draw 1)")
    assert not results["kv dense"].equal, "rows that are not quantized have no codes to decide"


def test_other_logits_remain_a_difference(token_request, drifting_answer):
    results = results_of(token_request, drifting_answer, None)
    for name in ("kv 8", "kv dense"):
        first = results[name].first_difference
        assert first is not None
        assert (first.step, first.kind) == (STEP, "logits")


def test_logits_that_change_more_with_one_rounding_are_no_difference(
    token_request, drifting_answer
):
    results = results_of(token_request, drifting_answer, 4)
    assert results["kv 8"].equal
    [tie] = results["kv 8"].ties
    assert tie.detail.endswith("when each weight is moved by one rounding")
    assert not results["kv dense"].equal


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_each_element_moves_to_itself_or_a_neighbor(dtype):
    weight = mx.random.normal((64, 64), key=mx.random.key(1)).astype(dtype)
    weight[0] = 0
    neighbor = rounding.moved(weight, mx.random.key(2))
    word = rounding.WORDS[dtype.size]
    steps = (neighbor.view(word) - weight.view(word)).astype(mx.int32)
    assert sorted(set(steps.reshape(-1).tolist())) == [-1, 0, 1]
    assert (neighbor[0] == 0).all().item()


def test_codes_of_a_quantized_weight_stay():
    codes = mx.random.randint(0, 9, (4, 4)).astype(mx.uint32)
    assert rounding.moved(codes, mx.random.key(2)) is codes


def test_runs_go_on_with_the_tokens_of_the_request(token_request):
    case = token_request.cases[2]
    folder = resolve("demo").folder
    first, second = islice(rounding.runs(folder, token_request, case, {}), 2)
    assert first.exchanges == ()
    assert any(
        not mx.array_equal(a, b) for a, b in zip(first.logits, second.logits, strict=True)
    )
    document = {"tokens": first.tokens, "evicting": list(case.evicting)}
    arrays = {f"{case.name}.{step}": logits for step, logits in enumerate(first.logits)}
    expected = mx.load(str(token_request.folder / "expected.safetensors"))
    result = compare_case(
        replace(token_request, cases=(case,)), case, document, arrays, expected
    )
    assert result.equal, result.first_difference
    assert result.largest_output_difference == 0
    assert result.tolerance == tolerance("bfloat16", "8")


class Choosing(rounding.Evictions):
    """Stands for Swift: notes what it keeps, and evicts a row of its own choice once."""

    def __init__(self, case, caches, choose) -> None:
        super().__init__(case.name, caches, {}, None)
        self.choose, self.kept, self.chosen = choose, {}, None

    def follow(self, step: int) -> None:
        self.note(step - 1)
        for layer, cache in enumerate(self.caches):
            for head in range(2):
                pair = None if self.chosen else self.choose(step, layer, cache, head)
                if pair is None:
                    continue
                self.chosen = step, layer, *pair
                rows = kept(cache.ledger, 0, head)
                victims = cache.ledger.victim.tolist()
                victims[0][head] = rows[pair[1]]
                cache.ledger = cache.ledger._replace(victim=mx.array(victims, mx.int32))

    def note(self, step: int) -> None:
        for layer, cache in enumerate(self.caches):
            self.kept[f"{self.name}.kept.{layer}.{step}"] = cache.positions


def swift(token_request, name, choose, more=0.0):
    """Answer a case as Swift would that evicts what `choose` says; return its choice."""
    case = next(case for case in token_request.cases if case.name == name)
    model, _ = load(resolve("demo").folder)
    caches = case.make_caches(model)
    choosing = Choosing(case, caches, choose)
    tokens, logits = requests.generate(
        model,
        caches,
        list(token_request.prompt),
        token_request.chunks,
        case.tokens,
        choosing.follow,
    )
    choosing.note(len(logits) - 1)
    answer = Answer(token_request)
    answer.cases[name]["tokens"] = tokens
    for step, row in enumerate(logits):
        late = choosing.chosen is not None and step > choosing.chosen[0]
        answer.arrays[f"{name}.{step}"] = row + more if late else row
    answer.arrays |= choosing.kept
    answer.write()
    return choosing.chosen


def result_of(token_request, name):
    strict = replace(token_request, dtype="float32")  # whose tolerance shows each row
    follow = partial(rounding.runs, resolve("demo").folder, token_request)
    case = next(case for case in token_request.cases if case.name == name)
    results = compare(replace(strict, cases=(case,)), follow)
    return next(result for result in results if result.name == name)


def next_of(cache, head):
    """Return the row that goes next and those after it, with their importances, in order."""
    values = importances(cache.ledger, 0, head, cache.config)
    free = [p for p in values if not rounding.is_protected(cache, 0, head, p)]
    return sorted(free, key=values.__getitem__), values


def closest(limit):
    def choose(_step, _layer, cache, head):
        (own, second, *_), values = next_of(cache, head)
        return (own, second) if values[second] - values[own] < limit else None

    return choose


def most_important(step, layer, cache, head):
    ordered, _ = next_of(cache, head)
    return (ordered[0], ordered[-1]) if (step, layer) == (20, 2) else None


def newest(step, layer, cache, head):
    ordered, _ = next_of(cache, head)
    return (ordered[0], cache.offset - 1) if (step, layer) == (20, 2) else None


def test_a_row_that_ties_may_be_evicted_in_anothers_place(token_request):
    step, layer, own, second = swift(token_request, "kv dense", closest(1e-3))
    result = result_of(token_request, "kv dense")
    assert result.equal, result.first_difference
    assert result.largest_output_difference == 0
    [tie] = [tie for tie in result.ties if tie.kind == "rows"]
    assert (tie.layer, tie.step) == (layer, step)
    assert f"evicts {second}, Python {own}: " in tie.detail


@pytest.mark.parametrize("choose", nightly_except([newest], [most_important, newest]))
def test_a_row_that_does_not_tie_is_a_difference(token_request, choose):
    assert swift(token_request, "kv dense", choose)
    result = result_of(token_request, "kv dense")
    assert not result.equal
    assert result.first_difference.kind in ("logits", "token")


def test_other_logits_after_a_tie_are_a_difference(token_request):
    assert swift(token_request, "kv dense", closest(1e-3), more=0.25)
    assert not result_of(token_request, "kv dense").equal


def test_rows_that_no_moved_run_kept_are_judged_by_what_rounding_does_to_others():
    unmeasured, measured = (
        Exchange(STEP, layer, 0, 0, (5, 7), gap) for layer, gap in enumerate((0.001, 0.002))
    )
    changes = [(math.nan, 0.004), (math.nan, 0.003)]
    assert all_tie((unmeasured, measured), changes)
    assert not all_tie((replace(unmeasured, gap=0.005), measured), changes)
    assert not all_tie((unmeasured,), [(math.nan,)])
