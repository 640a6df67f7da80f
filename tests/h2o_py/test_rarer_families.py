"""Every other family of mlx_lm: served token for token, or refused by name."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import mlx_lm.models
import pytest
from mlx_lm.models.cache import make_prompt_cache

from h2o_pack.facts import swift_models
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.models import STORAGES, make_h2o_cache
from tests.h2o_py.cases import in_turn, largest_difference
from tests.h2o_py.rarer_models import RARER, rarer_model
from tests.h2o_py.small_models import FAMILIES
from tests.h2o_py.test_model_families import PROMPT, SMALL, evicting, generated

LATER_ROWS = "selects rows of one cache by their index in another"
REFUSED = {
    "deepseek_v41": r"deepseek_v41 has no layer with a plain KVCache \(it uses LayerCache\)",
    "glm_moe_dsa": f"glm_moe_dsa cannot use an H2O cache: it {LATER_ROWS}",
    "mamba": r"mamba has no layer with a plain KVCache \(it uses ArraysCache\)",
    "minimax_m3_vl": f"minimax_m3_vl cannot use an H2O cache: it {LATER_ROWS}",
    "recurrent_gemma": "recurrent_gemma has no layer with a plain KVCache",
    "rwkv7": r"rwkv7 has no layer with a plain KVCache \(it uses ArraysCache\)",
}
WITHOUT_SCORES = {
    "bailing_hybrid", "bailing_moe_v3", "glm4_moe_lite", "kimi_k25", "kimi_k3", "kimi_linear",
    "kimi_vl", "longcat_flash", "longcat_flash_ngram", "mistral4", "plamo", "plamo2",
}  # fmt: skip
NOT_RUN = {"olmo": "needs the package ai2-olmo", "muse_spark": "its own kernels need Metal"}
SERVED = [family for family in RARER if family not in {*REFUSED, *NOT_RUN}]
CHUNK, ANSWER = 35, 8
RECALLING = H2OConfig(
    32, sink_size=3, heavy_budget=12, recent_budget=10, recall=H2ORecall(rows=8, every=4)
)

pytestmark = [
    pytest.mark.usefixtures("routed"),
    pytest.mark.filterwarnings("ignore::h2o_py.errors.H2OScoresMissingWarning"),
]


@pytest.mark.parametrize("family", SERVED)
def test_with_room_for_all_the_tokens_equal_those_of_the_models_own_caches(family):
    model = rarer_model(family)
    tokens, logprobs = generated(model, make_prompt_cache(model), CHUNK, ANSWER)
    again, close = generated(model, make_h2o_cache(model, H2OConfig(128)), CHUNK, ANSWER)
    assert again == tokens
    assert largest_difference(close, logprobs) < 1e-4


@pytest.mark.parametrize(("family", "kv"), in_turn(SERVED, STORAGES))
def test_past_the_budget_it_goes_on_within_its_rows(family, kv):
    model = rarer_model(family)
    caches = make_h2o_cache(model, SMALL, kv=kv, group_size=32)
    _, logprobs = generated(model, caches, CHUNK, ANSWER)
    assert mx.isfinite(logprobs).all().item()
    used = [cache for cache in evicting(caches) if not cache.empty()]
    for cache in used:
        cache.settle()
        assert (cache.offset, cache.length) == (PROMPT + ANSWER, 32)
        assert (cache.scores >= 0).all().item() == (family not in WITHOUT_SCORES)
    linear = family == "nemotron-nas"  # one of its caches belongs to a linear layer
    assert len(used) == len(evicting(caches)) - linear > 0


@pytest.mark.parametrize("family", SERVED)
def test_what_was_evicted_comes_back_where_the_attention_asks(family):
    model = rarer_model(family)
    if family in WITHOUT_SCORES:
        with pytest.raises(ValueError, match=f"{family} cannot recall: its attention"):
            make_h2o_cache(model, RECALLING, kv="k8v4", group_size=32)
        return
    caches = make_h2o_cache(model, RECALLING, kv="k8v4", group_size=32)
    _, logprobs = generated(model, caches, CHUNK, ANSWER)
    assert mx.isfinite(logprobs).all().item()
    assert sum(cache.recalled for cache in evicting(caches)) > 0


@pytest.mark.parametrize("family", REFUSED)
def test_families_that_cannot_work_are_refused_by_name(family):
    with pytest.raises(ValueError, match=REFUSED[family]):
        make_h2o_cache(rarer_model(family), SMALL)


def test_a_family_whose_kernels_need_metal_gets_its_caches():
    caches = make_h2o_cache(rarer_model("muse_spark"), SMALL)
    assert [type(each).__name__ for each in caches] == ["RotatingKVCache", "H2OKVCache"] * 2


def test_no_family_of_mlx_lm_is_left_out():
    files = [
        path.stem
        for folder in mlx_lm.models.__path__
        for path in Path(folder).glob("*.py")
        if "\nclass Model(" in path.read_text("utf-8")
    ]
    built = {*RARER, *(family.split()[0] for family in FAMILIES)}
    # tests/bridge/models/test_families.py runs those that packages support.
    assert set(files) - built - set(swift_models()) - set(NOT_RUN) == set()
