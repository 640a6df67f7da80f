"""Reading everything and choosing once: by the core, the reference, and as defined."""

import dataclasses

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_pack.parity import reference
from h2o_pack.parity.reference.recall import Recalled
from h2o_py import H2OConfig, H2ORecall
from h2o_py.cache import H2OKVCache
from tests.h2o_py import core
from tests.h2o_py.cases import largest_difference, random_tokens, step
from tests.h2o_py.test_recall_core import MAKES

SIZES = {"sink_size": 2, "heavy_budget": 14, "recent_budget": 9, "pinned": ((6, 8),)}
TRAFFIC = (50, 1, 1, 230, 1, 9, 1)


def config(**changes):
    return H2OConfig(40, **SIZES, recall=H2ORecall(**{"ask": 4, "rows": 12, **changes}))


def filled(settings, make=H2OKVCache, backend=core, traffic=TRAFFIC, seed=3, **shape):
    """Return a cache that has seen this traffic, and all its keys and values."""
    mx.random.seed(seed)
    cache = make(settings, backend=backend)
    keys, values = [], []
    for tokens in traffic:
        queries, new_keys, new_values = random_tokens(tokens, **shape)
        mx.eval(step(cache, (3 * queries).astype(queries.dtype), new_keys, new_values))
        keys.append(new_keys)
        values.append(new_values)
    return cache, mx.concatenate(keys, 2), mx.concatenate(values, 2)


def read(cache, new, backend=core, **options):
    """What the next tokens get that read everything."""
    queries, keys, values = new
    return backend.read_everything(
        (3 * queries).astype(queries.dtype),
        keys,
        values,
        cache.rows,
        cache.ledger,
        cache.archive,
        offset=cache.offset,
        config=cache.config,
        scale=queries.shape[3] ** -0.5,
        row_format=cache.row_format,
        **options,
    )


def softmax_over_all(queries, keys, values, sinks=None):
    """Attention of the last queries to all keys, causally among their own, in float64."""
    q, k, v = (np.array(a.astype(mx.float32), np.float64) for a in (queries, keys, values))
    group, asks, length = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    logits = 3 * q @ k.swapaxes(2, 3) * q.shape[3] ** -0.5
    hidden = np.arange(length) > length - asks + np.arange(asks)[:, None]
    weights = np.exp(np.where(hidden, -np.inf, logits))
    total = weights.sum(axis=3, keepdims=True)
    if sinks is not None:
        total = total + np.exp(np.array(sinks, np.float64))[:, None, None]
    shares = weights / total
    return shares @ v, shares[..., : length - asks].max(axis=2)


@pytest.mark.parametrize("asks", [1, 5, 32])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_reading_what_is_stored_as_it_comes_is_attention_to_all_tokens(asks, with_sinks):
    cache, keys, values = filled(config(archive_bits=16), batch=2)
    new = random_tokens(asks, batch=2)
    sinks = mx.random.normal((4,)) if with_sinks else None
    out, strongest = read(cache, new, sinks=sinks)
    all_keys, all_values = (
        mx.concatenate([keys, new[1]], 2),
        mx.concatenate([values, new[2]], 2),
    )
    wanted, shares = softmax_over_all(new[0], all_keys, all_values, sinks)
    np.testing.assert_allclose(np.array(out), wanted, atol=2e-5)
    np.testing.assert_allclose(np.array(strongest), shares, atol=2e-6)


@pytest.mark.parametrize("storage", MAKES)
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("bits", [4, 16])
def test_core_and_reference_read_the_same(storage, dtype, bits):
    shape = {"batch": 2, "heads": 6, "kv_heads": 2, "dtype": dtype}
    both = [
        filled(config(archive_bits=bits), MAKES[storage], backend, **shape)[0]
        for backend in (core, reference)
    ]
    new = random_tokens(7, **shape)
    ours, oracle = (
        read(cache, new, backend)
        for cache, backend in zip(both, (core, reference), strict=True)
    )
    tolerance = {mx.float32: 2e-5, mx.float16: 4e-3, mx.bfloat16: 3e-2}[dtype]
    assert largest_difference(ours.out, oracle.out) <= tolerance
    assert largest_difference(ours.strongest, oracle.strongest) <= 2e-5
    assert ours.strongest.shape == (2, 6, both[0].offset)


def test_an_archive_in_files_reads_as_one_in_memory(tmp_path):
    in_files, *_ = filled(config(store=str(tmp_path / "archive")))
    in_memory, *_ = filled(config())
    new = random_tokens(6)
    for ours, theirs in zip(read(in_files, new), read(in_memory, new), strict=True):
        assert mx.array_equal(ours, theirs)


def test_masks_hide_among_the_asking_tokens():
    cache, *_ = filled(config())
    new = random_tokens(6)
    causal = mx.arange(6)[:, None] >= mx.arange(6)
    out, strongest = read(cache, new, mask="causal")
    for mask in (causal, mx.where(causal, 0.0, -1e30)):
        again = read(cache, new, mask=mask)
        assert largest_difference(again.out, out) < 1e-6
        assert largest_difference(again.strongest, strongest) < 1e-6
    alone = read(cache, new, mask=mx.eye(6) > 0)
    assert largest_difference(alone.out, out) > 1e-3
    assert largest_difference(alone.out[:, :, :1], out[:, :, :1]) < 1e-6


def bring_back(cache, positions, backend=core):
    return backend.bring_back(
        mx.array(positions),
        cache.rows,
        cache.ledger,
        cache.archive,
        offset=cache.offset,
        config=cache.config,
        row_format=cache.row_format,
    )


