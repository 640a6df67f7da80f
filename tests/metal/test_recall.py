"""Recall on a GPU's stream: operations of MLX pack and score, and steps stay as they are."""

import mlx.core as mx
import pytest

from h2o_py import H2OConfig, H2ORecall
from tests.h2o_py.cases import (
    TOLERANCE,
    held,
    kept,
    largest_difference,
    make_cache,
    random_tokens,
    step,
)
from tests.metal.backend import evaluated

TRAFFIC = [50, 1, 1, 3, 40, 1, 1, 1, 300, *[1] * 70, 9]


def config(bits):
    """Return the settings of 40 rows that recall at chunks."""
    recall = H2ORecall(ask=4, spread=2, archive_bits=bits)
    return H2OConfig(40, sink_size=2, heavy_budget=14, recent_budget=9, recall=recall)


@pytest.mark.parametrize("bits", [4, 16])
@pytest.mark.parametrize("name", ["dense", "r16h8"])
def test_recall_equals_the_cpu_in_three_dispatches_a_step(host, backend, name, bits):
    mx.random.seed(31)
    ours, theirs = (make_cache(name, config(bits), module) for module in (backend, None))
    for i, tokens in enumerate(TRAFFIC):
        queries, keys, values = random_tokens(tokens)
        host.reset_counters()
        out, wanted = (step(cache, 3 * queries, keys, values) for cache in (ours, theirs))
        evaluated(host, out, *ours.ledger.arrays)
        if tokens == 1:
            kernels = [entry["kernel"] for entry in host.counters()]
            assert len([k for k in kernels if not k.startswith("h2o_copy")]) == 3, i
        assert largest_difference(out, wanted) <= 6 * TOLERANCE[mx.float32], i
        assert kept(ours) == kept(theirs), i
        assert held(ours) == held(theirs), i
    assert ours.recalled == theirs.recalled > 0
    pairs = list(zip(ours.archive.arrays, theirs.archive.arrays, strict=True))
    assert len(pairs) == 4
    for rows, others in pairs[::2]:
        differing = (rows != others).sum().item() / rows.size
        assert differing < (0.01 if bits == 4 else 1e-9)  # halves are rounded differently
    for novelty, other in pairs[1::2]:
        assert largest_difference(novelty, other) < 1e-5
