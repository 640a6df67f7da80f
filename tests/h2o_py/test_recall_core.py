"""Recall by the core against the reference: rows, ledger and archive, for every format."""

from functools import partial

import mlx.core as mx
import pytest

from h2o_pack.parity import reference
from h2o_py import H2OConfig, H2ORecall
from h2o_py._compiled import ext
from h2o_py.cache import H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
from tests.h2o_py import core
from tests.h2o_py.cases import (
    BACKENDS,
    TOLERANCE,
    assert_same_state,
    in_pairs,
    largest_difference,
    random_tokens,
    saved_of,
    step,
)
from tests.h2o_py.test_core import in_use
from tests.h2o_py.test_held import held

TRAFFIC = [50, 1, 1, 3, 40, 1, 1, 1, 9, 2, 70, 1, 1, 1, 1, 1, 5]
SIZES = {"sink_size": 2, "heavy_budget": 14, "recent_budget": 9, "pinned": ((6, 8),)}
MAKES = {
    "dense": H2OKVCache,
    "8": QuantizedH2OKVCache,
    "k8v4": partial(QuantizedH2OKVCache, key_bits=8, value_bits=4, group_size=32),
    "4": partial(QuantizedH2OKVCache, bits=4),
    "rotated 4": partial(QuantizedH2OKVCache, bits=4, rotated=True),
    "r16h4": partial(MixedH2OKVCache, heavy_bits=4, recent_bits=16),
    "r8h8": partial(MixedH2OKVCache, heavy_bits=8, recent_bits=8),
    "r4h16": partial(MixedH2OKVCache, heavy_bits=16, recent_bits=4),
}


def config(**changes):
    """Return the settings of 40 rows that recall at chunks and at every third step."""
    settings = {"ask": 4, "spread": 2, "every": 3, **changes}
    return H2OConfig(40, **SIZES, observation_window=8, recall=H2ORecall(**settings))


def compare(settings, backend, make, traffic=TRAFFIC, *, sharp=3.0, mask="ask", **shape):
    """Run both, and return our cache."""
    mx.random.seed(7)
    ours, oracle = make(settings, backend=backend), make(settings, backend=reference)
    for i, tokens in enumerate(traffic):
        queries, keys, values = random_tokens(tokens, **shape)
        new = (sharp * queries).astype(queries.dtype), keys, values
        out, wanted = step(ours, *new, mask=mask), step(oracle, *new, mask=mask)
        assert largest_difference(out, wanted) <= 6 * TOLERANCE[out.dtype], i
        assert_same_state(ours, oracle, 4e-5, context=(i, tokens))
        assert ours.ledger.held.tolist() == oracle.ledger.held.tolist(), i
        assert ours.recalled == oracle.recalled, i
        for mine, its in zip(in_use(ours), in_use(oracle), strict=True):
            assert mx.array_equal(mine, its), i
    blocks = zip(ours.archive.arrays, oracle.archive.arrays, strict=True)
    for n, (mine, its) in enumerate(blocks):
        assert mine.shape == its.shape
        if n % 2 == 0:
            assert mx.array_equal(mine, its)
        else:
            assert largest_difference(mine, its) < 1e-5
    assert saved_of(ours.archive) == saved_of(oracle.archive)
    assert ours.archive.nbytes == oracle.archive.nbytes
    assert ours.recalled > 0
    return ours


@pytest.mark.parametrize(
    ("name", "storage", "dtype"),
    in_pairs(BACKENDS, MAKES, (mx.float32, mx.float16, mx.bfloat16)),
    ids=str,
)
def test_every_storage_and_dtype_equals_the_reference(name, storage, dtype):
    compare(config(), BACKENDS[name], MAKES[storage], dtype=dtype, batch=2)


@pytest.mark.parametrize(
    ("bits", "shape", "name"),
    in_pairs((4, 8, 16), ((64, 2), (96, 6), (128, 4), (256, 2)), BACKENDS),
    ids=str,
)
def test_every_archive_and_head_dim_equals_the_reference(bits, shape, name):
    dim, heads = shape
    settings = config(archive_bits=bits, spread=0, ask=1, every=1)
    compare(settings, BACKENDS[name], H2OKVCache, dim=dim, heads=heads)


def test_head_dims_that_no_group_divides_are_archived_as_they_are():
    compare(config(archive_bits=16), core, H2OKVCache, dim=80)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("changes", [{"rows": 1}, {"rows": 26}, {"spread": 60}, {"ask": 64}])
def test_few_and_many_rows_equal_the_reference(name, changes):
    compare(config(**changes), BACKENDS[name], H2OKVCache, batch=2)