def held(recalled):
    """Positions that are held, sorted, as nested lists [B][Hkv][...]."""
    ledger = recalled.ledger
    return [
        [
            sorted(p for p, flag in zip(*head, strict=True) if flag)
            for head in zip(*both, strict=True)
        ]
        for both in zip(ledger.positions.tolist(), ledger.held.tolist(), strict=True)
    ]


@pytest.mark.parametrize("storage", MAKES)
def test_core_and_reference_bring_the_same_back(storage):
    both = [
        filled(config(), MAKES[storage], backend, batch=2)[0] for backend in (core, reference)
    ]
    positions = [[100, 3, 280, 10, 11, 12, 200, -1, 10], [250, 293, 0, 5, 6, 140, 141, 142, 7]]
    results = [
        bring_back(cache, positions, backend)
        for cache, backend in zip(both, (core, reference), strict=True)
    ]
    ours, oracle = results
    assert ours.came == oracle.came > 0
    for name in ("positions", "held", "victim"):
        mine, its = getattr(ours.ledger, name), getattr(oracle.ledger, name)
        assert mine.tolist() == its.tolist(), name
    assert held(ours)[0] == [[3, 10, 11, 12, 100, 200, 280]] * 2
    for mine, its in zip(ours.rows, oracle.rows, strict=True):
        if mine is not None:
            used = min(mine.shape[2], its.shape[2])
            assert mx.array_equal(mine[:, :, :used], its[:, :, :used])
    mx.random.seed(9)
    states = [(recalled.rows, recalled.ledger) for recalled in results]
    offset = both[0].offset
    for tokens in (1, 1, 1, 7):  # a held row stays, and the next victim is a right one
        new = random_tokens(tokens, batch=2)
        states = [
            go_on(backend, cache, *state[:2], offset, new)
            for backend, cache, state in zip((core, reference), both, states, strict=True)
        ]
        offset += tokens
        assert held(states[0]) == held(ours)
        assert states[0].ledger.positions.tolist() == states[1].ledger.positions.tolist()


def go_on(backend, cache, rows, ledger, offset, new):
    """What a step of the cache makes of these rows and this ledger."""
    queries, keys, values = new
    form = {"row_format": cache.row_format}
    rows = backend.cache_write(
        rows, keys, values, ledger.victim, offset, cache.config, copy=True, **form
    )
    attended = backend.cache_attend(
        queries, rows, ledger, tokens=keys.shape[2], offset=offset, config=cache.config,
        scale=0.125, mask="causal" if keys.shape[2] > 1 else None, **form,
    )  # fmt: skip
    mx.eval(attended.ledger)
    return Recalled(attended.rows, attended.ledger, 0)


def brute_choice(asked_for, first, seen, rows, config):
    """The rule of choosing for one sequence, position by position."""
    recall, pinned = config.recall, {p for b, e in config.pinned for p in range(b, e)}
    stands = {
        n: value
        for n, value in enumerate(asked_for, first)
        if n >= config.sink_size and n < seen - config.recent_budget and n not in pinned
    }
    counts = {
        n: max(
            stands[m] for m in range(n - recall.spread, n + recall.before + 1) if m in stands
        )
        for n in stands
        if stands[n] >= 0
    }
    most = max((value for value in stands.values()), default=0)
    least = np.float32(most) * (np.float32(recall.threshold) / np.float32(100))
    fits = [n for n, count in counts.items() if count > 0 and count >= least]
    best = sorted(fits, key=lambda n: (-counts[n], n))[:rows]
    return best + [-1] * (rows - len(best))


@given(data=st.data())
@settings(max_examples=150)
def test_the_choice_is_the_rule(data):
    length = data.draw(st.integers(1, 60), "length")
    recall = H2ORecall(
        spread=data.draw(st.integers(0, 20)),
        before=data.draw(st.integers(0, 6)),
        threshold=data.draw(st.sampled_from([0, 20, 50, 100, 130])),
    )
    chosen = dataclasses.replace(config(), recall=recall)
    levels = st.sampled_from([-1.0, 0.0, 0.125, 0.3, 0.3, 1.0, 2.5])
    asked_for = data.draw(st.lists(levels, min_size=length, max_size=length), "asked for")
    first = 256 * data.draw(st.integers(0, 1), "first")
    seen = first + length + data.draw(st.integers(0, 12), "newer")
    rows = data.draw(st.integers(1, 20), "rows")
    wanted = brute_choice([float(np.float32(a)) for a in asked_for], first, seen, rows, chosen)
    for backend in (core, reference):
        got = backend.chosen_positions(
            mx.array([asked_for], mx.float32), first=first, seen=seen, rows=rows, config=chosen
        )
        assert got.tolist() == [wanted], backend.__name__


def test_calls_that_do_not_fit_are_refused():
    cache, *_ = filled(config())
    new = random_tokens(3)
    with pytest.raises(ValueError, match="values has shape"):
        read(cache, (*new[:2], new[2][..., :32]))
    with pytest.raises(ValueError, match="keys has shape"):
        read(cache, (new[0], new[1][:, :1], new[2]))
    with pytest.raises(ValueError, match="positions has shape"):
        bring_back(cache, [1, 2])
    with pytest.raises(ValueError, match="rows is 0"):
        core.chosen_positions(mx.zeros((1, 9)), first=0, seen=9, rows=0, config=cache.config)
    native = core._native(cache.config)
    cache.archive.append(*new[1:], cache.ledger.key_sum, native)
    with pytest.raises(ValueError, match="the archive has positions"):
        read(cache, new)
