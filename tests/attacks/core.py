"""Attacks on the core: caches, archives, their files, and calls, with something changed."""

import dataclasses
import gc
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import load_prompt_cache, save_prompt_cache

from h2o_py import fast
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.models import STORAGES
from h2o_py.rows import Ledger, RowFormat, Rows
from h2o_py.store import load_cache, save_cache
from tests.attacks import Attack, mutations
from tests.h2o_py import core
from tests.h2o_py.cases import fallback, random_tokens, step

POLICIES = [
    H2OConfig(32, sink_size=2, heavy_budget=10, recent_budget=12),
    H2OConfig(16, sink_size=0, heavy_budget=4, recent_budget=5, score="abs_logit"),
    H2OConfig(40, recent_budget=10, pinned=((6, 9),), score="softmax"),
    H2OConfig(32, recent_budget=8, recall=H2ORecall(ask=4, reach=3)),
    H2OConfig(24, recent_budget=8, recall=H2ORecall(ask=2, archive_bits=16)),
    H2OConfig(24, recent_budget=8, recall=H2ORecall(reach=0, archive_bits=8, limit=1 << 17)),
]


def some_cache(random: Random) -> H2OKVCache:
    """A cache of any storage that has seen some tokens."""
    cache = STORAGES[random.choice([*STORAGES])](random.choice(POLICIES), 32)
    cache.backend = random.choice([fast, fast, fallback])
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
    arrays, header = list(cache.arrays), cache.header.split("\n")
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        if random.random() < 0.6:
            at = random.randrange(len(arrays))
            arrays[at] = mutations.array(random, arrays[at])
        elif random.random() < 0.9:
            at = random.randrange(len(header))
            header[at] = mutations.line(random, header[at])
        else:
            values: list[Any] = random.choice([arrays, header])
            at = random.randrange(len(values))
            values[at : at + 1] = random.choice([[], [values[at]] * 2, values[:1]])
            if not values:
                return
    use(random, type(cache).restored(arrays, "\n".join(header)))


def change_other(random: Random, folder: Path) -> None:
    """The arrays of one cache with the strings of another."""
    first, second = some_cache(random), some_cache(random)
    use(random, type(second).restored(first.arrays, second.header))


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
    content = path.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    head, rest = content[8:length], content[length:]
    if random.random() < 0.5:  # the header's length goes along, or nothing of it is read
        head = mutations.data(random, head)
        content = len(head).to_bytes(8, "little") + head + rest
    elif random.random() < 0.5:
        content = content[:length] + mutations.data(random, rest)
    else:
        content = mutations.data(random, content)
    path.write_bytes(content)


# Calls


Arguments = dict[str, Any]


def change_call(random: Random, folder: Path) -> None:
    """One call of any function, with one to three of its arguments changed."""
    calls = [_write, _write, _attend, _attend, _attend, _attention, _quantized]
    function, arguments = random.choice(calls)(random)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        name = random.choice(sorted(arguments))
        arguments[name] = changed(random, arguments[name])
    mx.eval(function(**arguments))


def changed(random: Random, value: Any) -> Any:
    """An argument of a function, changed."""
    if isinstance(value, mx.array):
        return mutations.array(random, value)
    if isinstance(value, (Rows, Ledger)):
        fields = [name for name in value._fields if getattr(value, name) is not None]
        name = random.choice(fields)
        return value._replace(**{name: mutations.array(random, getattr(value, name))})
    if isinstance(value, RowFormat):
        bits = random.choice([4, 8, 16])
        changes = [
            {"key_bits": bits, "value_bits": bits},
            {"recent_bits": random.choice([None, 4, 8, 16])},
            {"group_size": random.choice([32, 64, 128])},
            {"dtype": random.choice(mutations.DTYPES)},
            {"rotated": not value.rotated},
        ]
        return dataclasses.replace(value, **random.choice(changes))
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return mutations.integer(random)
    if isinstance(value, float):
        return random.choice(mutations.FLOATS)
    return value


def _of_cache(random: Random) -> tuple[Any, Arguments]:
    cache = some_cache(random)
    cache.settle()
    assert cache.positions is not None
    batch, heads = cache.positions.shape[:2]
    shape: Any = {"batch": batch, "heads": 2 * heads, "kv_heads": heads, "dim": 32}
    dtype = cache.row_format.dtype if cache.row_format.has_ring else mx.float32
    tokens = random_tokens(random.choice([1, 1, 2, 9, 30]), dtype=dtype, **shape)
    state = {"rows": cache.rows, "config": cache.config, "row_format": cache.row_format}
    return (cache, tokens), {**state, "offset": cache.offset}


def _write(random: Random) -> tuple[Any, Arguments]:
    (cache, (_q, k, v)), arguments = _of_cache(random)
    new = {"keys": k, "values": v, "victim": cache.ledger.victim}
    return core.cache_write, {**arguments, **new, "copy": random.random() < 0.5}


def _attend(random: Random) -> tuple[Any, Arguments]:
    (cache, (q, k, v)), arguments = _of_cache(random)
    rows = core.cache_write(
        **arguments, keys=k, values=v, victim=cache.ledger.victim, copy=True
    )
    count = rows.pool.shape[2]
    masks = [None, "causal", mx.zeros((q.shape[2], count)), mx.ones((1, 1, 1, 1), mx.bool_)]
    new = {"rows": rows, "ledger": cache.ledger, "tokens": q.shape[2], "scale": 0.2}
    new |= {"queries": random.choice([q, q, None]), "mask": random.choice(masks)}
    new["sinks"] = random.choice([None, mx.zeros((q.shape[1],))])
    function = random.choice([core.cache_attend, _on_a_gpu("cache_attend")])
    return function, {**arguments, **new}


