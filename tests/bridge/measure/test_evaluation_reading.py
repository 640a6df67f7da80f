"""Samples read token by token and as prompts: figures against independent ones."""

import dataclasses

import mlx.core as mx
import pytest

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation import reading
from h2o_pack.measure.evaluation.contenders import CacheFactory, find_contender
from h2o_pack.measure.evaluation.reading import Lane, run_prompts
from h2o_pack.measure.evaluation.tasks import Shape, make_sample
from tests.bridge.measure.evaluating import random_model, tokens

pytestmark = pytest.mark.usefixtures("routed")

FULL = find_contender("full")
SHAPE = Shape(160, (0.2, 0.6), (0, 1))


def samples(shape=SHAPE, count=2):
    return [make_sample(tokens(), shape, 3, n) for n in range(count)]


def log_likelihoods(ids):
    """Of each token after the first, from one pass over rows of tokens [B, L]."""
    logits = random_model()(ids).astype(mx.float32)
    logp = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return mx.take_along_axis(logp[:, :-1], ids[:, 1:, None], axis=-1)[..., 0]


# Token by token


def sized(name, rows):
    return find_contender(name).with_rows(rows)


def run(texts, contenders, in_turns=False, model=None):
    model = random_model() if model is None else model
    factory = CacheFactory(model)
    return reading.run_text(model, factory, tokens(), texts, contenders, in_turns=in_turns)


def test_nll_is_that_of_one_pass_over_the_whole_text():
    texts = samples(Shape(96))
    outcomes = run(texts, [FULL])[0]
    rows = log_likelihoods(mx.array([sample.ids for sample in texts]))
    for outcome, row, sample in zip(outcomes, rows, texts, strict=True):
        counted = [i for i in range(reading.PREFILL, 96) if sample.scored[i]]
        expected = -sum(row[i - 1].item() for i in counted) / len(counted)
        assert outcome.metrics["nll"] == pytest.approx(expected, rel=2e-3)


def test_a_cache_that_never_evicts_predicts_what_the_full_cache_does():
    _, roomy = run(samples(Shape(96)), [FULL, sized("default", 200)])
    for outcome in roomy:
        assert outcome.metrics["kl"] < 1e-4
        assert outcome.metrics["agreement"] > 0.97


def test_a_sample_s_outcome_hardly_depends_on_what_is_read_beside_it():
    texts = samples(Shape(96), 3)
    contenders = [FULL, sized("default", 48)]
    together, alone = run(texts, contenders), run(texts[2:], contenders)
    assert together[1][2].metrics["nll"] == pytest.approx(alone[1][0].metrics["nll"], abs=2e-3)


def test_kept_parts_add_up_to_the_rows():
    texts = samples(Shape(128))
    outcomes = run(texts, [FULL, sized("default", 40), sized("rotating", 40)])
    for layer in outcomes[1][0].kept:
        assert sum(layer) * 128 / reading.BINS == pytest.approx(40, abs=0.1)
    assert outcomes[0][0].kept == outcomes[2][0].kept == ()


def test_a_pinned_instruction_is_kept_and_an_unpinned_one_is_not_by_a_window():
    texts = samples(Shape(160, (0.0,), (0,)))
    names = ("paper_heavy+pinned", "paper_heavy")
    pinned, free = run(texts, [FULL, *(sized(name, 64) for name in names)])[1:]
    fact = texts[0].questions[0]
    parts = (fact.position + fact.length) * reading.BINS // len(texts[0].ids)
    for with_pin, without in zip(pinned, free, strict=True):
        assert all(sum(layer[:parts]) == pytest.approx(parts) for layer in with_pin.kept)
        assert any(sum(layer[:parts]) < parts - 1 for layer in without.kept)


@pytest.mark.parametrize("in_turns", [False, True])
def test_questions_on_copies_start_from_the_text_and_turns_go_on(monkeypatch, in_turns):
    all_offsets = []
    read = reading.Lane.read

    def spy(lane, ids):
        all_offsets.append([cache.offset for cache in lane.caches])
        read(lane, ids)

    monkeypatch.setattr(reading.Lane, "read", spy)
    texts = samples(Shape(150, (0.2, 0.5), (0, 1)), 1)
    run(texts, [FULL, sized("peak", 40)], in_turns)
    text = len(texts[0].ids)
    question_offsets = [offsets for offsets in all_offsets if offsets[0] >= text]
    words = len(question_offsets) // 4  # fed and said, of each question and lane
    starts = [offsets for offsets in question_offsets if offsets == [text] * 2]
    later = [offsets for offsets in question_offsets if offsets == [text + words] * 2]
    assert len(starts) == (2 if in_turns else 4)  # of each lane
    assert len(later) == (2 if in_turns else 0)


