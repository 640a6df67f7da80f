"""Saved caches that were damaged or made to harm: each is refused, and nothing is taken."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import load_prompt_cache, save_prompt_cache

from h2o_py.errors import H2OConfigError, H2OError, H2OFileError, H2OStateError
from h2o_py.models import STORAGES
from h2o_py.storages import STORAGE_BITS
from h2o_py.store import load_cache, save_cache
from tests.h2o_py.cases import (
    SMALL,
    assert_same_state,
    changed,
    in_pairs,
    put,
    random_tokens,
    step,
)

LARGEST = 2**31 - 1
NAMES = ("scores", "positions", "victim")


def filled(kv, tokens, unattended=0):
    mx.random.seed(1)
    cache = STORAGES[kv](SMALL, 32)
    for count in (tokens - 3, 1, 1, 1):
        mx.eval(step(cache, *random_tokens(count)))
    if unattended:
        cache.update_and_fetch(*random_tokens(unattended)[1:])
    return cache


@pytest.mark.parametrize(
    ("kv", "tokens", "unattended"), in_pairs(STORAGES, (5, 12, 20, 32, 33, 70), (0, 1, 7))
)
def test_what_a_cache_saves_is_taken(kv, tokens, unattended):
    cache = filled(kv, tokens, unattended)
    twin = type(cache).restored(cache.arrays, cache.header)
    assert twin.header == cache.header
    assert (twin.offset, twin.length) == (cache.offset, cache.length)
    for some in (cache, twin):
        some.settle()
    assert_same_state(twin, cache, 0)
    empty = STORAGES[kv](SMALL, 32)
    assert type(cache).restored(empty.arrays, empty.header).empty()


@pytest.mark.parametrize("tokens", [5, 12, 13, 20, 70])
@pytest.mark.parametrize("kv", [kv for kv, bits in STORAGE_BITS.items() if bits.recent])
def test_rows_that_are_not_in_use_are_not_saved(kv, tokens):
    """Their memory may hold anything of the process; an empty array cannot be saved by 0.31."""
    cache = filled(kv, tokens)
    pool, ring = cache.arrays[0], cache.arrays[2]  # the keys
    assert (pool.shape[2], ring.shape[2]) == (min(max(1, tokens - 12), 20), min(tokens, 12))
    assert pool.any().item() == (tokens > 12)
    twin = type(cache).restored(cache.arrays, cache.header)
    for count in (1, 7, 1, 20, 1):
        new = random_tokens(count)
        assert mx.array_equal(step(twin, *new), step(cache, *new)).item()


HOSTILE_ARRAYS = {
    "positions": {
        "twice the same": lambda a: put(a, (0, 1, 3), a[0, 1, 4].item()),
        "beyond the tokens": lambda a: put(a, (0, 1, 3), 70),
        "largest": lambda a: put(a, (0, 0, 0), LARGEST),
        "negative": lambda a: put(a, (0, 0, 5), -7),
        "an empty row": lambda a: put(a, (0, 0, -1), -1),
        "all the same": mx.zeros_like,
        "all largest": lambda a: mx.full(a.shape, LARGEST, mx.int32),
    },
    "victim": {
        "beyond the rows": lambda a: put(a, (0, 1), 32),
        "none": lambda a: put(a, (0, 0), -1),
        "smallest": lambda a: put(a, (0, 0), -LARGEST - 1),
    },
    "scores": {
        "not a number": lambda a: put(a, (0, 0, 1), float("nan")),
        "infinite": lambda a: put(a, (0, 0, 1), float("inf")),
        "negative": lambda a: put(a, (0, 0, 1), -0.5),
    },
}
HOSTILE_SHAPES = {
    "without a dimension": lambda a: a[0],
    "shorter": lambda a: a[..., :-1],
    "longer": lambda a: mx.concatenate([a, a], axis=-1),
    "of fewer heads": lambda a: a[:, :1],
    "of more sequences": lambda a: mx.concatenate([a, a]),
    "empty": lambda a: a[:0],
    "of another dtype": lambda a: a.astype(mx.int8),
}


def refused(cache, arrays, header, error=H2OStateError):
    """Both ways to load are refused, and leave a cache that has something empty."""
    with pytest.raises(error) as caught:
        type(cache).restored(arrays, header)
    assert caught.value.what()
    target = filled("16", 40) if type(cache).FORMAT == "h2o.dense.2" else cache.copy()
    with pytest.raises(error):
        target.arrays, target.header = arrays, header
    assert (target.empty(), target.offset, target.length) == (True, 0, 0)
    return caught.value


@pytest.mark.parametrize("name", HOSTILE_ARRAYS)
@pytest.mark.parametrize("kv", STORAGES)
def test_contents_that_no_cache_has_are_refused(kv, name):
    cache = filled(kv, 70)
    place = len(cache.arrays) - len(NAMES) + NAMES.index(name)
    for how, change in HOSTILE_ARRAYS[name].items():
        arrays = cache.arrays
        arrays[place] = change(arrays[place])
        error = refused(cache, arrays, cache.header)
        assert error.values["part"] == name, how


@pytest.mark.parametrize("kv", STORAGES)
def test_shapes_that_contradict_are_refused(kv):
    cache = filled(kv, 70)
    for place in range(len(cache.arrays)):
        for how, change in HOSTILE_SHAPES.items():
            arrays = cache.arrays
            arrays[place] = change(arrays[place])
            is_row = place < len(arrays) - len(NAMES)
            if is_row and kv == "16" and how in ("shorter", "longer"):
                continue  # rows of other keys and values
            if is_row and kv in ("8", "4", "k8v4") and how == "longer":
                continue
            refused(cache, arrays, cache.header)
    for wrong in ([], cache.arrays[:-1], [*cache.arrays, cache.arrays[0]]):
        refused(cache, wrong, cache.header)


@pytest.mark.parametrize("kv", STORAGES)
def test_counts_that_contradict_are_refused(kv):
    cache = filled(kv, 70)
    texts = ("", "-1", "1e3", "0x46", " 70", "7_0", "\u0667\u0660", "71", "31", "2147483647")
    for name in ("offset", "length", "unattended"):
        for text in (*texts, "9" * 5000):
            if (name, text) == ("offset", "71"):  # for the ledger only a ring can tell
                continue
            refused(cache, cache.arrays, changed(cache.header, **{name: text}))
        refused(cache, cache.arrays, changed(cache.header, **{name: None}))
    lines = cache.header.split("\n")
    for header in (lines[1:], [*lines, "x"], [*lines, lines[1]], lines[:1], [], ["\ud800"]):
        refused(cache, cache.arrays, "\n".join(header))


HOSTILE_SETTINGS = [
    {"max_size": ""}, {"max_size": None}, {"max_size": "true"}, {"max_size": "33"},
    {"max_size": str(LARGEST)}, {"max_size": "9" * 5000},
    {"max_size": "31", "recent_budget": "12"}, {"recent_budget": "2147483648"},
    {"pinned": "5"}, {"pinned": "[[1, 2]]"},
    {"pinned": "1,2,3"}, {"pinned": "4,2"}, {"score": "{}"}, {"score": "\ud800"},
    {"more": "1"}, {"x" * (1 << 20): "1"}, {"decay": "0.9"},
    {"reach_of_recall": "-1"}, {"more_of_recall": "1"},
]  # fmt: skip


@pytest.mark.parametrize("kv", STORAGES)
def test_settings_that_no_cache_writes_are_refused(kv):
    cache = filled(kv, 70)
    for settings in HOSTILE_SETTINGS:
        refused(cache, cache.arrays, changed(cache.header, **settings), H2OError)


@pytest.mark.parametrize("kv", [kv for kv in STORAGES if kv != "16"])
def test_a_row_format_that_contradicts_the_rows_is_refused(kv):
    cache = filled(kv, 70)
    for name in ("key_bits", "value_bits", "group_size", "dtype", "recent_bits", "rotated"):
        for value in (None, "", "1 ", "8.0", "true", "[8]", "9" * 30, "int8", "7"):
            refused(cache, cache.arrays, changed(cache.header, **{name: value}))
    refused(cache, cache.arrays, changed(cache.header, dtype="float16"))
    other = "h2o.mixed.2" if type(cache).FORMAT == "h2o.quantized.2" else "h2o.quantized.2"
    swapped = cache.header.replace(type(cache).FORMAT, other)
    error = refused(cache, cache.arrays, swapped)
    assert (error.code, error.values["known"]) == ("other_state_format", type(cache).FORMAT)


@pytest.mark.parametrize("kv", STORAGES)
def test_files_that_were_changed_are_refused_by_name(kv, tmp_path):
    cache, path = filled(kv, 70), str(tmp_path / "cache.safetensors")
    save_cache(path, [filled(kv, 20), cache])
    arrays, header = mx.load(path, return_metadata=True)
    mx.eval(arrays)  # before the file is another one
    positions = f"1.{len(cache.arrays) - 2}"
    hostile = {**arrays, positions: mx.zeros_like(arrays[positions])}
    mx.save_safetensors(path, hostile, header)
    with pytest.raises(H2OStateError) as error:
        load_cache(path)
    assert error.value.code == "damaged_positions"
    assert "cache 1" in error.value.where
    for name in ("layers", "metadata"):
        for text in ("", "{", "7", "[7]", '[""]', "[[]]", '{"a": 1}', "[" * 100_000):
            mx.save_safetensors(path, arrays, {**header, name: text})
            with pytest.raises(H2OFileError):
                load_cache(path)
    fewer = {name: array for name, array in arrays.items() if name != "1.2"}
    mx.save_safetensors(path, fewer, header)
    with pytest.raises(H2OStateError):
        load_cache(path)


def test_a_file_that_is_cut_or_none_is_refused(tmp_path):
    path = tmp_path / "cache.safetensors"
    save_cache(path, [filled("16", 20)])
    content = path.read_bytes()
    for length in (0, 4, 8, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(H2OFileError) as error:
            load_cache(path)
        assert error.value.code == "unreadable_cache_file"
    path.write_bytes(b"\xff" * 8 + content[8:])
    with pytest.raises(H2OFileError) as error:
        load_cache(path)
    assert error.value.code == "unreadable_cache_file"


def test_shapes_whose_bytes_overflow_are_refused():
    """Read from such a file as an array of many rows and no bytes."""
    cache = filled("16", 5)
    rows = mx.broadcast_to(mx.zeros((1, 1, 1, 1)), (4, 2, 5, 2**20))
    with pytest.raises(H2OStateError):
        type(cache).restored([rows, *cache.arrays[1:]], cache.header)


@pytest.mark.parametrize("kv", STORAGES)
def test_prompt_cache_files_of_mlx_lm_are_checked_too(kv, tmp_path):
    cache, path = filled(kv, 70), str(tmp_path / "prompt.safetensors")
    save_prompt_cache(path, [cache])
    arrays, header = mx.load(path, return_metadata=True)
    mx.eval(arrays)
    positions = f"0.{len(cache.arrays) - 2}"
    arrays[positions] = mx.zeros_like(arrays[positions])
    mx.save_safetensors(path, arrays, header)
    with pytest.raises(H2OStateError, match="positions"):
        load_prompt_cache(path)


def test_taking_back_nothing_of_a_full_cache_keeps_its_next_victim():
    cache = filled("16", 32)
    victim = cache.ledger.victim.tolist()
    assert cache.is_trimmable()
    assert cache.trim(0) == 0
    assert cache.ledger.victim.tolist() == victim
    mx.eval(step(cache, *random_tokens(1)))
    assert (mx.min(cache.positions, axis=-1) == 0).all().item()


def test_a_configuration_of_a_file_has_the_errors_of_any_other():
    cache = filled("16", 70)
    for settings, code in (
        ({"max_sise": "1"}, "unknown_field"),
        ({"score": "peek"}, "unknown_choice"),
        ({"sink_size": "-1"}, "out_of_range"),
        ({"max_size": "2"}, "budgets_exceed_max_size"),
    ):
        header = changed(cache.header, **settings)
        error = refused(cache, cache.arrays, header, H2OConfigError)
        assert error.code == code
