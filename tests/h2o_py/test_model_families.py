"""H2O caches in mlx_lm's models: every family serves, or is refused by name."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import mlx_lm.models
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache

from h2o_pack.errors import UserError
from h2o_pack.facts import swift_models
from h2o_pack.memory.storages import storage_of
from h2o_pack.models.config import describe
from h2o_py.cache import H2OCacheList
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.errors import H2OScoresMissingWarning
from h2o_py.models import STORAGES, make_h2o_cache
from tests.bridge.models.small_configs import small_config
from tests.bridge.models.small_configs import small_model as mlx_lm_model
from tests.h2o_py.cases import in_turn, kept, largest_difference
from tests.h2o_py.small_models import (
    FAMILIES,
    RARER,
    SLIDING,
    VOCABULARY,
    evicting,
    generate_step,
    random_prompt,
    small_model,
)
from tests.nightly import nightly_except

SCORED = [
    "qwen3", "llama", "llama sliding", "gemma3_text", "gemma4_text", "qwen3_next", "lfm2",
    "gpt_oss", "phi", "phi3", "qwen3_moe", "smollm3", "ministral3", "cohere2", "falcon_h1",
    "baichuan_m1", "deepseek_v2", "qwen3_5",
    "granitemoehybrid", "nemotron_h", "olmo_hybrid",
]  # fmt: skip
WITHOUT_SCORES = ["deepseek_v3", "gemma2", "stablelm"]
LATER_ROWS = "selects rows of one cache by their index in another"
REFUSED = {
    "afm7": "afm7 cannot use an H2O cache: its last layers read the keys of another",
    "gemma3n": "gemma3n cannot use an H2O cache: its last layers read the keys of another",
    "deepseek_v32": "deepseek_v32 cannot use an H2O cache: it selects rows of one cache",
    "iquestloopcoder": "cannot use an H2O cache: it reads a layer's keys again",
    "phi3small": "cannot use an H2O cache: its block-sparse mask uses a row's index",
    "mamba2": r"mamba2 has no layer with a plain KVCache \(it uses ArraysCache\)",
    "deepseek_v41": r"deepseek_v41 has no layer with a plain KVCache \(it uses LayerCache\)",
    "glm_moe_dsa": f"glm_moe_dsa cannot use an H2O cache: it {LATER_ROWS}",
    "mamba": r"mamba has no layer with a plain KVCache \(it uses ArraysCache\)",
    "minimax_m3_vl": f"minimax_m3_vl cannot use an H2O cache: it {LATER_ROWS}",
    "recurrent_gemma": "recurrent_gemma has no layer with a plain KVCache",
    "rwkv7": r"rwkv7 has no layer with a plain KVCache \(it uses ArraysCache\)",
}
NOT_RUN = {"olmo": "needs the package ai2-olmo", "muse_spark": "its own kernels need Metal"}
RARER_SERVED = [family for family in RARER if family not in {*REFUSED, *NOT_RUN}]
EVERYDAY = [
    "qwen3", "llama sliding", "gemma4_text", "gpt_oss", "qwen3_next", "falcon_h1",
    "deepseek_v2", "deepseek_v3",
]  # fmt: skip
"""Plain layers; each kind that takes part in a model beside them; values of another size than
keys; no scores."""
RARER_WITHOUT_SCORES = {
    "bailing_hybrid", "bailing_moe_v3", "glm4_moe_lite", "kimi_k25", "kimi_k3", "kimi_linear",
    "kimi_vl", "longcat_flash", "longcat_flash_ngram", "mistral4", "plamo", "plamo2",
}  # fmt: skip
SHARPER = {"gemma4_text": 4, "deepseek_v2": 1.5}
"""Families in which errors count more: Gemma 4 does not scale the product of queries and keys,
and what the random DeepSeek V2 answers depends more on its values than elsewhere."""
LOSSY = {
    "8": 0.02,
    "k8v4": 0.3,
    "4": 1.0,
    "heavy=8,recent=16": 0.02,
    "heavy=4,recent=16": 1.0,
    "heavy=4,recent=8": 1.0,
    "heavy=16,recent=8": 0.02,
    "heavy=16,recent=4": 1.0,
    "heavy=8,recent=4": 1.0,
}
VARIED = ("qwen3", "gemma4_text", "deepseek_v2")
"""Plain layers; rows that other layers read too; values of another size than keys."""
SMALL = H2OConfig(32, sink_size=3, heavy_budget=12, recent_budget=10)
RECALLING = H2OConfig(
    32, sink_size=3, heavy_budget=12, recent_budget=10, recall=H2ORecall(reach=8)
)
PROMPT, ANSWER = 70, 4

pytestmark = [
    pytest.mark.usefixtures("routed"),
    pytest.mark.filterwarnings("ignore::h2o_py.errors.H2OScoresMissingWarning"),
]


def generated(model, caches, answer=ANSWER):
    """Greedy tokens after a fixed prompt, and their log-probabilities [answer, V]."""
    steps = generate_step(
        random_prompt(PROMPT, seed=3),
        model,
        max_tokens=answer,
        prompt_cache=caches,
        prefill_step_size=24,
    )
    tokens, logprobs = zip(*steps, strict=True)
    return [int(t) for t in tokens], mx.stack(logprobs)


@pytest.mark.parametrize(
    "family", nightly_except(EVERYDAY, SCORED + WITHOUT_SCORES + RARER_SERVED)
)
def test_with_room_for_all_the_tokens_equal_those_of_the_models_own_caches(family):
    model = small_model(family)
    tokens, logprobs = generated(model, make_prompt_cache(model))
    again, close = generated(model, make_h2o_cache(model, H2OConfig(128)))
    assert again == tokens
    assert largest_difference(close, logprobs) < 1e-4


CLOSE = [
    ("qwen3", "8"),
    ("qwen3", "4"),
    ("gemma4_text", "k8v4"),
    ("deepseek_v2", "heavy=8,recent=4"),
]


@pytest.mark.parametrize(
    ("family", "kv"), nightly_except(CLOSE, in_turn(SCORED, LOSSY, VARIED))
)
def test_with_room_for_all_quantized_rows_stay_close_to_the_models_own_caches(family, kv):
    model = small_model(family)
    _, logprobs = generated(model, make_prompt_cache(model), answer=1)
    few_recent = H2OConfig(256, heavy_budget=220)  # so that most rows have the lower bits
    caches = make_h2o_cache(model, few_recent, kv=kv, group_size=32)
    _, close = generated(model, caches, answer=1)
    assert 0 < largest_difference(close, logprobs) < LOSSY[kv] * SHARPER.get(family, 1)


PAIRS = in_turn(SCORED + WITHOUT_SCORES, STORAGES, VARIED) + in_turn(RARER_SERVED, STORAGES)
OF_FEWER = [
    (family, kv)
    for family, kv in PAIRS
    if family not in RARER_SERVED
    and (family not in VARIED or kv in ("16", "k8v4", "heavy=4,recent=8"))
] + [pair for pair in PAIRS if pair[0] in RARER_SERVED[::8]]


@pytest.mark.parametrize(("family", "kv"), nightly_except(OF_FEWER, PAIRS))
def test_past_the_budget_it_goes_on_within_its_rows(family, kv):
    model = small_model(family)
    caches = make_h2o_cache(model, SMALL, kv=kv, group_size=32)
    _, logprobs = generated(model, caches)
    assert mx.isfinite(logprobs).all().item()
    count = PROMPT + ANSWER
    filled = [cache for cache in evicting(caches) if not cache.empty()]
    linear = family == "nemotron-nas"  # one of its caches belongs to a linear layer
    assert len(filled) == len(evicting(caches)) - linear > 0
    for cache in filled:
        cache.settle()
        assert (cache.offset, cache.length, cache.keys.shape[2]) == (count, 32, 32)
        for head in kept(cache)[0]:
            assert head[:3] == [0, 1, 2]
            assert head[-10:] == list(range(count - 10, count))
            assert len(set(head)) == 32
        has_scores = family not in {*WITHOUT_SCORES, *RARER_WITHOUT_SCORES}
        assert (cache.scores >= 0).all().item() == has_scores


@pytest.mark.parametrize("family", nightly_except(RARER_SERVED[::8], RARER_SERVED))
def test_what_was_evicted_comes_back_where_the_attention_asks(family):
    model = small_model(family)
    if family in RARER_WITHOUT_SCORES:
        with pytest.raises(ValueError, match=f"{family} cannot recall: its attention"):
            make_h2o_cache(model, RECALLING, kv="k8v4", group_size=32)
        return
    caches = make_h2o_cache(model, RECALLING, kv="k8v4", group_size=32)
    _, logprobs = generated(model, caches)
    assert mx.isfinite(logprobs).all().item()
    assert sum(cache.archive_reads for cache in evicting(caches)) > 0


@pytest.mark.parametrize("family", ["phi", "cohere2", "gemma3_text", "falcon_h1"])
def test_half_precision_models_generate_past_the_budget(family):
    model = small_model(family, mx.float16)
    for kv in ("16", "k8v4"):
        caches = make_h2o_cache(model, SMALL, kv=kv, group_size=32)
        _, logprobs = generated(model, caches)
        assert mx.isfinite(logprobs).all().item()
        assert all((c.scores >= 0).all().item() for c in evicting(caches))


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        ("llama sliding", ["RotatingKVCache", "H2OKVCache"] * 2),
        ("gemma3_text", ["RotatingKVCache", "H2OKVCache"] * 2),
        ("gpt_oss", ["RotatingKVCache", "H2OKVCache"] * 2),
        ("qwen3_next", ["ArraysCache", "H2OKVCache"] * 2),
        ("lfm2", ["ArraysCache", "H2OKVCache"] * 2),
        ("qwen3_5", ["ArraysCache", "H2OKVCache"] * 2),
        ("granitemoehybrid", ["ArraysCache", "H2OKVCache"] * 2),
        ("olmo_hybrid", ["ArraysCache", "H2OKVCache"] * 2),
        ("nemotron_h", ["ArraysCache", "H2OKVCache", "H2OKVCache"]),
        ("gemma4_text", ["RotatingKVCache", "H2OKVCache"] * 2),
        ("falcon_h1", ["H2OCacheList"] * 4),
        ("baichuan_m1", ["CacheList", "H2OCacheList"] * 2),
    ],
)
def test_layers_without_full_attention_keep_the_models_own_cache(family, kinds):
    model = small_model(family)
    caches = make_h2o_cache(model, SMALL)
    assert [type(c).__name__ for c in caches] == kinds
    generated(model, caches)
    for own, cache in zip(make_prompt_cache(model), caches, strict=True):
        if type(own).__name__ == "RotatingKVCache":
            assert (cache.max_size, cache.offset) == (SLIDING, PROMPT + ANSWER)
        if isinstance(cache, H2OCacheList):
            assert [type(m).__name__ for m in cache.caches] == ["ArraysCache", "H2OKVCache"]
            assert type(own.caches[1]) is KVCache


def test_rows_that_other_layers_read_too_are_read_before_the_next_token_is_written():
    model = small_model("gemma4_text")
    tokens = mx.random.randint(0, VOCABULARY, (1, 60), key=mx.random.key(1))

    def logits(evaluate):
        caches = make_h2o_cache(model, SMALL)
        mx.eval(model(tokens[:, :40], cache=caches))
        out = []
        for t in range(40, 60):  # past the budget: each token is written in place
            out.append(model(tokens[:, t : t + 1], cache=caches))
            if evaluate:
                mx.eval(out)
        mx.eval(out[::-1])
        return mx.concatenate(out, axis=1)

    assert largest_difference(logits(evaluate=True), logits(evaluate=False)) < 1e-5


@pytest.mark.parametrize("family", REFUSED)
def test_families_that_cannot_work_are_refused_by_name(family):
    with pytest.raises(ValueError, match=REFUSED[family]):
        make_h2o_cache(small_model(family), SMALL)


def test_a_model_split_over_machines_is_refused():
    model = small_model("ministral3")
    model.model.pipeline_size = 2
    try:
        with pytest.raises(ValueError, match="a pipeline over several machines"):
            make_h2o_cache(model, SMALL)
    finally:
        model.model.pipeline_size = 1


@pytest.mark.parametrize("family", WITHOUT_SCORES)
def test_families_that_give_no_scores_are_named_once_and_run_without_them(family):
    model = small_model(family)
    with pytest.warns(
        H2OScoresMissingWarning, match=f"the attention of {family} does not pass"
    ):
        caches = make_h2o_cache(model, SMALL)
    generated(model, caches, answer=4)  # no second warning: warnings are errors here


def test_an_unknown_storage_is_refused_with_the_nearest_name():
    with pytest.raises(
        ValueError, match=r"kv must be one of .*, got 'k8v5'. Did you mean 'k8v4'"
    ):
        make_h2o_cache(small_model("qwen3"), SMALL, kv="k8v5")


def test_a_family_whose_kernels_need_metal_gets_its_caches():
    caches = make_h2o_cache(small_model("muse_spark"), SMALL)
    assert [type(cache).__name__ for cache in caches] == ["RotatingKVCache", "H2OKVCache"] * 2


def test_no_family_of_mlx_lm_is_left_out():
    files = [
        path.stem
        for folder in mlx_lm.models.__path__
        for path in Path(folder).glob("*.py")
        if "\nclass Model(" in path.read_text("utf-8")
    ]
    families = {*RARER, *(family.split()[0] for family in FAMILIES)}
    # tests/bridge/models/test_families.py runs those that packages support.
    assert set(files) - families - set(swift_models()) - set(NOT_RUN) == set()


@pytest.mark.parametrize(("head_dim", "expected"), [(32, 32), (64, 64), (96, 32), (128, 64)])
def test_rows_are_quantized_in_the_groups_that_a_package_uses(head_dim, expected):
    document = small_config("qwen3", head_dim=head_dim)
    package = storage_of("8", describe(document, "config.json").config)
    caches = make_h2o_cache(mlx_lm_model("qwen3", head_dim=head_dim), SMALL, kv="8")
    assert {cache.group_size for cache in caches} == {package.group_size} == {expected}


@pytest.mark.parametrize("head_dim", [80, 112])
def test_heads_that_no_group_divides_are_refused_as_for_a_package(head_dim):
    with pytest.raises(UserError, match="quantizes in groups of 32"):
        storage_of("8", describe(small_config("qwen3", head_dim=head_dim), "").config)
    model = mlx_lm_model("qwen3", head_dim=head_dim)
    with pytest.raises(ValueError, match="a multiple of group_size 32"):
        generated(model, make_h2o_cache(model, SMALL, kv="8"))
