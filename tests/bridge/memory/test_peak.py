from __future__ import annotations

import pytest

from h2o_pack.hub.resolve import resolve
from h2o_pack.measure.held import HeldRun, held_by
from h2o_pack.memory.storages import STORAGES
from h2o_pack.model import Layer
from tests.bridge.memory.described import model, request

RUNS = (
    *((kv, 256, 256, 600) for kv in STORAGES),
    ("dense", 512, 64, 700),
    ("dense", 512, 512, 1100),
    ("dense", 128, 400, 900),
    ("8", 128, 100, 400),
    ("dense", 1024, 300, 620),
)


@pytest.fixture(scope="module")
def measured() -> dict[tuple, int]:
    """Peaks of a process of their own."""
    held = held_by("demo", [HeldRun(*run) for run in RUNS])
    return {run: each.peak for run, each in zip(RUNS, held, strict=True)}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(map(str, run)))
def test_the_planned_peak_is_that_of_mlx_counters_within_a_tenth(measured, run):
    kv, max_kv, step, context = run
    plan = request(resolve("demo"), max_kv, kv=kv, step=step, context=context).plan("cpu")
    assert plan.mlx == pytest.approx(measured[run], rel=0.1)


def test_a_published_peak_on_a_mac_is_met():
    """mlx-lm pull request 1569: mlx_lm.benchmark -p 2048 -g 128 on an M3 Pro, 3.30 GB."""
    unbounded = request(model(), 0, context=2176, step=2048)
    assert unbounded.plan("mac").mlx == pytest.approx(3.30e9, rel=0.1)


def test_attention_without_a_kernel_makes_its_matrix_of_logits():
    tokens, heads, step = 4096, 8, 512
    for dim, made in ((128, False), (256, True)):
        layers = (Layer("full", 8, dim, dim),) * 12
        shapes = model(layers=layers, heads=heads)
        attention = request(shapes, 0, context=tokens, step=step).plan("iphone").of("attention")
        assert (attention >= heads * step * tokens * 2) is made


def test_mlx_swift_lm_computes_logits_of_the_whole_last_chunk_and_mlx_lm_of_one_token():
    wanted = request(step=512, context=8192)
    matrix = 512 * wanted.model.config.vocabulary * 2
    assert wanted.plan("ipad").of("logits") >= matrix
    assert wanted.plan("mac").of("logits") < matrix / 100


def test_a_chunk_takes_more_than_a_generated_token():
    plan = request().plan("iphone")
    assert plan.prefill_peak > 10 * plan.decode_peak
    assert plan.prefill_peak == plan.prefill - plan.of("page rounding", "margin")
