"""Archives, in memory and in files, and recalls from them, with something changed."""

from __future__ import annotations

import gc
import json
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx

from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.models import STORAGES
from h2o_py.store import load_cache, save_cache
from tests.attacks import mutations
from tests.attacks.calls import changed
from tests.attacks.saved import use
from tests.h2o_py import core
from tests.h2o_py.cases import fallback, random_tokens, saved_of, step


def recalling_cache(random: Random, store: str | None = None) -> H2OKVCache:
    """A cache of any storage that has evicted and recalled."""
    recall = H2ORecall(
        rows=random.choice([1, 6]),
        spread=random.choice([0, 8]),
        ask=random.choice([1, 4]),
        archive_bits=random.choice([4, 8, 16]),
        limit=random.choice([0, 0, 1 << 17]),
        store=store,
    )
    cache = STORAGES[random.choice([*STORAGES])](
        H2OConfig(32, recent_budget=8, recall=recall), 32
    )
    for count in (*random.choices([7, 40, 300], k=2), *[1] * random.choice([0, 3])):
        mx.eval(step(cache, *random_tokens(count, dim=32)))
    return cache


def change_recall(random: Random, folder: Path) -> None:
    """One recall with one to three of its arguments changed."""
    cache = recalling_cache(random)
    asks = random.choice([1, 3])
    q, k, _v = random_tokens(asks, dim=32)
    masks = [None, "causal", mx.zeros((asks, asks)), mx.ones((1, asks), mx.bool_)]
    given: Any = {
        "queries": q,
        "keys": k,
        "rows": cache.rows,
        "ledger": cache.ledger,
        "archive": cache.archive,
        "offset": cache.offset,
        "config": cache.config,
        "row_format": cache.row_format,
        "scale": 0.2,
        "mask": random.choice(masks),
        "sinks": random.choice([None, mx.zeros((4,))]),
    }
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        name = random.choice(sorted(given))
        given[name] = changed(random, given[name])
    recalled = random.choice([core.recall, fallback.recall])(**given)
    mx.eval([each for each in (*recalled.rows, *recalled.ledger) if each is not None])


def change_archive(random: Random, folder: Path) -> None:
    """An archive restored from changed arrays and values, and used."""
    cache = recalling_cache(random)
    archive = cache.archive
    arrays, saved = list(archive.arrays), saved_of(archive)
    numbers = {"key_dim": 32, "length": archive.length}
    for _ in range(random.choice([0, 1, 1, 2])):
        kind = random.randrange(4)
        if kind == 0:
            name = random.choice(["bits", "first", "group_size"])
            saved = {**saved, name: mutations.integer(random)}
        elif kind == 1:
            name = random.choice(sorted(numbers))
            numbers[name] = mutations.integer(random)
        elif arrays:
            at = random.randrange(len(arrays))
            arrays[at] = mutations.array(random, arrays[at])
    recall = cache.config.recall
    assert recall is not None
    restored = core.Archive.restored(arrays, saved, recall, **numbers)
    for _ in range(3):
        kind = random.randrange(4)
        if kind == 0:
            restored.trim(random.choice([0, 1, 7, 300, mutations.integer(random)]))
        elif kind == 1:
            _q, k, v = random_tokens(random.choice([1, 70, 300]), dim=32)
            key_sum = mx.zeros((1, 2, 32))
            new = [mutations.array(random, each) for each in (k, v, key_sum)]
            given = [random.choice(pair) for pair in zip((k, v, key_sum), new, strict=True)]
            restored.append(*given, core._native(cache.config))
        else:
            begin = random.choice([restored.first, mutations.integer(random)])
            end = random.choice([restored.length, begin + 1, mutations.integer(random)])
            mx.eval(restored.rows(begin, end))
        mx.eval(restored.arrays)
        assert restored.nbytes >= 0


def change_folder(random: Random, folder: Path) -> None:
    """The files of an archive, or what a saved cache says of them, changed."""
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        cache = recalling_cache(random, str(place / "archive"))
        save_cache(place / "cache.safetensors", [cache])
        state = (cache.arrays, cache.header, type(cache))
        del cache
        gc.collect()
        if random.random() < 0.7:
            _change_files(random, place / "archive")
            caches = load_cache(place / "cache.safetensors", place / "archive")[0]
        else:
            arrays, header, kind = state
            values = json.loads(header[-1])
            if random.random() < 0.5 and "files" in values:
                name = random.choice(["session", "count", "chain"])
                others = [*mutations.JSON_VALUES, mutations.integer(random), "0" * 64]
                values["files"] = {**values["files"], name: random.choice(others)}
                header = (*header[:-1], json.dumps(values))
            else:
                header = (*header[:-1], mutations.text(random, header[-1]))
            caches = [kind.restored(arrays, header, str(place / "archive"))]
        for each in caches:
            use(random, each)
        del caches
        gc.collect()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _change_files(random: Random, folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for _ in range(random.choice([1, 1, 2])):
        if not files:
            return
        path, other = random.choice(files), random.choice(files)
        kind = random.randrange(6)
        if kind == 0:
            path.unlink(missing_ok=True)
        elif kind == 1 and path.exists() and other.exists():
            path.write_bytes(other.read_bytes())
        elif kind == 2:
            path.unlink(missing_ok=True)
            path.mkdir(exist_ok=True)
            return
        elif path.exists():
            path.write_bytes(mutations.data(random, path.read_bytes()))
