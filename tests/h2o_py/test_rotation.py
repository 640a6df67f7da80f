"""Rows that are rotated before they are quantized: the rotation, and that it does not show."""

import dataclasses
import json
import math

import mlx.core as mx
import pytest

from h2o_pack.parity import reference
from h2o_pack.parity.reference.rows import as_given, as_stored
from h2o_py.cache import H2OKVCache, QuantizedH2OKVCache
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.errors import H2OStateError
from h2o_py.models import STORAGES
from h2o_py.rows import RowFormat
from tests.h2o_py.cases import (
    BACKENDS,
    kept,
    largest_difference,
    random_tokens,
    step,
)

SMALL = H2OConfig(32, sink_size=2, heavy_budget=10, recent_budget=12)
ROTATED = RowFormat(rotated=True)
CHUNKS = (20, 1, 1, 30, 1, 1, 5, 1)


def stated(dim):
    """The rotation as its definition says: signs, then Sylvester's matrix in blocks."""
    squares = {root * root % 2053 for root in range(2053)}
    block = math.gcd(dim, 1 << 20)
    signs = [1 if (i + 1) % 2053 in squares else -1 for i in range(dim)]
    return mx.array(
        [
            [
                signs[i] * (-1) ** (i % block & j % block).bit_count() / math.sqrt(block)
                if i // block == j // block
                else 0.0
                for j in range(dim)
            ]
            for i in range(dim)
        ]
    )


@pytest.mark.parametrize("dim", [1, 32, 64, 80, 96, 128, 256])
def test_the_rotation_is_the_stated_matrix_and_is_undone(dim):
    vectors = mx.random.normal((2, 3, 5, dim), key=mx.random.key(dim))
    matrix = stated(dim)
    assert largest_difference(matrix @ matrix.T, mx.eye(dim)) < 1e-6
    rotated = as_stored(vectors, ROTATED)
    assert largest_difference(rotated, vectors @ matrix) < 1e-5
    assert largest_difference(as_given(rotated, ROTATED), vectors) < 1e-5


@pytest.mark.parametrize("recall", [None, H2ORecall(ask=4, every=2, archive_bits=16)])
@pytest.mark.parametrize(
    "backend", [*BACKENDS.values(), reference], ids=[*BACKENDS, "reference"]
)
def test_rotated_rows_that_are_not_quantized_change_nothing(backend, recall):
    """Scores, novelty and what is kept depend on products of queries and keys alone."""
    config = dataclasses.replace(SMALL, recall=recall)
    plain, rotated = H2OKVCache(config, backend), H2OKVCache(config, backend)
    rotated._make(config, ROTATED, backend)
    mx.random.seed(3)
    for tokens in CHUNKS:
        new = random_tokens(tokens, dim=96)
        assert largest_difference(step(rotated, *new), step(plain, *new)) < 1e-5
    assert kept(rotated) == kept(plain)
    assert rotated.recalled == plain.recalled
    assert bool(recall) == (plain.recalled > 0)
    assert largest_difference(rotated.scores, plain.scores) < 1e-5
    assert largest_difference(rotated.ledger.novelty, plain.ledger.novelty) < 1e-5
    assert largest_difference(rotated.keys, plain.keys) < 1e-5
    assert largest_difference(rotated.rows.pool[:, :, :32, :96], plain.keys) > 1


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_rows_hold_what_mlx_quantizes_of_rotated_vectors(dtype):
    cache = QuantizedH2OKVCache(SMALL, 4, rotated=True)
    _, keys, values = random_tokens(20, dtype=dtype)
    cache.update_and_fetch(keys, values)
    wanted = []
    for vectors in (keys, values):
        words, scales, biases = mx.quantize(as_stored(vectors, ROTATED), 64, 4)
        both = mx.contiguous(mx.concatenate([scales, biases], axis=3))
        wanted += [words, both.view(mx.uint32)]
    assert mx.array_equal(cache.rows.pool[:, :, :20], mx.concatenate(wanted, axis=3))


def test_what_a_model_gets_to_attend_itself_is_not_rotated():
    cache = STORAGES["rotated4"](SMALL, 32)
    _, keys, values = random_tokens(20)
    for written, fetched in zip(
        (keys, values), cache.update_and_fetch(keys, values), strict=True
    ):
        assert mx.abs(written - fetched).mean().item() < 0.1


def test_a_large_element_costs_the_others_less():
    """Most keys of real models have elements that are many times as large as the rest."""
    mx.random.seed(5)
    queries, keys, values = random_tokens(30)
    keys = keys * mx.where(mx.arange(64) % 32 == 7, 20.0, 1.0)
    queries = queries * mx.where(mx.arange(64) % 32 == 7, 0.05, 1.0)
    exact, plain, rotated = (
        step(STORAGES[kv](SMALL, 32), queries, keys, values)
        for kv in ("dense", "4", "rotated4")
    )
    lost, lost_rotated = (mx.square(out - exact).mean().item() for out in (plain, rotated))
    assert lost_rotated < lost / 2


def test_saved_caches_say_whether_they_are_rotated():
    """A cache that is not says nothing of it, as before there were rotated ones."""
    for kv, is_rotated in (("4", None), ("rotated4", True)):
        cache = STORAGES[kv](SMALL, 64)
        step(cache, *random_tokens(40))
        assert json.loads(cache.header[5]).get("rotated") is is_rotated
        twin = type(cache).restored(cache.arrays, cache.header)
        assert (twin.rotated, twin.header) == (bool(is_rotated), cache.header)


@pytest.mark.parametrize("value", [None, 1, "true", [True]])
def test_a_saved_cache_that_says_something_else_of_it_is_refused(value):
    cache = STORAGES["rotated4"](SMALL, 64)
    step(cache, *random_tokens(40))
    header = list(cache.header)
    header[5] = json.dumps({**json.loads(header[5]), "rotated": value})
    with pytest.raises(H2OStateError):
        type(cache).restored(cache.arrays, header)