def test_facts_asked_in_turns_are_recalled_by_the_full_cache(demo):
    model, _ = demo
    texts = samples(Shape(150, (0.2, 0.5), (0, 1)), 1)
    assert run(texts, [FULL], in_turns=True, model=model)[0][0].answers == (
        (0.2, True),
        (0.5, True),
    )


def test_a_wrong_answer_is_not_recalled(demo):
    model, _ = demo
    texts = samples(Shape(100, (0.3,), (0,)), 1)
    wrong_samples = [
        dataclasses.replace(
            sample, questions=(dataclasses.replace(sample.questions[0], answer="0000"),)
        )
        for sample in texts
    ]
    assert [o.answers for o in run(texts, [FULL], model=model)[0]] == [((0.3, True),)]
    assert [o.answers for o in run(wrong_samples, [FULL], model=model)[0]] == [((0.3, False),)]


# As prompts


def values(names, ways, *, model=None, texts=None, rows=64):
    """By contender, the values of each sample."""
    model = random_model() if model is None else model
    contenders = [FULL, *(find_contender(name).with_rows(rows) for name in names)]
    outcomes = run_prompts(
        model, CacheFactory(model), tokens(), texts or samples(), contenders, ways
    )
    return [[outcome.metrics for outcome in row] for row in outcomes]


def test_what_the_full_cache_predicts_is_that_of_one_pass():
    texts = samples(Shape(96))
    [full] = values([], ["text"], texts=texts)
    for sample, metrics in zip(texts, full, strict=True):
        [row] = log_likelihoods(mx.array([sample.ids + sample.after[:80]]))
        assert metrics["text_nll"] == pytest.approx(-row[-48:].mean().item(), rel=2e-3)
        assert metrics["text_kl"] == 0


def test_a_cache_with_room_for_all_is_the_full_cache_and_a_small_one_is_not():
    _, roomy, small = values(["default", "paper_heavy"], ["text", "copy"], rows=400)
    assert all(metrics["text_kl"] < 1e-4 for metrics in roomy)
    _, small = values(["default"], ["text"], rows=48)
    assert all(metrics["text_kl"] > 1e-3 for metrics in small)


def test_all_rows_at_few_bits_differ_the_more_the_fewer_they_are():
    _, eight, four = values(["full/8", "full/4"], ["text"])
    for a, b in zip(eight, four, strict=True):
        assert 0 < a["text_kl"] < b["text_kl"]


@pytest.mark.nightly("test_evaluation_runs.py::test_a_preset_runs_and_gives_a_report")
def test_facts_are_told_by_the_full_cache_and_not_by_a_window(demo):
    texts = samples(Shape(200, (0.1, 0.3), (0, 1)))
    ways = ["asked", "second_turn", "middle"]
    full, window = values(["rotating"], ways, model=demo[0], texts=texts, rows=40)
    assert all(metrics == dict.fromkeys(ways, 1.0) for metrics in full)
    assert all(metrics["asked"] == 0 for metrics in window)


def test_a_prompt_is_read_in_pieces_and_its_last_token_by_itself(monkeypatch):
    fed = []
    feed = Lane.read

    def spy(reader, ids):
        fed.append(ids.shape[1])
        feed(reader, ids)

    monkeypatch.setattr(Lane, "read", spy)
    monkeypatch.setattr(reading, "PIECE", 50)
    values([], ["text"])
    text = SHAPE.length - 24
    assert fed[:4] == [50, 50, text - 101, 1]
    assert fed[4:] == [31, 1] + [1] * 48


@pytest.mark.parametrize("name", ["rotating+recall", "sinks_recent+recall4", "full+recall"])
def test_a_cache_without_an_archive_cannot_recall(name):
    with pytest.raises(UserError, match="or recall rows"):
        find_contender(name)


def test_names_say_when_a_contender_recalls():
    plain, recalling, often, tight = map(
        find_contender,
        ("default", "default+recall", "peak+recall8", "default+recall4[rows=16 spread=8]"),
    )
    assert plain.recall is None
    assert (recalling.recall.every, recalling.title) == (0, "H2O, the default, recall")
    assert (often.recall.every, often.title) == (8, "peak, recall every 8")
    assert (tight.recall.every, tight.recall.rows, tight.recall.spread) == (4, 16, 8)
    assert tight.title == "H2O, the default, recall every 4 (rows 16, spread 8)"
    assert find_contender("tuned/k8v4+pinned+recall").pinned
    for name in ("default+recal", "default+recall+pinned", "default+recallx"):
        with pytest.raises(UserError, match="there is no contender"):
            find_contender(name)
