"""Mistakes that other eviction caches for MLX made, or that mlx_lm invites: one test each."""

from __future__ import annotations

import argparse
import importlib
import sys

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import (
    can_trim_prompt_cache,
    make_prompt_cache,
    save_prompt_cache,
)

from h2o_py import routing
from h2o_py.config import H2OConfig
from h2o_py.models import STORAGES, attach_h2o_cache, detach_h2o_cache, make_h2o_cache
from tests.h2o_py.cases import (
    in_turn,
    largest_difference,
)
from tests.h2o_py.small_models import greedy, random_prompt, small_model
from tests.nightly import nightly_except
from tests.processes import output_of

upstream = importlib.import_module("mlx_lm.generate")
server = importlib.import_module("mlx_lm.server")

SMALL = H2OConfig(32, sink_size=3, heavy_budget=12, recent_budget=10)
ROOMY = H2OConfig(256)

pytestmark = pytest.mark.usefixtures("routed")


@pytest.fixture
def attach():
    """Attaches H2O caches to models, and takes them off afterwards."""
    models = []

    def attach(model, config, **options):
        attach_h2o_cache(model, config, **options)
        models.append(model)
        return model

    yield attach
    for model in models:
        detach_h2o_cache(model)


# Positions


def test_trap_keys_rotated_by_the_count_of_rows_instead_of_the_position():
    model = small_model("llama")
    prompt = random_prompt(60)
    caches, full = make_h2o_cache(model, SMALL), make_prompt_cache(model)
    answer = greedy(model, prompt, caches, answer=30)
    model(mx.concatenate([prompt, mx.array(answer)])[None], cache=full)
    # The first layer's keys depend on nothing but tokens and positions.
    cache, all_keys = caches[0], full[0].keys
    assert cache.offset == 90
    for head in range(2):
        positions = cache.positions[0, head]
        expected = all_keys[0, head][positions]
        assert largest_difference(cache.keys[0, head], expected) < 1e-5


# Eviction


def test_trap_a_chunk_loses_rows_before_its_own_attention():
    model = small_model("qwen3")
    prompt = random_prompt(100)[None]
    caches = make_h2o_cache(model, SMALL)
    logits = model(prompt, cache=caches)
    assert {c.length for c in caches} == {32}
    assert largest_difference(logits, model(prompt, cache=make_prompt_cache(model))) < 1e-4


@pytest.mark.parametrize("kv", STORAGES)
def test_trap_an_empty_cache_counts_as_false_and_gets_no_mask(kv):
    cache = STORAGES[kv](SMALL, 64)
    cache.make_mask = lambda count, **_: ("asked", count)
    assert create_attention_mask(mx.zeros((1, 4, 8)), cache) == ("asked", 4)
    assert not hasattr(cache, "__len__")


# What mlx_lm takes a cache for


@pytest.mark.parametrize("kv", STORAGES)
def test_trap_a_bits_attribute_sends_it_to_mlx_lms_quantized_attention(kv):
    assert not hasattr(STORAGES[kv](SMALL, 64), "bits")


@pytest.mark.parametrize(("family", "kv"), in_turn(["qwen3", "falcon_h1"], STORAGES))
def test_trap_kv_bits_is_ignored(attach, family, kv):
    model = attach(small_model(family), SMALL, kv=kv, group_size=32)
    options = {"kv_bits": 8, "quantized_kv_start": 0, "max_tokens": 2}
    with pytest.raises(ValueError) as error:
        list(upstream.generate_step(random_prompt(20), model, **options))
    assert (error.value.code, error.value.values["bits"]) == ("quantized_later", 8)


# Batches


@pytest.mark.parametrize(
    ("family", "kv"), in_turn(["qwen3", "llama sliding", "falcon_h1", "lfm2"], STORAGES)
)
def test_trap_a_batch_silently_gets_other_caches(attach, family, kv):
    model = attach(small_model(family), SMALL, kv=kv, group_size=32)
    assert not all(hasattr(c, "merge") for c in make_prompt_cache(model))  # as the server asks
    message = "H2O(KVCache|CacheList)'> does not yet support batching"
    with pytest.raises(ValueError, match=message):
        upstream.batch_generate(model, _Tokens(), [[1, 2], [3]], max_tokens=2)
    if family == "qwen3":
        caches = [make_prompt_cache(model) for _ in range(2)]
        for history in caches:
            model(random_prompt(4)[None], cache=history)
        with pytest.raises(ValueError, match=message + " with history"):
            upstream.batch_generate(
                model, _Tokens(), [[1, 2], [3]], prompt_caches=caches, max_tokens=2
            )


