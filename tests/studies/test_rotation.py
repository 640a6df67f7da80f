"""The study of rotated rows: rotation alone changes nothing, and bytes are equal."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from h2o_pack.hub.resolve import resolve
from h2o_py import H2OConfig
from h2o_py.cache import H2OKVCache
from studies.rotation.caches import CoarseCache, RotatedCache, Rotation
from studies.rotation.page import page
from studies.rotation.tried import levels, rows_for, storage_bytes

RESULTS = Path(__file__).parents[2] / "docs/results/rotation"
TOKENS, HEADS, DIM = 40, 2, 64


def attended(cache):
    """The output of steps of one token through a cache, [TOKENS, HEADS, DIM]."""
    mx.random.seed(5)
    q, k, v = mx.random.normal((3, TOKENS, 1, HEADS, 1, DIM))
    found = []
    for step in range(TOKENS):
        cache.update_and_fetch(k[step], v[step])
        found.append(cache.attend(q[step], scale=DIM**-0.5)[0, :, 0])
    return mx.stack(found)


def test_a_rotation_is_undone_and_keeps_lengths():
    rotation = Rotation(DIM, 3)
    x = mx.random.normal((4, DIM), key=mx.random.key(1))
    turned = rotation.turn(x)
    assert not mx.allclose(turned, x, atol=0.1)
    assert mx.allclose(mx.linalg.norm(turned, axis=-1), mx.linalg.norm(x, axis=-1), atol=1e-4)
    assert mx.allclose(rotation.turn_back(turned), x, atol=1e-5)


def test_rotated_rows_in_full_precision_attend_and_evict_as_plain_ones():
    plain, rotated = H2OKVCache(H2OConfig(16)), H2OKVCache(H2OConfig(16))
    expected = attended(plain)
    found = attended(RotatedCache(rotated, Rotation(DIM, 3)))
    assert mx.allclose(found, expected, atol=1e-4)
    assert mx.array_equal(rotated.positions, plain.positions)


def test_fewer_bits_round_more():
    expected = attended(H2OKVCache(H2OConfig(64)))
    errors = [
        mx.abs(attended(CoarseCache(H2OConfig(64), bits, 64)) - expected).mean().item()
        for bits in (8, 4, 3)
    ]
    assert 0 < errors[0] < errors[1] < errors[2]


def test_all_of_a_level_take_at_most_its_bytes_and_one_more_row_would_not():
    config = resolve("demo").config
    for level in levels(config, 1024):
        for each in level.tried:
            if each.whole:
                continue
            assert storage_bytes(config, each.stored, each.rows, 2048) <= level.limit
            assert rows_for(config, each.stored, level.limit, 1024) == each.rows
            assert storage_bytes(config, each.stored, each.rows + 1, 2048) > level.limit


def test_the_committed_page_says_what_was_measured():
    document = json.loads((RESULTS / "results.json").read_text("utf-8"))
    assert (RESULTS / "README.md").read_text("utf-8") == page(document)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_rotation_lost_less_at_4_bits_in_every_table(level):
    document = json.loads((RESULTS / "results.json").read_text("utf-8"))
    rotated = [
        each
        for each in document["levels"][level]["caches"]
        if each["cache"].endswith("4 bits, rotated") and "r8h4" not in each["cache"]
    ]
    assert [each["to_plain"].partition(" (")[0] for each in rotated] == ["better"]