@pytest.mark.parametrize("instructions", ext.instruction_sets())
def test_every_instruction_set_chooses_the_same(instructions):
    before = ext.instruction_set()
    ext.use_instruction_set(instructions)
    try:
        compare(config(archive_bits=8), core, H2OKVCache, dim=96)
    finally:
        ext.use_instruction_set(before)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_prompt_of_several_segments_equals_the_reference(name):
    traffic = [300, *[1] * 70, 400, 1, 33]
    cache = compare(config(every=40), BACKENDS[name], H2OKVCache, traffic, heads=2)
    assert [a.shape[2] for a in cache.archive.arrays[::2]] == [256, 256, 256, 36]


def archived(backend, sizes, *, bits=4, limit=0, seed=5, trim=0, **shape):
    """Return an archive that was given the same tokens in pieces of these sizes."""
    mx.random.seed(seed)
    _, keys, values = random_tokens(sum(sizes), kv_heads=3, **shape)
    archive = backend.Archive(H2ORecall(archive_bits=bits, limit=limit))
    ledger_sum, begin = mx.zeros((keys.shape[0], 3, keys.shape[3])), 0
    for size in sizes:
        piece = slice(begin, begin + size)
        archive.append(keys[:, :, piece], values[:, :, piece], ledger_sum, H2OConfig(32))
        for t in range(begin, begin + size):
            key = keys[:, :, t].astype(mx.float32)
            ledger_sum = ledger_sum + key / mx.sqrt((key * key).sum(-1, keepdims=True))
        mx.eval(ledger_sum)
        begin += size
    if trim:
        archive.trim(trim)
    return archive


def same_archives(one, other):
    """Whether blocks and what they hold are the same."""
    pairs = list(zip(one.arrays, other.arrays, strict=True))
    rows = all(mx.array_equal(a, b) for a, b in pairs[::2])
    return rows and all(largest_difference(a, b) < 1e-5 for a, b in pairs[1::2])


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("sizes", [[1] * 300, [255, 1, 1, 43], [1] * 63 + [100] + [1] * 137])
def test_what_an_archive_says_does_not_depend_on_how_it_was_told(sizes, bits):
    whole = archived(core, [300], bits=bits)
    pieces = archived(core, sizes, bits=bits)
    assert same_archives(pieces, whole)
    assert same_archives(pieces, archived(reference, [300], bits=bits))


@pytest.mark.parametrize("trim", [1, 44, 45, 130, 300])
def test_trimmed_archives_are_those_that_never_saw_the_tokens(trim):
    archive = archived(core, [260, *[1] * 40], trim=trim)
    assert archive.length == 300 - trim
    fresh = archived(core, [260, *[1] * 40])
    assert archive.length == 0 or all(
        mx.array_equal(a, b)
        for a, b in zip(
            archive.rows(0, archive.length), fresh.rows(0, archive.length), strict=True
        )
    )


def test_trimming_more_than_there_is_is_refused():
    with pytest.raises(ValueError, match="n is 301; expected between 0 and the 300 positions"):
        archived(core, [300], trim=301)


def test_a_limit_lets_whole_segments_go_whatever_the_sizes():
    token = archived(core, [1]).nbytes
    for sizes in ([1000], [1] * 1000, [600, *[1] * 400], [255, 1, 744]):
        archive = archived(core, sizes, limit=300 * token)
        oracle = archived(reference, sizes, limit=300 * token)
        assert (archive.first, archive.length) == (oracle.first, 1000) == (768, 1000)
        assert archive.nbytes == 232 * token
        assert same_archives(archive, oracle)


def test_what_was_saved_goes_on_as_if_it_had_not_been():
    archive = archived(core, [300], dtype=mx.float16).copy()  # without Python's own
    back = core.Archive.restored(
        archive.arrays, saved_of(archive), H2ORecall(), key_dim=64, length=300
    )
    _, keys, values = random_tokens(250, kv_heads=3, dtype=mx.float16)
    for each in (archive, back):
        each.append(keys, values, mx.zeros((1, 3, 64)), core._native(H2OConfig(32)))
    assert same_archives(archive, back)
    assert saved_of(archive) == saved_of(back)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda given: given.update(length=301), r"block 1 has rows"),
        (lambda given: given.update(length=600), r"there are 4 arrays; .* need 6"),
        (lambda given: given.update(key_dim=80), "does not fit keys of 80"),
        (lambda given: given["saved"].update(first=100), "first is 100"),
        (lambda given: given["saved"].update(group_size=48), "group_size"),
        (lambda given: given["arrays"].pop(), "there are 3 arrays"),
        (lambda given: given["arrays"].__setitem__(0, mx.zeros((1, 3, 256))), "pool"),
        (lambda given: given["arrays"].__setitem__(1, mx.zeros((1, 3, 255))), "block 0"),
        (lambda given: given["arrays"].__setitem__(2, given["arrays"][0]), "block 1"),
    ],
)
def test_saved_archives_that_do_not_fit_are_refused(spoil, complaint):
    archive = archived(core, [300], dtype=mx.float16)
    given = {
        "arrays": archive.arrays,
        "saved": saved_of(archive),
        "recall": H2ORecall(),
        "key_dim": 64,
        "length": 300,
    }
    spoil(given)
    arrays, saved, settings = given.pop("arrays"), given.pop("saved"), given.pop("recall")
    with pytest.raises(ValueError, match=complaint):
        core.Archive.restored(arrays, saved, settings, **given)


