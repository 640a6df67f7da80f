"""Without recall a cache does what it did before there was recall."""

import hashlib
import json

import mlx.core as mx
import pytest

from h2o_py import H2OConfig, fast
from tests.h2o_py.cases import random_tokens, step
from tests.h2o_py.test_properties import STORAGES

CONFIGS = (
    H2OConfig(24, sink_size=2, heavy_budget=10, recent_budget=8),
    H2OConfig.paper(16, heavy_budget=5, recent_budget=5),
    H2OConfig(20, recent_budget=4, heavy_budget=6, pinned=((9, 12),), novelty_margin=0.05),
)
CHUNKS = (5, 1, 1, 30, 1, 2, 1, 1, 1, 17, 64, 1, 1, 3)
KEPT = {
    "dense": "4eb3efca81bc1072",
    "dense, in MLX operations": "4eb3efca81bc1072",
    "8": "b7a938c30cc0906a",
    "k8v4": "b7a938c30cc0906a",
    "4": "146d44874969b0f0",
    "mixed 8 and 16": "832d140b0bcb4478",
    "mixed 4 and 8": "00c669581783b269",
}
"""Digests of what was kept after each chunk by the last commit before recall."""


def digest(storage, backend):
    """Return a digest of positions and next victims."""
    told = hashlib.sha256()
    make, oracle = STORAGES[storage]
    for number, config in enumerate(CONFIGS):
        mx.random.seed(number)
        cache = make(config, fast if backend == "fast" else oracle)
        for tokens in CHUNKS:
            step(cache, *random_tokens(tokens, batch=2, dim=32))
            state = [cache.positions.tolist(), cache.ledger.victim.tolist()]
            told.update(json.dumps(state).encode())
    return told.hexdigest()[:16]


@pytest.mark.parametrize("storage", KEPT)
def test_the_same_rows_are_kept_as_before(storage):
    assert [digest(storage, backend) for backend in ("reference", "fast")] == [
        KEPT[storage]
    ] * 2
