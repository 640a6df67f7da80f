"""Saved caches with recall: what they say, that they go on as before, what is refused."""

import warnings

import mlx.core as mx
import pytest

from h2o_py import H2OConfig, H2OError, H2ORecall
from h2o_py.cache import H2OKVCache
from h2o_py.models import STORAGES
from tests.h2o_py.cases import changed, put, random_tokens, step
from tests.h2o_py.test_recall import config, filled, same


def test_the_header_says_all_of_a_cache_but_its_arrays():
    cache = filled(H2OConfig(24, sink_size=2, heavy_budget=10, recent_budget=8))
    assert len(cache.arrays) == 5
    assert cache.header == (
        "h2o.dense.2\noffset=52\nlength=24\nunattended=0\nmax_size=24\nsink_size=2\n"
        "heavy_budget=10\nrecent_budget=8\nscore=peak\npinned="
    )


def test_a_cache_whose_recall_ended_is_saved_as_one_without():
    cache = filled()
    _, keys, values = random_tokens(9)
    cache.update_and_fetch(keys, values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cache.settle()
    header, arrays = cache.header, cache.arrays
    assert "archive." not in header
    restored = H2OKVCache.restored(arrays, header)
    assert restored.archive is None
    mx.eval(step(restored, *random_tokens(30)))
    assert restored.archive is None


def test_an_empty_cache_starts_to_recall_after_loading():
    restored = H2OKVCache.restored(H2OKVCache(config()).arrays, H2OKVCache(config()).header)
    mx.eval(step(restored, *random_tokens(40)))
    assert restored.archive.length == 40


def test_a_file_names_no_folder_to_write_to(tmp_path):
    cache = filled()
    assert "store" not in cache.header
    header = changed(cache.header, store_of_recall=str(tmp_path / "elsewhere"))
    restored = H2OKVCache.restored(cache.arrays, header)
    assert restored.config.recall == H2ORecall(ask=4)
    mx.eval(step(restored, *random_tokens(600)))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_archive_is_refused():
    cache = filled(chunks=(300, 1))
    arrays, header = cache.arrays, cache.header
    assert header.split("\n")[-4:] == [
        "archive.first=0", "archive.bits=8", "archive.group_size=32",
        "archive.dtype=float32",
    ]  # fmt: skip
    headers = [
        changed(header, **{f"{key}_of_archive": value})
        for key, value in (
            ("bits", "5"), ("bits", "4"), ("bits", "true"), ("dtype", "int8"), ("first", "256"),
            ("first", "-256"), ("first", "1"), ("first", "9" * 22), ("group_size", "48"),
            ("more", "1"), ("bits", None), ("dtype", None), ("first", None), ("count", "1"),
        )
    ]  # fmt: skip
    damaged = [(arrays, text) for text in (*headers, f"{header}\n{header}")]
    damaged += [(arrays[:-1], header), ([*arrays, arrays[-1]], header)]
    without = (line for line in header.split("\n") if not line.startswith("recall."))
    damaged.append((arrays, "\n".join(without)))
    for at, replacement in (
        (5, arrays[5][:, :, :-1]),
        (5, arrays[5][..., :-1]),
        (5, arrays[5].astype(mx.float32)),
        (5, arrays[6]),
        (6, arrays[6][:, :1]),
        (6, arrays[5]),
    ):
        damaged.append(([*arrays[:at], replacement, *arrays[at + 1 :]], header))
    for number, (some, strings) in enumerate(damaged):
        with pytest.raises(H2OError) as error:
            H2OKVCache.restored(some, strings)
        assert error.value.code.startswith(("damaged", "other_state")), number


@pytest.mark.parametrize("chunks", [(1, 3, 3), (2, 5), (5, 1, 1), (4, 2, 1, 2, 5)])
@pytest.mark.parametrize("recall", [None, H2ORecall(ask=1)])
def test_what_left_a_ring_may_stand_in_any_order(chunks, recall):
    """Found at random: the third chunk moves positions 3, 1 and 2 to the pool."""
    settings = H2OConfig(7, sink_size=0, heavy_budget=0, recent_budget=3, recall=recall)
    cache = filled(settings, chunks, lambda config: STORAGES["heavy=8,recent=16"](config, 64))
    assert same(cache, type(cache).restored(cache.arrays, cache.header))
    positions = put(cache.arrays[5], (0, 0, 0), 1 << 20)
    arrays = [*cache.arrays[:5], positions, *cache.arrays[6:]]
    with pytest.raises(H2OError) as error:
        type(cache).restored(arrays, cache.header)
    assert error.value.code == "damaged_positions"
