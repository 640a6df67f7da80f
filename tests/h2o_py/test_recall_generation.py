"""Recall through mlx_lm in models of many kinds: what eviction loses is read."""

import dataclasses
import warnings

import mlx.core as mx
import pytest
from mlx_lm.models.cache import LRUPromptCache

import h2o_py
from h2o_pack.parity import reference
from h2o_py import H2OConfig, H2OConfigWarning, H2ORecall, make_h2o_cache
from tests.facts import asked
from tests.h2o_py.cases import kept, largest_difference
from tests.h2o_py.small_models import VOCABULARY, evicting, greedy, small_model
from tests.h2o_py.test_model_families import ANSWER, PROMPT, SMALL, generated
from tests.h2o_py.test_recall import same
from tests.nightly import nightly_except

TOKENS = 768
ROWS = TOKENS // 8
DEPTHS = (0.02, 0.2, 0.4, 0.6)


def sample(tokenizer, number):
    """Return a prompt with 13 facts alike, one of which is asked for at the end."""
    alike = tuple((j + 0.5) / 12 for j in range(12))
    return asked(tokenizer, TOKENS, (DEPTHS[number], *alike), 11, number)


def config(recall, rows=ROWS):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OConfigWarning)
        return H2OConfig(rows, recall=recall)


def right_answers(demo, samples, recall):
    """How many of the samples are answered; all at once, cut as mlx_lm's generate cuts."""
    model, tokenizer = demo
    caches = make_h2o_cache(model, config(recall))
    rest = mx.array([ids for ids, _ in samples])
    answers = []
    while rest.shape[1] > 1:
        count = min(300, rest.shape[1] - 1)
        model(rest[:, :count], cache=caches)
        mx.eval([cache.state for cache in caches])
        rest = rest[:, count:]
    for _ in range(6):
        rest = mx.argmax(model(rest, cache=caches)[:, -1:], axis=-1)
        answers.append(rest)
    assert all(cache.size() == ROWS for cache in caches)
    answers = mx.concatenate(answers, axis=1).tolist()
    return sum(
        answer in tokenizer.decode(tokens)
        for tokens, (_, answer) in zip(answers, samples, strict=True)
    )


@pytest.mark.nightly("test_generate_takes_recall_in_its_configuration")
def test_one_of_13_facts_alike_is_answered_at_an_eighth_of_the_rows(demo, routed):
    samples = [sample(demo[1], number) for number in range(len(DEPTHS))]
    assert right_answers(demo, samples, None) <= len(samples) // 2
    assert right_answers(demo, samples, H2ORecall()) == len(samples)


def test_generate_takes_recall_in_its_configuration(demo):
    model, tokenizer = demo
    ids, answer = sample(tokenizer, 1)
    settings = {**config(None).to_dict(), "recall": True}
    text = h2o_py.generate(model, tokenizer, ids, h2o_config=settings, max_tokens=6)
    assert answer in text


def test_a_prompt_that_the_server_goes_on_from_gives_what_one_cache_gives(routed):
    """The server copies the cache of an earlier prompt and feeds the rest to it."""
    model = small_model("qwen3")
    mx.random.seed(4)
    prompt = mx.random.randint(0, VOCABULARY, (150,)).tolist()
    settings = config(H2ORecall(ask=8), rows=32)
    first, alone = make_h2o_cache(model, settings), make_h2o_cache(model, settings)
    for caches in (first, alone):
        tokens = greedy(model, prompt[:100], caches, 5)
    tokens_read = [*prompt[:100], *tokens[:-1]]
    store = LRUPromptCache(4)
    store.insert_cache("model", tokens_read, first)
    copies, rest = store.fetch_nearest_cache("model", [*tokens_read, *prompt[100:]])
    assert rest == prompt[100:]
    assert greedy(model, rest, copies, 5) == greedy(model, prompt[100:], alone, 5)
    assert all(same(*pair) for pair in zip(copies, alone, strict=True))
    assert all(cache.archive_reads > 0 for cache in copies)


# In few bits a key at the edge of two codes may take either; logits differ by a code's step.
RECALL = dataclasses.replace(SMALL, recall=H2ORecall(ask=5, reach=7, archive_bits=16))
FAMILIES = ("gemma3_text", "gemma4_text", "qwen3_next", "falcon_h1", "gpt_oss", "deepseek_v2")


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize("family", nightly_except(FAMILIES[::2], FAMILIES))
def test_every_evicting_layer_recalls_and_the_core_gives_what_the_reference_gives(family):
    model = small_model(family)
    caches, oracle = make_h2o_cache(model, RECALL), make_h2o_cache(model, RECALL)
    for cache in evicting(oracle):
        cache.backend = reference
    tokens, logprobs = generated(model, caches)
    again, expected = generated(model, oracle)
    assert tokens == again
    assert largest_difference(logprobs, expected) < 1e-3
    for cache, twin in zip(evicting(caches), evicting(oracle), strict=True):
        assert cache.archive_reads > 0
        assert kept(cache) == kept(twin)
        assert cache.archive.length == PROMPT + ANSWER