def _attention(random: Random) -> tuple[Any, Arguments]:
    q, k, v = random_tokens(random.choice([1, 2, 9]), dim=32)
    masks = [None, "causal", mx.zeros((1, k.shape[2]))]
    options = {"scale": 0.2, "mask": random.choice(masks)}
    name = "scaled_dot_product_attention_with_scores"
    function = random.choice([getattr(core, name), _on_a_gpu(name)])
    return function, {"queries": q, "keys": k, "values": v, **options}


def _quantized(random: Random) -> tuple[Any, Arguments]:
    q, k, v = random_tokens(random.choice([1, 2, 9]), dim=64)
    bits, group = random.choice([4, 8]), random.choice([32, 64])
    arguments = {"queries": q, "scale": 0.2, "bits": bits, "group_size": group, "mask": None}
    for name, array in (("key", k), ("value", v)):
        parts = mx.quantize(array, group, bits)
        names = (f"{name}_words", f"{name}_scales", f"{name}_biases")
        arguments |= zip(names, parts, strict=True)
    return core.scaled_dot_product_attention_quantized_with_scores, arguments


def _on_a_gpu(name: str) -> Any:
    """What a GPU runs for calls that the kernels do not take, after the same checks."""

    def call(**arguments: Any) -> Any:
        getattr(core, name)(**arguments)
        return getattr(fallback, name)(**arguments)

    return call


# Archives


def recalling_cache(random: Random, store: str | None = None) -> H2OKVCache:
    """A cache of any storage that has evicted and recalled."""
    recall = H2ORecall(
        ask=random.choice([1, 4]),
        reach=random.choice([0, 1, 6, 64]),
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
    """A chunk whose last tokens read, with one to three of attention's arguments changed."""
    cache = recalling_cache(random)
    tokens = random.choice([2, 5, 9])
    q, k, v = random_tokens(tokens, dim=32)
    masks = [None, "causal", mx.zeros((tokens, 32 + tokens)), mx.ones((1, 1), mx.bool_)]
    arguments: Any = {
        "queries": q,
        "scale": 0.2,
        "mask": random.choice(masks),
        "sinks": random.choice([None, mx.zeros((4,))]),
    }
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        name = random.choice(sorted(arguments))
        arguments[name] = changed(random, arguments[name])
    cache.update_and_fetch(k, v)
    mx.eval(cache.attend(**arguments), cache.arrays)


def use_in_threads(random: Random, folder: Path) -> None:
    """Caches in threads, and what is held of them until recall has ended and after."""
    caches = [recalling_cache(random) for _ in range(2)]
    held = [cache.archive for cache in caches]
    mx.eval([cache.arrays for cache in caches])
    is_done = threading.Event()

    def generate(cache: H2OKVCache, seed: int) -> None:
        with suppress(*OF_THE_BINDING), mx.stream(mx.new_stream(mx.cpu)):
            use(Random(seed), cache)
            for _ in range(2):  # without attention, which ends recall
                cache.update_and_fetch(*random_tokens(9, dim=32)[1:])

    def look() -> None:
        for cache, archive in zip(caches, held, strict=True):
            for name in ("rows", "ledger", "archive", "nbytes", "offset"):
                getattr(cache, name)
            with suppress(ValueError):  # it has ended
                assert archive.nbytes >= archive.length - archive.first >= 0
                assert archive.mark is None

    def look_until_done() -> None:
        while not is_done.is_set():
            look()

    seeds = [random.randrange(2**32) for _ in caches]
    threads = [
        *(
            threading.Thread(target=generate, args=both)
            for both in zip(caches, seeds, strict=True)
        ),
        threading.Thread(target=look_until_done),
    ]
    for thread in threads:
        thread.start()
    for thread in threads[:-1]:
        thread.join()
    is_done.set()
    threads[-1].join()
    look()


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
            lines = header.split("\n")
            at = random.randrange(max(0, len(lines) - 9), len(lines))  # those of the archive
            lines[at] = mutations.line(random, lines[at])
            caches = [kind.restored(arrays, "\n".join(lines), str(place / "archive"))]
        for cache in caches:
            use(random, cache)
        del caches
        gc.collect()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _change_files(random: Random, folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for _ in range(random.choice([1, 1, 2])):
        if not files:
            return
        path, source = random.choice(files), random.choice(files)
        kind = random.randrange(6)
        if kind == 0:
            path.unlink(missing_ok=True)
        elif kind == 1 and path.exists() and source.exists():
            path.write_bytes(source.read_bytes())
        elif kind == 2:
            path.unlink(missing_ok=True)
            path.mkdir(exist_ok=True)
            return
        elif path.exists():
            path.write_bytes(mutations.data(random, path.read_bytes()))


OF_THE_BINDING = (ValueError, TypeError, RuntimeError, MemoryError)
ATTACKS = (
    Attack(change_call, 4, OF_THE_BINDING),
    Attack(change_state, 6, (ValueError, MemoryError)),  # of broadcast arrays
    Attack(change_other, 1, (ValueError,)),
    Attack(change_file, 1, (ValueError,)),
    Attack(change_prompt_file, 1, (ValueError, RuntimeError)),  # MLX's, of what it cannot read
    Attack(change_recall, 2, OF_THE_BINDING),
    Attack(change_folder, 1, (ValueError,)),
    Attack(use_in_threads, 1, OF_THE_BINDING),
)