@pytest.mark.parametrize("name", BACKENDS)
def test_of_positions_asked_for_alike_the_lowest_come(name):
    settings = config(archive_bits=16, rows=6, spread=0)
    cache = H2OKVCache(settings, backend=BACKENDS[name])
    same = mx.ones((1, 2, 1, 64))
    step(cache, mx.zeros((1, 4, 80, 64)), *[mx.repeat(same, 80, axis=2)] * 2)
    step(cache, mx.zeros((1, 4, 5, 64)), *[mx.repeat(same, 5, axis=2)] * 2)
    assert held(cache)[0] == [[2, 3, 4, 5, 8, 9]] * 2  # but sinks and pinned ones


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("kind", [mx.bool_, mx.float32, mx.float16])
def test_asking_tokens_see_each_other_as_their_mask_says(name, kind):
    mx.random.seed(3)
    seen = mx.random.uniform(shape=(1, 1, 6, 6)) < 0.5
    seen = seen | mx.eye(6, dtype=mx.bool_)
    bias = mx.where(seen, 0.5, -60000.0 if kind == mx.float16 else -1e9)
    mask = seen if kind == mx.bool_ else bias.astype(kind)
    settings = config(archive_bits=8)
    filled = H2OKVCache(settings)
    step(filled, *random_tokens(90, heads=4))
    queries, keys, _ = random_tokens(6, heads=4)
    results = []
    for backend in (BACKENDS[name], reference):
        archive = backend.Archive(settings.recall)
        mx.random.seed(4)
        archive.append(*random_tokens(90)[1:], mx.zeros((1, 2, 64)), H2OConfig(40))
        results.append(
            backend.recall(
                3 * queries, keys, filled.rows, filled.ledger, archive,
                offset=90, config=settings, scale=0.125, mask=mask,
            )
        )  # fmt: skip
    ours, oracle = results
    assert ours.came == oracle.came > 0
    assert ours.ledger.positions.tolist() == oracle.ledger.positions.tolist()
    assert ours.ledger.held.tolist() == oracle.ledger.held.tolist()


def test_the_given_rows_and_ledger_stay_as_they_are():
    cache = H2OKVCache(config(archive_bits=8))
    step(cache, *random_tokens(90))
    rows, ledger = cache.rows, cache.ledger
    before = [mx.array(a) for a in (rows.pool, *ledger.arrays)]
    mx.eval(before)
    queries, keys, _ = random_tokens(4)
    recalled = core.recall(
        3 * queries, keys, rows, ledger, cache.archive,
        offset=90, config=cache.config, scale=0.125,
    )  # fmt: skip
    assert recalled.came > 0
    for was, now in zip(before, (rows.pool, *ledger.arrays), strict=True):
        assert mx.array_equal(was, now)
    assert not mx.array_equal(recalled.rows.pool, rows.pool)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"offset": 89}, "the archive has positions from 0 to 90; offset is 89"),
        ({"keys": mx.zeros((1, 2, 4, 32))}, "shape"),
        ({"keys": mx.zeros((2, 2, 4, 64))}, "keys has shape"),
        ({"queries": mx.zeros((1, 4, 5, 64))}, "queries has 5 tokens"),
        ({"mask": mx.ones((4, 90), mx.bool_)}, "mask has shape"),
        ({"sinks": mx.zeros((3,))}, "sinks"),
    ],
)
def test_what_does_not_fit_is_refused(change, complaint):
    cache = H2OKVCache(config())
    step(cache, *random_tokens(90))
    queries, keys, _ = random_tokens(4)
    given = {"queries": queries, "keys": keys, "offset": 90, "scale": 1.0, **change}
    with pytest.raises(ValueError, match=complaint):
        core.recall(
            rows=cache.rows,
            ledger=cache.ledger,
            archive=cache.archive,
            config=cache.config,
            **given,
        )
