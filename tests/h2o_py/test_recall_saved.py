"""Saved caches with recall: what they say, that they go on as before, what is refused."""

import json
import warnings

import mlx.core as mx
import pytest

from h2o_py import H2OConfig, H2OError, H2ORecall
from h2o_py.cache import H2OKVCache
from h2o_py.models import STORAGES
from tests.h2o_py.cases import put, random_tokens, step
from tests.h2o_py.test_recall import config, filled, same


def test_without_recall_the_header_is_as_it_was():
    cache = filled(H2OConfig(24, sink_size=2, heavy_budget=10, recent_budget=8))
    assert len(cache.arrays) == 6
    assert cache.header == (
        "h2o.dense.1",
        "52",
        "24",
        "0",
        '{"decay": 0.999, "heavy_budget": 10, "max_size": 24, "novelty": 2.0, '
        '"novelty_margin": 0.0, "observation_window": 64, "pinned": [], "recent_budget": 8, '
        '"score": "peak", "sink_size": 2}',
    )


def test_a_cache_whose_recall_ended_is_saved_as_one_without():
    cache = filled()
    _, keys, values = random_tokens(9)
    cache.update_and_fetch(keys, values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        header, arrays = cache.header, cache.arrays
    assert header[0] == "h2o.dense.1"
    restored = H2OKVCache.restored(arrays, header)
    restored.expects_scores = False
    restored.settle()
    assert restored.archive is None
    mx.eval(step(restored, *random_tokens(30)))
    assert (restored.archive, restored.ledger.held) == (None, None)


def test_an_empty_cache_starts_to_recall_after_loading():
    restored = H2OKVCache.restored(H2OKVCache(config()).arrays, H2OKVCache(config()).header)
    mx.eval(step(restored, *random_tokens(40)))
    assert restored.archive.length == 40


def test_a_file_names_no_folder_to_write_to(tmp_path):
    cache = filled()
    strings = list(cache.header)
    settings = json.loads(strings[4])
    settings["recall"]["store"] = str(tmp_path / "elsewhere")
    strings[4] = json.dumps(settings)
    restored = H2OKVCache.restored(cache.arrays, strings)
    assert restored.config.recall == H2ORecall(ask=4, spread=2)
    mx.eval(step(restored, *random_tokens(600)))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_archive_is_refused():
    cache = filled(chunks=(300, 1))
    arrays, header = cache.arrays, cache.header
    document = json.loads(header[-1])
    assert document == {
        "bits": 4, "dtype": "mlx.core.float32", "first": 0, "group_size": 32, "since": 1
    }  # fmt: skip
    strings = [
        {**document, key: value}
        for key, value in (
            ("bits", 5), ("bits", 8), ("bits", True), ("dtype", "int8"), ("first", 256),
            ("first", -256), ("first", 1), ("first", 1 << 70), ("group_size", 48),
            ("since", -1), ("since", 400), ("since", "1"), ("more", 1),
        )
    ]  # fmt: skip
    damaged = [(arrays, [*header[:-1], json.dumps(document)]) for document in strings]
    damaged += [(arrays, [*header[:-1], text]) for text in ("", "[]", "{", "null")]
    damaged += [(arrays, header[:-1]), (arrays, [*header, header[-1]])]
    damaged += [(arrays[:-2], header), (arrays[:-1], header), ([*arrays, arrays[-1]], header)]
    damaged += [([*arrays, *arrays[-2:]], header)]
    no_recall = json.loads(header[4])
    del no_recall["recall"]
    damaged.append((arrays, [*header[:4], json.dumps(no_recall), *header[5:]]))
    for at, replacement in (
        (6, mx.ones(arrays[6].shape, mx.bool_)),  # all held
        (
            6,
            put(arrays[6].view(mx.uint8), (0, 0, 0), 63).view(mx.bool_),
        ),  # found by `make fuzz`
        (6, arrays[6].astype(mx.int32)),
        (6, arrays[6][:, :, :-1]),
        (7, arrays[7][:, :, :-1]),
        (7, arrays[7][..., :-1]),
        (7, arrays[7].astype(mx.float32)),
        (8, arrays[8][:, :1]),
        (8, put(arrays[8], (0, 0, 3), float("nan"))),
        (9, arrays[7]),
        (10, arrays[8]),
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
    cache = filled(settings, chunks, lambda config: STORAGES["r16h8"](config, 64))
    assert same(cache, type(cache).restored(cache.arrays, cache.header))
    pool = put(cache.arrays[3], (0, 0, 0), 1 << 20)
    arrays = [*cache.arrays[:3], pool, *cache.arrays[4:]]
    with pytest.raises(H2OError) as error:
        type(cache).restored(arrays, cache.header)
    assert error.value.code == "damaged_positions"
