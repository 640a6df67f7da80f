"""The comparison of policies with a window."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import RotatingKVCache

from h2o_py.cache import H2OKVCache
from tools import policies
from tools.policies import PAPER, STANDARD, WINDOW, Policy


@pytest.fixture
def small(monkeypatch):
    for name, value in {
        "PROMPT": 64, "HEAVY": 4, "CHUNK": 32, "GENERATED": 4, "SAMPLES": 2,
        "READ": 40, "READ_ROWS": 24,
        "ROWS": {"1/4": (WINDOW, STANDARD), "2/1": (STANDARD,)},
    }.items():  # fmt: skip
        monkeypatch.setattr(policies, name, value)


@pytest.mark.parametrize(
    ("policy", "recent"),
    [(STANDARD, 60), (Policy("three quarters", "softmax", 3 / 4), 92), (PAPER, 60)],
)
def test_a_policy_divides_the_rows(demo, policy, recent):
    for cache in policy.caches(demo[0], 128):
        assert isinstance(cache, H2OKVCache)
        config = cache.config
        assert (config.max_size, config.sink_size, config.recent_budget) == (128, 4, recent)
        assert config.score == policy.score
        assert config.recall is None
    assert all(type(cache) is RotatingKVCache for cache in WINDOW.caches(demo[0], 128))


def test_samples_are_compared_with_the_full_cache(demo, routed, small):
    model, _ = demo
    ids = mx.random.randint(5, 1000, (2, 68), key=mx.random.key(8))
    lost = policies.divergences(model, ids)
    assert {key: len(values) for key, values in lost.items()} == {
        ("1/4", "window"): 2, ("1/4", "standard"): 2, ("2/1", "standard"): 2,
    }  # fmt: skip
    assert max(lost["2/1", "standard"]) < 1e-4 < min(lost["1/4", "window"])


def test_perplexity_counts_the_tokens_after_the_first(demo, routed, small):
    model, _ = demo
    ids = mx.random.randint(5, 1000, (1, 40), key=mx.random.key(9))
    found = policies.perplexities(model, ids)
    logits = model(ids[:, :-1]).astype(mx.float32)
    logs = logits - mx.logsumexp(logits, -1, keepdims=True)
    logs = mx.take_along_axis(logs, ids[:, 1:, None], axis=-1)[:, policies.BEFORE - 1 :]
    assert found["full cache"] == pytest.approx(mx.exp(-logs.mean()).item(), rel=1e-4)
    assert found["window"] != found["standard"] != found["paper"]


def test_scores_that_rank_alike_have_all_rows_in_common(demo, routed, small, monkeypatch):
    model, _ = demo
    ids = mx.random.randint(5, 1000, (1, 68), key=mx.random.key(9))
    assert 0 < policies.in_common(model, ids) < 1
    monkeypatch.setattr(policies, "PAPER", policies.ATTENTION)
    assert policies.in_common(model, ids) == 1


def test_a_cell_says_whether_the_samples_tell():
    window = [0.4, 0.5, 0.6, 0.5, 0.4, 0.6]
    for factor, told in ((0.5, " (better)"), (2, " (worse)")):
        lost = {("1/8", "window"): window, ("1/8", "standard"): [v * factor for v in window]}
        assert policies._cell(lost, "1/8", STANDARD).endswith(told)
        assert policies._cell(lost, "1/8", WINDOW) == "0.50"
