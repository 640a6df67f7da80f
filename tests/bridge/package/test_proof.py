"""What a package's app holds a device against is what `prove --check` expects of its report."""

from __future__ import annotations

import dataclasses

import pytest

from h2o_pack import __version__
from h2o_pack.hub.resolve import resolve
from h2o_pack.memory.terms import KV, LEDGER, WEIGHTS
from h2o_pack.package.proof import proof_values
from h2o_pack.plan.package_plan import BACKENDS, CacheOptions, make_plan
from h2o_pack.prove.expected import expected_of
from h2o_pack.prove.ids import memory_id
from h2o_pack.prove.report import Setting

EXACT = (WEIGHTS, KV, LEDGER)


@pytest.fixture
def demo():
    return resolve("demo")


@pytest.mark.parametrize("kv", ["dense", "k8v4"])
@pytest.mark.parametrize("device", BACKENDS)
def test_the_terms_and_sums_are_those_that_are_expected(demo, kv, device):
    plan = make_plan(demo, CacheOptions(max_kv=64, kv=kv))
    values, memory = proof_values(plan), plan.memory_of[device]
    setting = Setting(
        values.model, 64, values.kv, memory.context, memory.prefill_step, BACKENDS[device]
    )
    said = {**values.terms[device], "MLX": memory.mlx, "total": memory.total}
    expected = {name: expected_of(memory_id(name), setting) for name in said}
    assert set(values.terms[device]) == set(EXACT)
    assert {name: each and each.value for name, each in expected.items()} == said


def test_what_a_setting_does_not_say_of_the_plan_leaves_no_terms(demo):
    plan = make_plan(demo, CacheOptions(max_kv=64, recall=True))
    assert proof_values(plan).terms == {"phone": {}, "tablet": {}}


def test_of_layers_with_windows_nothing_is_exact(demo):
    layers = demo.config.layers
    windows = (dataclasses.replace(layers[0], kind="sliding", window=8), *layers[1:])
    config = dataclasses.replace(demo.config, layers=windows)
    plan = make_plan(dataclasses.replace(demo, config=config), CacheOptions(max_kv=64))
    assert proof_values(plan).terms == {"phone": {}, "tablet": {}}


def test_the_versions_are_those_of_the_package(demo):
    plan = make_plan(demo, CacheOptions(max_kv=64))
    assert proof_values(plan).versions == {
        "h2o-pack": __version__,
        "mlx-swift": "0.31.6",
        "mlx-swift-lm": "3.31.4",
    }
