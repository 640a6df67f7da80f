"""Samples read as prompts: figures against independent ones, and what is read how."""

from __future__ import annotations

import mlx.core as mx
import pytest

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation import reading
from h2o_pack.measure.evaluation.contenders import CacheFactory, find_contender
from h2o_pack.measure.evaluation.reading import Lane, run_prompts
from h2o_pack.measure.evaluation.tasks import Shape, make_sample
from tests.bridge.measure.evaluating import random_model, tokens, words

pytestmark = pytest.mark.usefixtures("routed")

FULL = find_contender("full")
SHAPE = Shape(160, (0.2, 0.6), (0, 1))


def samples(shape=SHAPE, count=2):
    return [make_sample(tokens(), words(), shape, 3, n) for n in range(count)]


def values(names, ways, *, model=None, made=None, rows=64):
    """By contender, the values of each sample."""
    model = random_model() if model is None else model
    contenders = [FULL, *(find_contender(name).with_rows(rows) for name in names)]
    found = run_prompts(
        model, CacheFactory(model), tokens(), made or samples(), contenders, ways
    )
    return [[each.metrics for each in row] for row in found]


def test_what_the_full_cache_predicts_is_that_of_one_pass():
    made = samples(Shape(96))
    [full] = values([], ["text"], made=made)
    for sample, found in zip(made, full, strict=True):
        ids = mx.array([sample.ids + sample.after[:80]])
        logits = random_model()(ids).astype(mx.float32)
        logp = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        nll = -mx.take_along_axis(logp[:, :-1], ids[:, 1:, None], axis=-1)[0, :, 0]
        assert found["text_nll"] == pytest.approx(nll[-48:].mean().item(), rel=2e-3)
        assert found["text_kl"] == 0


def test_a_cache_with_room_for_all_is_the_full_cache_and_a_small_one_is_not():
    _, roomy, small = values(["default", "paper_heavy"], ["text", "copy"], rows=400)
    assert all(each["text_kl"] < 1e-4 for each in roomy)
    _, small = values(["default"], ["text"], rows=48)
    assert all(each["text_kl"] > 1e-3 for each in small)


def test_all_rows_at_few_bits_differ_the_more_the_fewer_they_are():
    _, eight, four = values(["full/8", "full/4"], ["text"])
    for a, b in zip(eight, four, strict=True):
        assert 0 < a["text_kl"] < b["text_kl"]


def test_facts_are_told_by_the_full_cache_and_not_by_a_window(demo):
    made = samples(Shape(300, (0.1, 0.3), (0, 1)))
    ways = ["asked", "second_turn", "middle"]
    full, window = values(["rotating"], ways, model=demo[0], made=made, rows=40)
    assert all(each == dict.fromkeys(ways, 1.0) for each in full)
    assert all(each["asked"] == 0 for each in window)


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
    with pytest.raises(UserError, match="recalls nothing"):
        find_contender(name)


def test_names_say_when_a_contender_recalls():
    found = {
        name: find_contender(name) for name in ("default", "default+recall", "peak+recall8")
    }
    assert [each.recall and each.recall.every for each in found.values()] == [None, 0, 8]
    assert found["default+recall"].title == "H2O, the default, recall"
    assert found["peak+recall8"].title == "peak, recall every 8"
    assert find_contender("tuned/k8v4+pinned+recall").pinned
    for wrong in ("default+recal", "default+recall+pinned", "default+recallx"):
        with pytest.raises(UserError, match="there is no contender"):
            find_contender(wrong)
