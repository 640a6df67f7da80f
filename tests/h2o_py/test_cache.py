"""H2OKVCache and the contract that mlx_lm expects of a cache."""

import mlx.core as mx
import pytest

from h2o_pack.measure.held import active_memory
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from tests.h2o_py.cases import (
    SMALL,
    fallback,
    filled,
    random_tokens,
    step,
)


def test_the_buffer_grows_in_steps_of_256_up_to_max_size():
    cache = H2OKVCache(H2OConfig(600))
    capacities = []
    for tokens in (1, 255, 1, 255, 88, 1, 1):
        step(cache, *random_tokens(tokens))
        capacities.append(cache.rows.pool.shape[2])
    assert capacities == [256, 256, 512, 512, 600, 600, 600]


def test_a_thousand_steps_leave_no_graph_behind():
    cache = filled(SMALL, 40)
    new = random_tokens(1)
    mx.eval(new)
    outs = []
    for i in range(1000):
        out = step(cache, *new)
        mx.eval(out)  # as mlx_lm's decoding does: never the state itself
        if i in (10, 999):
            outs.append(active_memory())
    assert outs[1] - outs[0] < 4096
    assert cache.offset == 1040


def test_fetched_rows_evaluated_late_are_those_of_their_time():
    cache, twin = filled(SMALL, 60), filled(SMALL, 60)
    new = [random_tokens(1) for _ in range(4)]
    lazy = []
    for q, k, v in new:
        keys, _ = cache.update_and_fetch(k, v)
        lazy.append(keys)
        cache.attend(q, scale=0.125)
    for (q, k, v), late in zip(new, lazy, strict=True):
        keys, _ = twin.update_and_fetch(k, v)
        mx.eval(keys)
        expected = keys.tolist()
        twin.attend(q, scale=0.125)
        assert late.tolist() == expected


def test_masks_are_over_rows_not_over_positions():
    cache = filled(SMALL, 100)
    assert cache.make_mask(1) is None
    assert cache.make_mask(5) == "causal"
    mask = cache.make_mask(5, return_array=True)
    assert mask.shape == (5, 37)
    assert mask[0].tolist() == [True] * 33 + [False] * 4
    with pytest.raises(ValueError) as error:
        cache.make_mask(1, window_size=16)
    assert error.value.code == "sliding_window"
    young = filled(SMALL, 8)
    assert young.make_mask(2, window_size=4).shape == (2, 10)


def test_a_state_of_another_kind_is_refused_by_name():
    cache = filled(SMALL, 50)
    with pytest.raises(ValueError) as error:
        H2OKVCache.restored(cache.arrays[:2], cache.header)
    assert error.value.code == "other_state"
    with pytest.raises(ValueError) as error:
        H2OKVCache.restored(cache.arrays, cache.header.replace("h2o.dense.2", "h2o.dense.99"))
    assert error.value.code == "other_state_format"


def test_attend_without_a_write_is_refused():
    cache = filled(SMALL, 10)
    with pytest.raises(ValueError) as error:
        cache.attend(random_tokens(1)[0], scale=1.0)
    assert error.value.code == "attend_before_write"


def test_whoever_knows_the_next_victim_has_read_the_values(tmp_path):
    """On a GPU the next write waits for the victim alone, so that must wait for the output."""
    cache = H2OKVCache(SMALL, fallback)
    for _ in range(SMALL.max_size + 2):
        mx.eval(step(cache, *random_tokens(1)))
    out = step(cache, *random_tokens(1))
    mx.eval(cache.ledger.victim)
    graph = tmp_path / "graph.dot"
    mx.export_to_dot(str(graph), out)
    assert "rectangle" not in graph.read_text(), "the output has yet to be computed"
