"""Texts and conversations read with a small model: figures against independent ones."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, ChunkedKVCache, make_prompt_cache

from h2o_pack.measure.evaluation import reading
from h2o_pack.measure.evaluation.chat_tasks import make_conversation
from h2o_pack.measure.evaluation.contenders import CacheFactory, find_contender
from h2o_pack.measure.evaluation.reading import Lane, run_conversation
from h2o_pack.measure.text import Tokens, held_out, text_sample
from h2o_py import families
from tests.bridge.measure.evaluating import Chatting, random_model, tokens

pytestmark = pytest.mark.usefixtures("routed")

FULL = find_contender("full")


def samples(length=56, count=2):
    return [text_sample(tokens(), length, 3, n) for n in range(count)]


def log_likelihoods(ids):
    """Of each token after the first, from one pass over rows of tokens [B, L]."""
    logits = random_model()(ids).astype(mx.float32)
    logp = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return mx.take_along_axis(logp[:, :-1], ids[:, 1:, None], axis=-1)[..., 0]


# Token by token


def sized(name, rows):
    return find_contender(name).with_rows(rows)


def run(texts, contenders):
    model = random_model()
    return reading.run_text(model, CacheFactory(model), texts, contenders)


def test_nll_is_that_of_one_pass_over_the_whole_text():
    texts = samples()
    outcomes = run(texts, [FULL])[0]
    rows = log_likelihoods(mx.array(texts))
    for outcome, row in zip(outcomes, rows, strict=True):
        expected = -row[reading.PREFILL - 1 :].mean().item()
        assert outcome.metrics["nll"] == pytest.approx(expected, rel=2e-3)


def test_a_cache_that_never_evicts_predicts_what_the_full_cache_does():
    full, roomy, small = run(samples(), [FULL, sized("default", 200), sized("default", 40)])
    for outcome in full:
        assert (outcome.metrics["kl"], outcome.metrics["agreement"]) == (0, 1)
    for outcome in roomy:
        assert outcome.metrics["kl"] < 1e-4
        assert outcome.metrics["agreement"] > 0.97
    assert all(outcome.metrics["kl"] > 1e-3 for outcome in small)


def test_a_sample_s_outcome_hardly_depends_on_what_is_read_beside_it():
    texts = samples(count=3)
    contenders = [FULL, sized("default", 48)]
    together, alone = run(texts, contenders), run(texts[2:], contenders)
    assert together[1][2].metrics["nll"] == pytest.approx(alone[1][0].metrics["nll"], abs=2e-3)


# Conversations


@pytest.fixture(scope="module")
def talk():
    return make_conversation(Tokens(Chatting(), held_out("prose")), 512, 3, 1, 0)


def values(talk, names, ways, rows=64):
    """The values of each contender."""
    model = random_model()
    contenders = [FULL, *(find_contender(name).with_rows(rows) for name in names)]
    outcomes = run_conversation(model, CacheFactory(model), talk.tokens, talk, contenders, ways)
    return [outcome.metrics for [outcome] in outcomes]


def test_what_the_full_cache_predicts_is_that_of_one_pass(talk):
    [full] = values(talk, [], ["text"])
    [turn] = talk.asked("text")
    [row] = log_likelihoods(mx.array([[*talk.ids, *turn.prompt, *turn.forced]]))
    assert full["text_nll"] == pytest.approx(-row[-len(turn.forced) :].mean().item(), rel=2e-3)
    assert full["text_kl"] == 0


def test_a_cache_with_room_for_all_is_the_full_cache_and_a_small_one_is_not(talk):
    _, roomy = values(talk, ["default"], ["text"], rows=1024)
    assert roomy["text_kl"] < 1e-4
    full, bounded, recalling = values(
        talk, ["default", "default+recall[reach=2147483647]"], ["asked", "text"]
    )
    assert full["text_kl"] == 0
    assert bounded["text_kl"] > 1e-3
    assert recalling["text_kl"] < bounded["text_kl"]
    assert set(full) == {"asked", "text_nll", "text_kl"}


def test_all_rows_at_few_bits_differ_the_more_the_fewer_they_are(talk):
    _, eight, four = values(talk, ["full/8", "full/4"], ["text"])
    assert 0 < eight["text_kl"] < four["text_kl"]


def test_what_is_read_together_is_what_each_reads_alone(talk, monkeypatch):
    names = ("rotating", "default", "default/4+recall", "full/8")
    together = values(talk, names, ["second_turn", "text"])
    monkeypatch.setattr(reading, "can_read_together", lambda _model, _caches: False)
    alone = values(talk, names, ["second_turn", "text"])
    assert len({metrics["text_nll"] for metrics in alone}) == 1 + len(names)
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_models_that_use_their_caches_in_another_way_are_read_alone(monkeypatch):
    model = random_model()
    caches = make_prompt_cache(model)
    assert reading.can_read_together(model, caches)
    assert not reading.can_read_together(model, caches[:-1])
    assert not reading.can_read_together(model, [*caches[:-1], ArraysCache(2)])
    assert not reading.can_read_together(model, [*caches[:-1], ChunkedKVCache(8)])
    attention = type(model.layers[0].self_attn)
    name = f"{attention.__module__.rpartition('.')[2]}.{attention.__name__}"
    monkeypatch.setitem(families.WITHOUT_SCORES, name, "computes attention itself")
    assert not reading.can_read_together(model, caches)


def test_progress_comes_to_the_tokens_of_the_conversation(talk):
    model, advanced = random_model(), []
    run_conversation(
        model, CacheFactory(model), talk.tokens, talk, [FULL], ["asked", "text"],
        advanced.append,
    )  # fmt: skip
    assert (len(advanced), sum(advanced)) == (3, len(talk.ids))


def test_an_answer_is_right_if_it_contains_the_value(talk, monkeypatch):
    value = talk.facts[0][1]
    for text, right in ((f"is {value}.", 1.0), ("is 0000.", 0.0)):
        monkeypatch.setattr(Tokens, "decode", lambda _tokens, _ids, text=text: text)
        assert values(talk, [], ["asked"]) == [{"asked": right}]


def test_a_prompt_is_read_in_pieces_and_its_last_token_by_itself(talk, monkeypatch):
    fed = []
    feed = Lane.read

    def spy(reader, ids):
        fed.append(ids.shape[1])
        feed(reader, ids)

    monkeypatch.setattr(Lane, "read", spy)
    monkeypatch.setattr(reading, "PIECE", 256)
    values(talk, [], ["text"])
    [turn] = talk.asked("text")
    assert fed[:3] == [256, 255, 1]
    assert fed[3:] == [len(turn.prompt) - 1, 1] + [1] * len(turn.forced)
