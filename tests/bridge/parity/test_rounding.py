"""Level 3: a difference that one rounding of the weights makes in mlx-lm too is none."""

import math
from dataclasses import replace
from itertools import islice

import mlx.core as mx
import pytest

from h2o_pack.parity import rounding
from h2o_pack.parity.op import importances, rows_held
from h2o_pack.parity.request import Request, TokenCase
from h2o_pack.parity.rounding import Exchange, Run
from h2o_pack.parity.tokens import (
    all_tie,
    choices,
    compare,
    compare_run,
    decided_by_rounding,
    tolerance,
)
from h2o_pack.parity.trace import load
from tests.bridge.parity.conftest import PINNED, Answer, converse
from tests.bridge.trees import resolve
from tests.nightly import nightly_except

LATE = 4
"""The choice, counted over all turns, from which logits of a made-up answer differ."""


def case_of(request: Request, name: str) -> TokenCase:
    return next(case for case in request.cases if case.name == name).pinning(PINNED)


@pytest.fixture(scope="module")
def answered(token_request, tmp_path_factory) -> Answer:
    cases = tuple(case_of(token_request, name) for name in ("kv 8", "kv 16"))
    bare = replace(
        token_request,
        cases=tuple(c for c in token_request.cases if c.name in {"kv 8", "kv 16"}),
    )
    assert cases
    return Answer(bare, tmp_path_factory.mktemp("rounding"))


def drifted(answered: Answer, name: str, more: float | None):
    """Compare an answer whose late logits are 4 higher with runs of mlx-lm.

    The first run has the model's own weights, and the second gives the answer plus `more`.
    None: it gives what the first does, but for a little.
    """
    case = case_of(answered.request, name)
    answer = answered.cases[name]
    counts = [count for count, _ in choices(answer["steps"])]
    exact = {count: answered.arrays[f"{name}.{count}"] for count in counts}
    swift = {
        f"{name}.{count}": exact[count] + (4 if index >= LATE else 0)
        for index, count in enumerate(counts)
    }

    def compared(run, allowed=0.0):
        return compare_run(answered.request, case, answer, swift, run, allowed)

    evicting = tuple(answer["evicting"])
    first = Run(exact, evicting)
    second = Run(
        {
            count: exact[count] + 1e-3 if more is None else swift[f"{name}.{count}"] + more
            for count in counts
        },
        evicting,
    )
    result = compared(first)
    assert result.first_difference is not None
    runs = iter([first, second])
    is_quantized = name != "kv 16"
    return counts[LATE], decided_by_rounding(result, runs, compared, is_quantized=is_quantized)


def test_logits_that_mlx_lm_gives_after_one_rounding_are_no_difference(answered):
    step, result = drifted(answered, "kv 8", 0)
    assert result.equal
    assert result.largest_output_difference == 0
    [tie] = result.ties
    assert tie.step == step
    assert tie.detail.startswith("decided by rounding: the logits differ by ")
    assert tie.detail.endswith("with each weight moved by one rounding (draw 1)")
    _, dense = drifted(answered, "kv 16", 0)
    assert not dense.equal, "rows that are not quantized have no codes to decide"


def test_logits_that_no_run_gives_are_a_difference(answered):
    for name in ("kv 8", "kv 16"):
        step, result = drifted(answered, name, None)
        assert not result.equal
        first = result.first_difference
        assert first is not None
        assert (first.step, first.kind) == (step, "logits")


def test_logits_that_change_more_with_one_rounding_are_no_difference(answered):
    _, result = drifted(answered, "kv 8", 4)
    assert result.equal
    [tie] = result.ties
    assert tie.detail.endswith("when each weight is moved by one rounding")
    assert not drifted(answered, "kv 16", 4)[1].equal


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


def test_runs_read_the_steps_of_the_session(answered):
    case = case_of(answered.request, "kv 8")
    model, _ = load(resolve("demo").folder)
    answer = answered.cases["kv 8"]
    first, second = islice(rounding.runs(model, case, answer["steps"], {}), 2)
    assert first.exchanges == ()
    assert any(
        not mx.array_equal(logits, second.logits[count])
        for count, logits in first.logits.items()
    )
    result = compare_run(answered.request, case, answer, answered.arrays, first)
    assert result.equal, result.first_difference
    assert result.largest_output_difference == 0
    assert result.tolerance == tolerance("bfloat16", "8")


