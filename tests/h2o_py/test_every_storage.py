"""What holds of a cache however its rows are stored."""

import copy
import dataclasses

import mlx.core as mx
import pytest
from mlx_lm.models.cache import load_prompt_cache, save_prompt_cache

from h2o_pack.measure.held import active_memory
from h2o_py import errors
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.errors import H2OScoresMissingWarning
from h2o_py.models import STORAGES
from h2o_py.store import load_cache, save_cache
from tests.h2o_py.cases import (
    SMALL,
    assert_same_archive,
    assert_same_state,
    kept,
    largest_difference,
    random_tokens,
    step,
)
from tests.nightly import nightly_except


@pytest.fixture(params=nightly_except(("16", "k8v4", "heavy=4,recent=16"), STORAGES))
def kv(request):
    return request.param


def filled(kv, tokens, config=SMALL, **shape):
    """A cache that has seen `tokens` random tokens, the last of them one by one."""
    mx.random.seed(1)
    cache = STORAGES[kv](config, 64)
    for count in (tokens - 5, *[1] * 5):
        mx.eval(step(cache, *random_tokens(count, **shape)))
    return cache


@pytest.mark.parametrize("recall", [None, H2ORecall(ask=4, reach=5)])
@pytest.mark.parametrize("tokens", [10, 60, 300])
def test_files_and_copies_continue_identically(kv, tokens, recall, tmp_path):
    config = dataclasses.replace(SMALL, recall=recall)
    empty = STORAGES[kv](config, 64)
    cache = filled(kv, tokens, config, dtype=mx.bfloat16)
    mx.eval(empty.state, cache.state)
    assert (empty.empty(), empty.nbytes, cache.empty()) == (True, 0, False)
    copies = [cache.copy(), copy.copy(cache), copy.deepcopy(cache)]
    save_prompt_cache(str(tmp_path / "prompt.safetensors"), [cache], {"model": "test"})
    [upstream], metadata = load_prompt_cache(
        str(tmp_path / "prompt.safetensors"), return_metadata=True
    )
    assert metadata == {"model": "test"}
    save_cache(tmp_path / "own.safetensors", [cache], {"turn": "1"})
    [own], metadata = load_cache(tmp_path / "own.safetensors")
    assert metadata == {"turn": "1"}
    assert ("archive." in cache.header) == (recall is not None)
    counts = [*[1] * 10, 20, 1, 1] if recall else [1] * 30
    later = [random_tokens(count, dtype=mx.bfloat16) for count in counts]
    outs = []
    for new in later:  # such steps write in place
        outs.append(step(cache, *new))
        mx.eval(outs)
    for twin in (upstream, own, *copies):
        for new, out in zip(later, outs, strict=True):
            assert largest_difference(step(twin, *new), out) == 0  # evaluates it
        assert_same_state(twin, cache, 0)
        assert (twin.config, twin.row_format) == (cache.config, cache.row_format)
        if recall is not None:
            assert_same_archive(twin.archive, cache.archive)


def test_what_was_handed_out_stays_as_it_was(kv):
    cache = filled(kv, 60)
    q, k, v = random_tokens(1)
    views = cache.update_and_fetch(k, v)
    cache.attend(q, scale=0.125)
    arrays = [*views, cache.keys, *cache.arrays]
    before = [array.tolist() for array in arrays]
    for _ in range(20):
        mx.eval(step(cache, *random_tokens(1)))
    assert [array.tolist() for array in arrays] == before


def test_rows_are_written_in_place(kv):
    shape = {"kv_heads": 8, "heads": 8, "dim": 128}
    cache = filled(kv, 550, H2OConfig(512, recent_budget=128), **shape)
    for pipelined in (False, True):
        inputs = [random_tokens(1, **shape) for _ in range(20)]
        mx.eval(inputs, cache.ledger)
        before = active_memory()
        mx.clear_cache()
        mx.reset_peak_memory()
        previous = []
        for new in inputs:
            out = step(cache, *new)
            mx.async_eval(out)
            mx.eval(previous if pipelined else out)
            previous = out
        mx.eval(out)
        rows_bytes = sum(buffer.nbytes for buffer in cache.rows if buffer is not None)
        assert mx.get_peak_memory() - before < rows_bytes / 4, pipelined
        assert active_memory() - before < rows_bytes / 4, pipelined


@pytest.mark.parametrize("kv", ["16", "8", "4"], indirect=True)
@pytest.mark.parametrize("recall", [None, H2ORecall(ask=2)])
def test_trimming_everything_leaves_a_working_cache(kv, recall):
    cache = STORAGES[kv](dataclasses.replace(SMALL, recall=recall), 64)
    step(cache, *random_tokens(10))
    assert cache.trim(-(2**70)) == 0
    assert cache.trim(2**70) == 10
    assert cache.offset == 0
    step(cache, *random_tokens(4))
    assert kept(cache)[0][0] == [0, 1, 2, 3]


def test_without_attend_recency_decides_and_it_says_so_once(kv, monkeypatch):
    monkeypatch.setattr(errors, "_reported", set())
    config = H2OConfig(32, sink_size=2, heavy_budget=10, recent_budget=12)
    cache = STORAGES[kv](config, 64)
    keys, _ = cache.update_and_fetch(*random_tokens(50)[1:])
    assert keys.shape[2] == 50
    with pytest.warns(H2OScoresMissingWarning, match="install_routing"):
        cache.update_and_fetch(*random_tokens(1)[1:])
    for _ in range(10):
        keys, values = cache.update_and_fetch(*random_tokens(1)[1:])
        assert keys.shape[2] == values.shape[2] == 32
    cache.settle()
    assert kept(cache)[0] == [[0, 1, *range(31, 61)]] * 2
    assert (cache.scores == -1).all().item()