class _Tokens:
    eos_token_ids = frozenset()

    def decode(self, tokens):
        return str(tokens)


# Speculative decoding


def speculate(model, draft, prompt, answer, **options):
    steps = upstream.speculative_generate_step(
        prompt, model, draft, max_tokens=answer, num_draft_tokens=3, **options
    )
    return [int(token) for token, _, _ in steps]


@pytest.mark.parametrize("kv", ["16", "k8v4"])
def test_speculative_decoding_is_right_while_there_is_room(attach, kv):
    model = attach(small_model("qwen3"), ROOMY, kv=kv, group_size=32)
    draft = attach(small_model("llama"), ROOMY, kv=kv, group_size=32)
    prompt = random_prompt(30)
    expected = greedy(model, prompt, make_prompt_cache(model), answer=8)
    assert speculate(model, draft, prompt, 8) == expected
    caches = [*make_prompt_cache(model), *make_prompt_cache(draft)]
    assert speculate(model, draft, prompt, 8, prompt_cache=caches) == expected
    assert {c.offset for c in caches} <= {36, 37, 38}


@pytest.mark.parametrize("evicting", ["model", "draft"])
def test_trap_speculative_decoding_goes_on_when_the_rewind_is_lost(attach, evicting):
    sizes = {"model": ROOMY, "draft": ROOMY, evicting: SMALL}
    model = attach(small_model("qwen3"), sizes["model"])
    draft = attach(small_model("llama"), sizes["draft"])
    expected = greedy(model, random_prompt(20), make_h2o_cache(model, ROOMY), answer=20)
    steps = upstream.speculative_generate_step(
        random_prompt(20), model, draft, max_tokens=20, num_draft_tokens=3
    )
    tokens = []
    with pytest.raises(ValueError, match=r"speculative decoding \(draft_model\)"):
        tokens.extend(int(token) for token, _, _ in steps)
    assert 1 <= len(tokens) < 20
    assert tokens == expected[: len(tokens)]


def test_trap_speculative_decoding_starts_on_rows_that_were_evicted(demo, attach):
    model, tokenizer = demo
    attach(model, H2OConfig(40))
    caches = make_prompt_cache(model)
    greedy(model, tokenizer.encode("import os\n" * 30), caches, answer=2)
    caches += make_prompt_cache(model)
    with pytest.raises(ValueError) as error:
        mlx_lm.generate(
            model, tokenizer, "import", draft_model=model, prompt_cache=caches, max_tokens=4
        )
    assert error.value.code == "speculation"
    with pytest.raises(ValueError, match="speculative decoding"):
        mlx_lm.generate(model, tokenizer, "import os\n" * 30, draft_model=model, max_tokens=4)


def test_speculative_decoding_without_h2o_is_as_it_was():
    model, draft = small_model("qwen3"), small_model("llama")
    expected = greedy(model, random_prompt(20), make_prompt_cache(model))
    assert upstream.speculative_generate_step is routing.guarded_speculation
    assert speculate(model, draft, random_prompt(20), 10) == expected
    routing.remove_routing()
    assert upstream.speculative_generate_step is routing._speculate


# Life of a cache


LOAD = """
import sys
import h2o_py
from mlx_lm.models.cache import load_prompt_cache
h2o_py.install_routing()
for path in sys.argv[1:]:
    print(*(type(cache).__name__ for cache in load_prompt_cache(path)))
"""


def test_trap_another_process_does_not_know_the_classes_of_a_saved_cache(tmp_path):
    paths, expected = [], []
    for family, kv in (
        ("gemma3_text", "8"),
        ("falcon_h1", "heavy=8,recent=16"),
        ("qwen3", "16"),
    ):
        model = small_model(family)
        caches = make_h2o_cache(model, SMALL, kv=kv, group_size=32)
        greedy(model, random_prompt(50), caches)
        paths.append(str(tmp_path / f"{family}.safetensors"))
        save_prompt_cache(paths[-1], caches)
        expected.append(" ".join(type(cache).__name__ for cache in caches))
    output = output_of(sys.executable, "-W", "ignore", "-c", LOAD, *paths)
    assert output.splitlines() == expected


