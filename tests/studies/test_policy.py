"""The simulation of policies: it keeps what the real cache keeps, and policies differ."""

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_map
from mlx_lm import load

from h2o_pack.measure.profiling import budget_rule
from h2o_pack.measure.profiling.report import read_profile
from h2o_pack.measure.profiling.row_rule import layer_rows, reaches
from h2o_pack.measure.text import Tokens, held_out
from h2o_py import H2OConfig, install_routing, make_h2o_cache, reference, remove_routing
from studies.policy.catalogue import ALL, BASELINE, CHOSEN
from studies.policy.measure import MODEL
from studies.policy.model import Model
from studies.policy.policies import PROFILE, ByLayer, Policy
from studies.policy.report import figures, page
from studies.policy.simulation import simulate

LENGTH, ROWS = 160, 48
CHUNK = 24
"""Fits into every layer: the simulation has no chunks that evict."""


@pytest.fixture(scope="module")
def text():
    """Two sequences of held-out source, [2, LENGTH]."""
    from mlx_lm.utils import load_tokenizer

    ids = Tokens(load_tokenizer(MODEL), held_out().documents).ids
    return np.array([ids[1000 : 1000 + LENGTH], ids[5000 : 5000 + LENGTH]], np.int32)


@pytest.fixture(scope="module")
def model():
    """The same weights in numpy."""
    return Model.load(MODEL)


@pytest.fixture(scope="module")
def real():
    """The bundled demo model in float32, with its attention routed."""
    loaded, _ = load(str(MODEL))
    loaded.update(tree_map(lambda a: a.astype(mx.float32), loaded.parameters()))
    install_routing()
    yield loaded
    remove_routing()


@pytest.mark.parametrize(
    ("policy", "config"),
    [
        (CHOSEN, H2OConfig.tuned(ROWS)),
        ("chosen, rows by layer", H2OConfig.tuned(ROWS)),
        ("published: |logit| .95", H2OConfig.paper(ROWS)),
        ("peak .97, no novelty", H2OConfig.tuned(ROWS, novelty=0.0)),
    ],
)
def test_it_keeps_the_positions_that_the_reference_keeps(real, model, text, policy, config):
    simulated = simulate(model, text, ALL[policy], ROWS)
    budgets = None
    if isinstance(ALL[policy], ByLayer):
        profile = read_profile(PROFILE)
        rows = layer_rows(reaches(profile), ROWS, H2OConfig.tuned)
        budgets = budget_rule.budgets(rows, profile.caches)
    caches = make_h2o_cache(real, config, budgets=budgets)
    for cache in caches:
        cache.backend = reference
    real(mx.array(text[:, :CHUNK]), cache=caches)
    for t in range(CHUNK, LENGTH):
        mx.eval(real(mx.array(text[:, t : t + 1]), cache=caches))
    for cache, kept in zip(caches, simulated.positions, strict=True):
        assert np.array_equal(np.sort(np.array(cache.positions), axis=2), kept)


def test_its_losses_are_those_of_the_model_where_nothing_is_evicted(real, model, text):
    simulated = simulate(model, text, Policy(), LENGTH)
    logits = real(mx.array(text[:, :-1]))
    log = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    wanted = -np.take_along_axis(np.array(log), text[:, 1:, None], axis=2)[..., 0]
    assert np.abs(simulated.losses[:, 1:] - wanted).max() < 1e-3
    assert np.array_equal(simulated.right[:, 1:], np.array(log).argmax(2) == text[:, 1:])


@pytest.mark.parametrize("name", ALL)
def test_every_policy_fills_its_rows_with_different_positions(model, text, name):
    positions = simulate(model, text[:1, :60], ALL[name], 24).positions
    for layer, rows in zip(positions, ALL[name].sizes(24, len(positions)), strict=True):
        for kept in layer[0]:
            assert len(set(kept) - {-1}) == min(rows, 60)
            assert set(range(4)) < set(kept)
            assert kept[-1] == 59


def test_the_page_says_worse_only_outside_of_the_interval():
    def found(nll):
        kind = {"recall": [1.0] * 8, "nll": nll * 2}
        return {8: {"fact": kind, "decoys": kind}}

    results = {
        BASELINE: found([1.0, 2.0, 3.0, 4.0]),
        "a": found([1.1, 2.1, 3.1, 4.1]),
        "b": found([1.4, 1.7, 3.2, 3.8]),
    }
    settings = {"length": 16, "rows": [8], "seeds": [1], "samples": 8}
    text = page({"settings": settings, "policies": figures(results)})
    assert "| a | 1.00 | 1.00 | 2.600 | +0.100 (+0.100 to +0.100), worse |" in text
    line = next(each for each in text.splitlines() if each.startswith("| b |"))
    assert line.endswith("not distinguishable |")
