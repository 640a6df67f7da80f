"""The core with arguments that no cache has: each is refused, or leads nowhere outside."""

import mlx.core as mx
import pytest

from h2o_py import fast
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.models import STORAGES
from h2o_py.rows import DENSE, RowFormat, Rows
from tests.h2o_py import core
from tests.h2o_py.cases import BACKENDS, SMALL, in_pairs, random_tokens, step
from tests.nightly import nightly_except

LARGEST = 2**31 - 1
CONTENTS = {
    "positions": [0, -1, 7, 47, 48, 59, LARGEST, -LARGEST - 1],
    "victim": [-1, 20, 32, LARGEST, -LARGEST - 1],
    "scores": [float("nan"), float("inf"), -float("inf"), 3e38],
}


def filled(kv, tokens, backend=core):
    mx.random.seed(1)
    cache = STORAGES[kv](SMALL, 32)
    cache.backend = backend
    mx.eval(step(cache, *random_tokens(tokens)))
    mx.eval(step(cache, *random_tokens(1)))
    return cache


LEDGERS = in_pairs(CONTENTS, STORAGES, BACKENDS)


@pytest.mark.parametrize(("name", "kv", "backend"), nightly_except(LEDGERS[::4], LEDGERS))
def test_contents_of_a_ledger_lead_nowhere_outside_the_buffers(name, kv, backend):
    for content in CONTENTS[name]:
        for tokens in (1, 20):
            cache = filled(kv, 59, BACKENDS[backend])
            hostile = mx.full(
                getattr(cache.ledger, name).shape, content, getattr(cache.ledger, name).dtype
            )
            cache.ledger = cache.ledger._replace(**{name: hostile})
            for count in (tokens, 1, 1):
                out = step(cache, *random_tokens(count))
                assert mx.isfinite(out).all().item(), (content, tokens)
            assert cache.length == 32


def arguments_of(kv):
    """What the functions take for the next token of a full cache, by name."""
    cache = filled(kv, 59)
    queries, keys, values = random_tokens(1)
    return {
        "queries": queries, "keys": keys, "values": values, "rows": cache.rows,
        "ledger": cache.ledger, "key_dim": 64, "config": SMALL, "row_format": cache.row_format,
        "offset": 60, "tokens": 1,
    }  # fmt: skip


def call(function, arguments, **changes):
    """Call one of the core's functions with changed arguments."""
    arguments = {**arguments, **changes}
    ledger = arguments["ledger"]
    names = {"write": ("keys", "values"), "attend": ("queries", "ledger", "key_dim", "tokens")}[
        function
    ]
    options = {n: arguments[n] for n in (*names, "rows", "offset", "config", "row_format")}
    if function == "write":
        mx.eval(core.cache_write(victim=ledger.victim, **options))
    else:
        mx.eval(core.cache_attend(**options))


def widened(array):
    return mx.concatenate([array, array], axis=3)


WRONG_ROWS = {
    "no dimensions": lambda pool, ring: Rows(pool[0], ring),
    "another width": lambda pool, ring: Rows(pool[..., :-1], ring),
    "far wider": lambda pool, ring: Rows(widened(pool), ring),
    "another dtype": lambda pool, ring: Rows(pool.astype(mx.int8), ring),
    "fewer heads": lambda pool, ring: Rows(pool[:, :1], ring),
    "more batches": lambda pool, ring: Rows(mx.concatenate([pool] * 2), ring),
    "fewer rows": lambda pool, ring: Rows(pool[:, :, :3], ring),
    "no heads": lambda pool, ring: Rows(pool[:, :0], ring),
}
WRONG_RING = {
    "no ring": lambda pool, ring: Rows(pool),
    "a ring of another width": lambda pool, ring: Rows(pool, ring[..., :-1]),
    "a far wider ring": lambda pool, ring: Rows(pool, widened(ring)),
    "a ring of another dtype": lambda pool, ring: Rows(pool, ring.astype(mx.float16)),
    "a ring of fewer heads": lambda pool, ring: Rows(pool, ring[:, :1]),
    "a ring of fewer rows": lambda pool, ring: Rows(pool, ring[:, :, :3]),
    "a ring of more batches": lambda pool, ring: Rows(pool, mx.concatenate([ring] * 2)),
}


