"""The run token by token: figures against an independent computation."""

from __future__ import annotations

import dataclasses

import mlx.core as mx
import pytest

from h2o_pack.measure.evaluation import reading
from h2o_pack.measure.evaluation.contenders import CacheFactory, find_contender
from h2o_pack.measure.evaluation.tasks import Shape, make_sample
from tests.bridge.measure.evaluating import random_model, tokens, words

pytestmark = pytest.mark.usefixtures("routed")

FULL = find_contender("full")


def sized(name, rows):
    return find_contender(name).with_rows(rows)


def samples(shape, count=2):
    return [make_sample(tokens(), words(), shape, 1, n) for n in range(count)]


def run(made, contenders, in_turns=False, model=None):
    model = random_model() if model is None else model
    factory = CacheFactory(model)
    return reading.run_text(model, factory, tokens(), made, contenders, in_turns=in_turns)


def test_nll_is_that_of_one_pass_over_the_whole_text():
    made = samples(Shape(96))
    outcomes = run(made, [FULL])[0]
    ids = mx.array([sample.ids for sample in made])
    logits = random_model()(ids).astype(mx.float32)
    logp = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    nll = -mx.take_along_axis(logp[:, :-1], ids[:, 1:, None], axis=-1)[..., 0]
    for outcome, each, sample in zip(outcomes, nll, made, strict=True):
        counted = [i for i in range(reading.PREFILL, 96) if sample.scored[i]]
        expected = sum(each[i - 1].item() for i in counted) / len(counted)
        assert outcome.metrics["nll"] == pytest.approx(expected, rel=2e-3)


def test_a_cache_that_never_evicts_predicts_what_the_full_cache_does():
    _, roomy = run(samples(Shape(96)), [FULL, sized("default", 200)])
    for outcome in roomy:
        assert outcome.metrics["kl"] < 1e-4
        assert outcome.metrics["agreement"] > 0.97


def test_identical_contenders_have_identical_outcomes():
    two = [sized("default", 48), sized("peak_novelty", 48)]
    outcomes = run(samples(Shape(96, (0.2,), (0,))), [FULL, *two])
    assert outcomes[1] == outcomes[2]
    assert outcomes[1][0].metrics["kl"] > 0


def test_a_sample_s_outcome_hardly_depends_on_what_is_read_beside_it():
    made = samples(Shape(96), 3)
    contenders = [FULL, sized("default", 48)]
    together, alone = run(made, contenders), run(made[2:], contenders)
    assert together[1][2].metrics["nll"] == pytest.approx(alone[1][0].metrics["nll"], abs=2e-3)


def test_kept_parts_add_up_to_the_rows():
    made = samples(Shape(128))
    outcomes = run(made, [FULL, sized("default", 40), sized("rotating", 40)])
    for layer in outcomes[1][0].kept:
        assert sum(layer) * 128 / reading.BINS == pytest.approx(40, abs=0.1)
    assert outcomes[0][0].kept == outcomes[2][0].kept == ()


def test_a_pinned_instruction_is_kept_and_an_unpinned_one_is_not_by_a_window():
    made = samples(Shape(160, (0.0,), (0,)))
    names = ("paper_heavy+pinned", "paper_heavy")
    pinned, free = run(made, [FULL, *(sized(name, 64) for name in names)])[1:]
    fact = made[0].questions[0].fact
    whole = (fact.position + fact.length) * reading.BINS // len(made[0].ids)
    for with_pin, without in zip(pinned, free, strict=True):
        assert all(sum(layer[:whole]) == pytest.approx(whole) for layer in with_pin.kept)
        assert any(sum(layer[:whole]) < whole - 1 for layer in without.kept)


@pytest.mark.parametrize("in_turns", [False, True])
def test_questions_on_copies_start_from_the_text_and_turns_go_on(monkeypatch, in_turns):
    seen = []
    read = reading.Lane.read

    def spy(lane, ids):
        seen.append([cache.offset for cache in lane.caches])
        read(lane, ids)

    monkeypatch.setattr(reading.Lane, "read", spy)
    made = samples(Shape(150, (0.2, 0.5), (0, 1), in_turns), 1)
    run(made, [FULL, sized("peak", 40)], in_turns)
    text = len(made[0].ids)
    asked = [offsets for offsets in seen if offsets[0] >= text]
    words = len(asked) // 4  # fed and said, of each question and lane
    starts = [offsets for offsets in asked if offsets == [text] * 2]
    later = [offsets for offsets in asked if offsets == [text + words] * 2]
    assert len(starts) == (2 if in_turns else 4)  # of each lane
    assert len(later) == (2 if in_turns else 0)


def test_facts_asked_in_turns_are_recalled_by_the_full_cache(demo):
    model, _ = demo
    made = samples(Shape(150, (0.2, 0.5), (0, 1), in_turns=True), 1)
    assert run(made, [FULL], in_turns=True, model=model)[0][0].answers == (
        (0.2, True),
        (0.5, True),
    )


def test_a_wrong_answer_is_not_recalled(demo):
    model, _ = demo
    made = samples(Shape(100, (0.3,), (0,)), 1)
    wrong = [
        dataclasses.replace(
            sample, questions=(dataclasses.replace(sample.questions[0], answer="0000"),)
        )
        for sample in made
    ]
    assert [o.answers for o in run(made, [FULL], model=model)[0]] == [((0.3, True),)]
    assert [o.answers for o in run(wrong, [FULL], model=model)[0]] == [((0.3, False),)]