# The server


@pytest.mark.parametrize("kv", nightly_except(("16", "k8v4", "heavy=4,recent=16"), STORAGES))
def test_trap_the_servers_prompt_cache_trims_or_shares_what_it_stored(kv):
    model = small_model("qwen3")
    store = server.LRUPromptCache()
    prompt = random_prompt(24).tolist()
    caches = make_h2o_cache(model, SMALL, kv=kv, group_size=32)
    model(mx.array([prompt]), cache=caches)
    store.insert_cache("m", prompt, caches)

    shorter = [*prompt[:18], 96, 95]
    copies, rest = store.fetch_nearest_cache("m", shorter)
    if can_trim_prompt_cache(caches):
        assert rest == [96, 95]
        fresh = make_h2o_cache(model, SMALL, kv=kv, group_size=32)
        model(mx.array([prompt[:18]]), cache=fresh)
        logits = [model(mx.array([rest]), cache=c) for c in (copies, fresh)]
        assert largest_difference(*logits) < 1e-4
    else:
        assert copies is None
    copies, rest = store.fetch_nearest_cache("m", [*prompt, 94])
    assert rest == [94]
    greedy(model, random_prompt(40, seed=3), copies, answer=10)
    assert {(c.offset, c.length) for c in caches} == {(24, 24)}

    longer = [*prompt, *random_prompt(20, seed=4).tolist()]
    model(mx.array([longer[24:]]), cache=caches)
    store = server.LRUPromptCache()
    store.insert_cache("m", longer, caches)
    assert store.fetch_nearest_cache("m", shorter) == (None, shorter)
    copies, rest = store.fetch_nearest_cache("m", [*longer, 93])
    assert (rest, {c.offset for c in copies}) == ([93], {44})


def test_the_server_answers_through_h2o_caches_one_request_at_a_time(demo, attach, monkeypatch):
    model, tokenizer = demo
    attach(model, H2OConfig(64))
    monkeypatch.setattr(server, "load", lambda *_, **__: (model, tokenizer, {}))
    settings = argparse.Namespace(
        model="demo", adapter_path=None, trust_remote_code=False, chat_template=None,
        use_default_chat_template=False, draft_model=None, pipeline=False, num_draft_tokens=3,
        prefill_step_size=32, prompt_cache_bytes=None, chat_template_args={},
        decode_concurrency=4, prompt_concurrency=4, kv_bits=None, kv_group_size=64,
        quantized_kv_start=5000,
    )  # fmt: skip
    provider = server.ModelProvider(settings)
    assert not provider.is_batchable
    store = server.LRUPromptCache()
    responder = server.ResponseGenerator(provider, store)
    text = "import os\nimport sys\n" * 12
    prompt = tokenizer.encode(text)
    try:
        answers = [_ask(responder, text) for _ in range(2)]
        model_key = provider.model_key
    finally:
        responder.stop_and_join()
    expected = greedy(model, prompt, make_prompt_cache(model), answer=6, chunk=32)
    assert answers == [expected, expected]
    caches, rest = store.fetch_nearest_cache(model_key, [*prompt, *expected, 1])
    assert rest == [1]
    assert {(c.offset, c.length) for c in caches} == {(len(prompt) + 6, 64)}


def _ask(responder, text):
    """Tokens that the server generates greedily."""
    request = server.CompletionRequest("text", text, [], None, None)
    arguments = server.GenerationArguments(
        server.ModelDescription("default_model", "default_model", None),
        server.SamplingArguments(0.0, 1.0, 0, 0.0, 0.0, 0.0),
        server.LogitsProcessorArguments(None, 0.0, 20, 0.0, 20, 0.0, 20),
        [], 6, 3, False, -1, None, None,
    )  # fmt: skip
    _, responses = responder.generate(request, arguments)
    return [response.token for response in responses]