def is_unsaid(name, function, kv):
    """Whether nothing that the function gets contradicts such rows without a ring.

    Only a row's width says how long a value is. Such rows stay within their arrays.
    """
    if name == "another width":
        return function != "write" and kv == "16"
    return name == "far wider" and function != "write"


@pytest.mark.parametrize("function", ["write", "attend"])
@pytest.mark.parametrize("kv", STORAGES)
def test_rows_that_do_not_fit_are_refused(kv, function):
    arguments = arguments_of(kv)
    call(function, arguments)
    pool, ring = arguments["rows"]
    for name, change in {**WRONG_ROWS, **(WRONG_RING if ring is not None else {})}.items():
        if ring is None and is_unsaid(name, function, kv):
            continue
        with pytest.raises(ValueError):
            call(function, arguments, rows=change(pool, ring))


@pytest.mark.parametrize("function", ["write", "attend"])
@pytest.mark.parametrize("kv", STORAGES)
def test_counts_that_overflow_are_refused(kv, function):
    arguments = arguments_of(kv)
    for offset in (LARGEST, LARGEST - 1, -1, -LARGEST - 1):
        with pytest.raises(ValueError, match="offset"):
            call(function, arguments, offset=offset)
    if function == "attend":
        for tokens in (0, -1, LARGEST, -LARGEST - 1):
            with pytest.raises(ValueError, match=r"tokens (is )?"):
                call(function, arguments, tokens=tokens, queries=None)
    for offset in (2**31, -(2**31) - 1):
        with pytest.raises(TypeError):
            call(function, arguments, offset=offset)


@pytest.mark.parametrize("name", ["scores", "positions", "victim"])
@pytest.mark.parametrize("kv", STORAGES)
def test_a_ledger_that_does_not_fit_is_refused(name, kv):
    arguments = arguments_of(kv)
    ledger = arguments["ledger"]
    array = getattr(ledger, name)
    shorter = [array[0], array[:, :1], array[:0], array[..., :0], array[..., :-1]]
    for wrong in (*shorter, array.astype(mx.int8)):
        with pytest.raises(ValueError, match=r"ledger\.|head dim|words per row"):
            call("attend", arguments, ledger=ledger._replace(**{name: wrong}))


def test_a_format_of_another_dtype_is_refused():
    _q, k, v = random_tokens(1)
    victim = mx.full((1, 2), -1, mx.int32)
    for dtype in (mx.int8, mx.uint32, mx.bool_):
        with pytest.raises(ValueError, match="dtype is"):
            core.cache_write(
                None, k, v, victim, 0, SMALL, row_format=RowFormat(8, 8, 32, dtype)
            )
    rows = Rows(mx.zeros((1, 2, 8, 128), mx.int8))
    with pytest.raises(ValueError, match="pool has shape"):
        core.cache_write(rows, k, v, victim, 2, SMALL, row_format=DENSE)


def test_arrays_without_memory_of_their_own_are_no_way_around():
    """A broadcast costs nothing, whatever its shape says."""
    k = mx.zeros((1, 1, 1, 64))
    huge = mx.broadcast_to(k, (1, 2**16, 2**15, 64))
    with pytest.raises(ValueError, match="may be at most"):
        core.scaled_dot_product_attention_with_scores(huge, k, k, scale=1.0)
    wide = mx.broadcast_to(mx.zeros((1, 1, 1, 1)), (1, 1, 1, 2**30))
    victim = mx.full((1, 1), -1, mx.int32)
    with pytest.raises(ValueError, match="head dim"):
        core.cache_write(None, wide, wide, victim, 0, SMALL)
    words = mx.broadcast_to(mx.zeros((1, 1, 1, 1), mx.uint32), (1, 1, 1, 2**28))
    scales = mx.zeros((1, 1, 1, 1))
    with pytest.raises(ValueError, match="values has head dim"):
        core.scaled_dot_product_attention_with_scores(k, k, wide, scale=1.0)
    with pytest.raises(ValueError, match="keys has"):
        core.scaled_dot_product_attention_quantized_with_scores(
            k, words, scales, scales, words, scales, scales, scale=1.0, bits=4, group_size=32
        )
    many = mx.broadcast_to(k, (2**30, 2**26, 1, 64))
    none = mx.broadcast_to(victim, (2**30, 2**26))
    with pytest.raises(MemoryError):  # as many bytes as overflow to 0
        mx.eval(core.cache_write(None, many, many, none, 0, SMALL))
    thin = mx.broadcast_to(mx.random.normal((1, 2, 1, 1)), (1, 2, 1, 64))
    rows = core.cache_write(None, thin, thin, mx.full((1, 2), -1, mx.int32), 0, SMALL)
    assert mx.array_equal(rows.pool[:, :, :1, :64], thin).item()