class Choosing:
    """Stands for Swift: evicts a row of its own choice once."""

    def __init__(self, choose) -> None:
        self.choose, self.chosen = choose, None

    def __call__(self, count: int, caches) -> None:
        for layer, cache in enumerate(caches):
            for head in range(2):
                pair = None if self.chosen else self.choose(count, layer, cache, head)
                if pair is None:
                    continue
                self.chosen = count, layer, *pair
                rows = rows_held(cache.ledger, 0, head)
                victims = cache.ledger.victim.tolist()
                victims[0][head] = rows[pair[1]]
                cache.ledger = cache.ledger._replace(victim=mx.array(victims, mx.int32))


def swift(answered: Answer, folder, choose, more=0.0):
    """Answer "kv 16" as Swift would that evicts what `choose` says.

    Returns its choice, and the result of the comparison. more: added to the logits after it.
    """
    case = next(case for case in answered.request.cases if case.name == "kv 16")
    choosing = Choosing(choose)
    steps, arrays, evicting = converse(answered.request, case, choosing)
    for count, _ in choices(steps):
        if choosing.chosen is not None and count >= choosing.chosen[0]:
            arrays[f"kv 16.{count}"] = arrays[f"kv 16.{count}"] + more
    # The tolerance of float32 shows each row.
    answer = Answer(replace(answered.request, folder=folder, dtype="float32", cases=()), folder)
    answer.add(case, steps, arrays, evicting)
    answer.write()
    [result] = compare(replace(answer.request, cases=(case,)), resolve("demo").folder)
    return choosing.chosen, result


def next_of(cache, head):
    """Return the row that goes next and those after it, with their importances, in order."""
    values = importances(cache.ledger, 0, head)
    free = [p for p in values if not rounding.is_protected(cache, p)]
    return sorted(free, key=values.__getitem__), values


def closest(limit):
    def choose(_step, _layer, cache, head):
        (own, second, *_), values = next_of(cache, head)
        return (own, second) if values[second] - values[own] < limit else None

    return choose


def is_late(step, layer, cache):
    """Whether this is a layer in the middle, in a reply of the second turn."""
    return layer == 2 and step == cache.offset + 1 and step > 90


def most_important(step, layer, cache, head):
    ordered, _ = next_of(cache, head)
    return (ordered[0], ordered[-1]) if is_late(step, layer, cache) else None


def newest(step, layer, cache, head):
    ordered, _ = next_of(cache, head)
    return (ordered[0], cache.offset - 1) if is_late(step, layer, cache) else None


def test_a_row_that_ties_may_be_evicted_in_anothers_place(answered, tmp_path):
    (step, layer, own, second), result = swift(answered, tmp_path, closest(2e-3))
    assert result.equal, result.first_difference
    assert result.largest_output_difference == 0
    [tie] = [tie for tie in result.ties if tie.kind == "rows"]
    assert (tie.layer, tie.step) == (layer, step)
    assert f"evicts {second}, Python {own}: " in tie.detail


@pytest.mark.parametrize("choose", nightly_except([newest], [most_important, newest]))
def test_a_row_that_does_not_tie_is_a_difference(answered, tmp_path, choose):
    chosen, result = swift(answered, tmp_path, choose)
    assert chosen
    assert not result.equal
    assert result.first_difference.kind in ("logits", "token")


def test_other_logits_after_a_tie_are_a_difference(answered, tmp_path):
    chosen, result = swift(answered, tmp_path, closest(1e-3), more=0.25)
    assert chosen
    assert not result.equal


def test_rows_that_no_moved_run_kept_are_judged_by_what_rounding_does_to_others():
    unmeasured, measured = (
        Exchange(LATE, layer, 0, 0, (5, 7), gap) for layer, gap in enumerate((0.001, 0.002))
    )
    changes = [(math.nan, 0.004), (math.nan, 0.003)]
    assert all_tie((unmeasured, measured), changes)
    assert not all_tie((replace(unmeasured, gap=0.005), measured), changes)
    assert not all_tie((unmeasured,), [(math.nan,)])
