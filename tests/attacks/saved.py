"""Saved caches and their files, changed and loaded; what loads is used."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import load_prompt_cache, save_prompt_cache

from h2o_py import fast
from h2o_py.cache import H2OKVCache, join
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.models import STORAGES
from h2o_py.store import load_cache, save_cache
from tests.attacks import mutations
from tests.h2o_py.cases import fallback, random_tokens, step

POLICIES = [
    H2OConfig(32, sink_size=2, heavy_budget=10, recent_budget=12),
    H2OConfig(16, sink_size=0, heavy_budget=4, recent_budget=5, score="abs_logit", novelty=0.0),
    H2OConfig(40, recent_budget=10, novelty_margin=0.05, pinned=((6, 9),), score="softmax"),
    H2OConfig(32, recent_budget=8, recall=H2ORecall(rows=6, ask=4, every=3)),
    H2OConfig(24, recent_budget=8, recall=H2ORecall(rows=4, ask=2, archive_bits=16)),
    H2OConfig(24, recent_budget=8, recall=H2ORecall(rows=4, archive_bits=8, limit=1 << 17)),
]


def some_cache(random: Random) -> H2OKVCache:
    """A cache of any storage that has seen some tokens."""
    cache = STORAGES[random.choice([*STORAGES])](random.choice(POLICIES), 32)
    cache.backend = random.choice([fast, fast, fallback])
    if random.random() < 0.5:
        join([cache])  # which saves what its last prompt chose
    batch = random.choice([1, 1, 2])
    dtype = random.choice([mx.float32, mx.float16, mx.bfloat16])
    for count in random.choices(
        [1, 1, 2, 7, 20, 50, 300], [4] * 6 + [1], k=random.randrange(1, 6)
    ):
        mx.eval(step(cache, *random_tokens(count, batch=batch, dim=32, dtype=dtype)))
    if random.random() < 0.2:
        tokens = random_tokens(random.choice([1, 5]), batch=batch, dim=32, dtype=dtype)
        cache.update_and_fetch(*tokens[1:])
    return cache


def use(random: Random, cache: Any) -> None:
    """Do with a cache what a model does."""
    cache.backend = random.choice([fast, fast, fallback])
    batch = 1 if cache.positions is None else cache.positions.shape[0]
    heads = 2 if cache.positions is None else cache.positions.shape[1]
    shape: Any = {"batch": batch, "heads": 2 * heads, "kv_heads": heads, "dim": 32}
    if batch * heads > 64:  # a test's memory is not the subject
        return
    for _ in range(random.randrange(1, 6)):
        kind = random.randrange(8)
        if kind == 0:
            cache.trim(mutations.integer(random))
        elif kind == 1:
            mx.eval([] if cache.keys is None else [cache.keys, cache.values])
        elif kind == 2:
            cache = type(cache).restored(cache.arrays, cache.header)
        elif kind == 3:
            cache.update_and_fetch(*random_tokens(random.choice([1, 9]), **shape)[1:])
            cache.settle()
        else:
            mx.eval(step(cache, *random_tokens(random.choice([1, 1, 2, 9, 30]), **shape)))
        if cache.ledger is not None:
            mx.eval(cache.arrays)


def change_state(random: Random, folder: Path) -> None:
    """Arrays and strings changed in memory."""
    cache = some_cache(random)
    arrays, header = list(cache.arrays), list(cache.header)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        if random.random() < 0.6:
            at = random.randrange(len(arrays))
            arrays[at] = mutations.array(random, arrays[at])
        elif random.random() < 0.9:
            at = random.randrange(len(header))
            header[at] = mutations.text(random, header[at])
        else:
            which: list[Any] = random.choice([arrays, header])
            at = random.randrange(len(which))
            which[at : at + 1] = random.choice([[], [which[at]] * 2, which[:1]])
            if not which:
                return
    use(random, type(cache).restored(arrays, header))


def change_other(random: Random, folder: Path) -> None:
    """The arrays of one cache with the strings of another."""
    one, other = some_cache(random), some_cache(random)
    use(random, type(other).restored(one.arrays, other.header))


def change_file(random: Random, folder: Path) -> None:
    """The bytes of a file of ours."""
    path = folder / "cache.safetensors"
    save_cache(path, [some_cache(random) for _ in range(random.choice([1, 2]))])
    _change_bytes(random, path)
    for cache in load_cache(path)[0]:
        use(random, cache)


def change_prompt_file(random: Random, folder: Path) -> None:
    """The bytes of a file that mlx_lm writes and reads."""
    path = folder / "prompt.safetensors"
    save_prompt_cache(str(path), [some_cache(random)])
    _change_bytes(random, path)
    try:
        caches = load_prompt_cache(str(path))
    except (KeyError, IndexError, TypeError, AttributeError, UnicodeDecodeError):
        return  # mlx_lm's own reading
    for cache in caches:
        if isinstance(cache, H2OKVCache):
            use(random, cache)


def _change_bytes(random: Random, path: Path) -> None:
    whole = path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    head, rest = whole[8:length], whole[length:]
    if random.random() < 0.5:  # the header's length goes along, or nothing of it is read
        head = mutations.data(random, head)
        whole = len(head).to_bytes(8, "little") + head + rest
    elif random.random() < 0.5:
        whole = whole[:length] + mutations.data(random, rest)
    else:
        whole = mutations.data(random, whole)
    path.write_bytes(whole)
