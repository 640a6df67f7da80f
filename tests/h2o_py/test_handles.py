"""What is held of a cache does not outlive it, and threads wait for each other."""

import contextlib
import gc
import threading

import mlx.core as mx
import pytest

from h2o_py._compiled import ext
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.errors import H2ORecallWarning, H2OStateError
from tests.h2o_py.cases import BACKENDS, random_tokens, step
from tests.messages import says

OF_AN_ARCHIVE = ("mark", "bits", "length", "first", "nbytes", "dtype", "group_size")


def recalling(name="fast", store=None):
    mx.random.seed(1)
    recall = H2ORecall(ask=4, store=store and str(store))
    config = H2OConfig(24, sink_size=2, heavy_budget=10, recent_budget=8, recall=recall)
    cache = H2OKVCache(config, BACKENDS[name])
    for tokens in (300, 1, 9):
        mx.eval(step(cache, *random_tokens(tokens)))
    return cache


def end_recall(cache):
    """Let tokens arrive whose attention does not pass through the cache."""
    cache.expects_queries = False
    cache.update_and_fetch(*random_tokens(9)[1:])
    with pytest.warns(H2ORecallWarning):
        cache.update_and_fetch(*random_tokens(9)[1:])
    assert cache.archive is None


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr("h2o_py.errors._reported", set())


@pytest.mark.parametrize("name", BACKENDS)
def test_an_archive_that_is_held_is_refused_once_recall_has_ended(name):
    cache = recalling(name)
    archive = cache.archive
    assert [getattr(archive, part) for part in OF_AN_ARCHIVE][1:3] == [8, 310]
    end_recall(cache)
    for part in OF_AN_ARCHIVE:
        with pytest.raises(H2OStateError) as error:
            getattr(archive, part)
        assert error.value.code == "archive_ended"
    says(error.value)


def test_an_archive_that_is_held_keeps_its_cache(tmp_path):
    cache = recalling(store=tmp_path / "chat")
    loaded = type(cache).restored(recalling().arrays, recalling().header)
    archives = [cache.archive, loaded.archive]
    sizes = [archive.nbytes for archive in archives]
    loaded.backend = BACKENDS["fast"]  # an empty cache takes its place
    del cache
    gc.collect()
    assert [archive.length for archive in archives] == [310, 310]
    assert [archive.nbytes for archive in archives] == sizes


ACCESSES = {
    **{
        name: lambda layer, name=name: getattr(layer, name)
        for name in (
            *("ledger", "rows", "archive", "expects_queries", "offset", "length"),
            *("unattended", "archive_reads", "nbytes", "is_empty", "is_trimmable", "dtype"),
        )
    },
    **{
        name: lambda layer, name=name: getattr(layer, name)()
        for name in ("settle", "share", "copy", "arrays", "header", "views")
    },
    "trim": lambda layer: layer.trim(0),
    "expects_queries = ": lambda layer: setattr(layer, "expects_queries", True),
}


def test_every_access_from_a_thread_waits_until_the_cache_is_free():
    cache = recalling()
    layer, archive = cache._layer, cache.archive
    ledger = tuple(cache.ledger)
    accesses = [
        *ACCESSES.values(),
        *(lambda _, part=part: getattr(archive, part) for part in OF_AN_ARCHIVE),
        lambda layer: setattr(layer, "ledger", ledger),
        lambda layer: layer.write(*random_tokens(1)[1:]),
    ]
    begun = threading.Barrier(len(accesses) + 1)
    order = []

    def use(access):
        begun.wait()
        with contextlib.suppress(RuntimeError):  # MLX's, of arrays that another thread queued
            access(layer)
        order.append("used")

    threads = [threading.Thread(target=use, args=[access]) for access in accesses]

    def work():
        for thread in threads:
            thread.start()
        begun.wait()
        threads[0].join(0.2)  # long enough for all of them, if they did not wait
        order.append("free")

    ext.while_in_use(layer, work)
    for thread in threads:
        thread.join()
    assert order == ["free", *["used"] * len(accesses)]
    assert {name for name in dir(layer) if name[0] != "_"} == {
        *(name.partition(" ")[0] for name in ACCESSES), "write", "attend", "restored"
    }  # fmt: skip