@pytest.mark.parametrize("seen", [12, 60])  # with free rows, and where the last tokens ask
@pytest.mark.parametrize("kv", STORAGES)
def test_tokens_that_do_not_fit_leave_a_layers_cache_as_it_was(kv, seen):
    config = H2OConfig(48, recent_budget=8, recall=H2ORecall(ask=4))
    cache, twin = (STORAGES[kv](config, 32) for _ in range(2))
    q, k, v = random_tokens(seen, dim=32)
    for layer in (cache, twin):
        layer.update_and_fetch(k, v)
        layer.attend(q, scale=0.2, mask="causal")
    q, k, v = random_tokens(9, dim=32)
    for keys, values in [
        (k, v[:, :, :2]),
        (k[:, :, :2], v),
        (k[:, :1], v[:, :1]),
        (k[..., :16], v),
        (k, v[..., :16]),
        (k[:, :, :0], v[:, :, :0]),
        (mx.concatenate([k, k]), mx.concatenate([v, v])),
    ]:
        with pytest.raises(ValueError, match=r"keys has shape|tokens is 0"):
            cache._layer.write(keys, values)
        assert (cache.offset, cache.length) == (twin.offset, twin.length)
    for layer in (cache, twin):
        layer.update_and_fetch(k, v)
    first, second = (layer.attend(q, scale=0.2, mask="causal") for layer in (cache, twin))
    assert mx.array_equal(first, second)
    assert mx.array_equal(cache.positions, twin.positions)


def test_an_empty_cache_has_no_views_and_takes_no_ledger():
    layer = fast.layer_cache(SMALL, DENSE)
    with pytest.raises(ValueError, match="the cache is empty"):
        layer.views()
    with pytest.raises(ValueError, match="the cache has no ledger"):
        layer.ledger = filled("16", 20).ledger


@pytest.mark.parametrize("name", ["scores", "positions", "victim"])
def test_a_ledger_of_other_shapes_does_not_take_the_place_of_a_caches(name):
    cache = STORAGES["16"](SMALL, 32)
    _q, k, v = random_tokens(5, dim=32)
    cache.update_and_fetch(k, v)
    array = getattr(cache.ledger, name)
    for wrong in (array[..., :0], array[0], array.astype(mx.int8)):
        with pytest.raises(ValueError, match=rf"ledger\.{name}"):
            cache._layer.ledger = cache.ledger._replace(**{name: wrong})


REFUSED = {
    "an archive whose groups do not divide the head dims": ("16", 8, 40, 20, None),
    "rows whose groups do not divide the head dims": ("8", 16, 40, 20, None),
    "such rows in a prompt whose last tokens ask": ("8", 16, 40, 100, None),
    "such rows in a ring": ("heavy=8,recent=16", 16, 40, 20, None),
    "a folder without a parent": ("16", 8, 64, 20, "nowhere/else"),
}


@pytest.mark.parametrize("how", REFUSED)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_refused_first_write_leaves_an_empty_cache(how, backend, tmp_path):
    kv, bits, dim, tokens, store = REFUSED[how]
    folder = store and str(tmp_path / store / "chat")
    recall = H2ORecall(archive_bits=bits, ask=4, store=folder)
    cache = STORAGES[kv](H2OConfig(32, recent_budget=8, recall=recall), 32)
    cache.backend = BACKENDS[backend]
    with pytest.raises(ValueError):
        cache.update_and_fetch(*random_tokens(tokens, dim=dim)[1:])
    assert (cache.ledger, cache.rows, cache.archive) == (None, None, None)
    assert (cache.offset, cache.length, cache.nbytes, cache.empty()) == (0, 0, 0, True)
    assert type(cache).restored(cache.arrays, cache.header).empty()
    if store is None:
        mx.eval(step(cache, *random_tokens(tokens)))
        assert (cache.offset, cache.archive.length) == (tokens, tokens)
