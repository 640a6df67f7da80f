"""Planned memory beside what was measured and published."""

import json
import os
from dataclasses import dataclass

import pytest

from h2o_pack.devices.catalogue import catalogue
from h2o_pack.facts import FOLDER, known_models
from h2o_pack.files.toml import read_rows
from h2o_pack.memory import terms
from h2o_pack.memory.storages import STORAGES
from h2o_pack.model import Layer
from h2o_pack.models.catalogue import as_model
from h2o_pack.plan.workload import workload_of
from h2o_pack.spec import CacheSpec
from tests.bridge.memory import peaks
from tests.bridge.memory.described import model, request
from tests.bridge.trees import resolve
from tests.processes import python

RUNS = (
    *((kv, 256, 256, 600, None) for kv in STORAGES),
    ("16", 512, 64, 700, None),
    ("16", 512, 512, 1100, None),
    ("16", 128, 400, 900, None),
    ("8", 128, 100, 400, None),
    ("16", 1024, 300, 620, None),
    ("16", 256, 256, 1544, 4),
    ("16", 256, 256, 2000, 4),
    ("8", 256, 512, 2000, 16),
)


EVERYDAY = (
    ("16", 256, 256, 600, None),
    ("heavy=8,recent=16", 256, 256, 600, None),
    ("16", 256, 256, 1544, 4),
)


@pytest.mark.parametrize(
    "runs", [EVERYDAY, pytest.param(RUNS, marks=pytest.mark.nightly("the other runs"))]
)
def test_the_planned_peak_is_that_of_mlx_counters_within_a_tenth(runs):
    """The runs have a process of their own, whose libraries use one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = python(peaks.__file__, json.dumps(runs), env=environment)
    assert process.returncode == 0, process.stderr[-2000:]
    for run, measured in zip(runs, json.loads(process.stdout), strict=True):
        assert planned_peak(*run) == pytest.approx(measured, rel=0.1), run


def planned_peak(kv, max_kv, step, context, bits):
    recall = {"recall": False} if bits is None else {"archive": "memory", "archive_bits": bits}
    spec = CacheSpec(max_kv, kv, context=context, prefill_step=step, **recall)
    return workload_of(resolve("demo"), spec).plan("cpu").mlx


def test_a_published_peak_on_a_mac_is_met():
    """mlx-lm pull request 1569: mlx_lm.benchmark -p 2048 -g 128 on an M3 Pro, 3.30 GB."""
    unbounded = request(model(), 0, context=2176, step=2048)
    assert unbounded.plan("mac").mlx == pytest.approx(3.30e9, rel=0.1)


def test_attention_without_a_kernel_makes_its_matrix_of_logits():
    tokens, heads, step = 4096, 8, 512
    for dim, has_matrix in ((128, False), (256, True)):
        layers = (Layer("full", 8, dim, dim),) * 12
        shapes = model(layers=layers, heads=heads)
        attention = request(shapes, 0, context=tokens, step=step).plan("iphone").of("attention")
        assert (attention >= heads * step * tokens * 2) is has_matrix


def test_mlx_swift_lm_computes_logits_of_the_whole_last_chunk_and_mlx_lm_of_one_token():
    workload = request(step=512, context=8192)
    matrix = 512 * workload.model.config.vocabulary * 2
    assert workload.plan("ipad").of("logits") >= matrix
    assert workload.plan("mac").of("logits") < matrix / 100


def test_a_chunk_takes_more_than_a_generated_token():
    plan = request().plan("iphone")
    assert plan.prefill_peak > 10 * plan.decode_peak
    assert plan.prefill_peak == plan.prefill - plan.of("page rounding", "margin")


@dataclass(frozen=True)
class Footprint:
    """A row of footprints.toml."""

    model: str
    identifier: str
    prompt: int
    generated: int
    mebibytes: int
    source: str
    kind: str


PUBLISHED = read_rows(FOLDER / "footprints.toml", "footprint", Footprint)


def planned(footprint: Footprint) -> int:
    """The bytes of the same conversation with the model's own cache."""
    model = as_model(known_models()[footprint.model])
    (device,) = catalogue().find(footprint.identifier)
    context = footprint.prompt + footprint.generated
    return request(model, 0, context=context, step=footprint.prompt).plan(device.backend).total


@pytest.mark.parametrize("footprint", PUBLISHED, ids=lambda footprint: footprint.model)
def test_a_published_footprint_is_planned_within_a_twelfth(footprint):
    assert planned(footprint) == pytest.approx(footprint.mebibytes * 2**20, rel=1 / 12)


def test_plans_are_above_the_footprints_on_average():
    errors = [planned(footprint) / (footprint.mebibytes * 2**20) - 1 for footprint in PUBLISHED]
    assert sum(errors) / len(errors) > 0


@pytest.mark.parametrize("backend", ["iphone", "ipad", "mac"])
def test_a_twentieth_of_what_metal_is_modelled_to_hold_is_added_and_shown(backend):
    plan = request().plan(backend)
    modelled = plan.of(*terms.WORKING, terms.ROUNDING)
    (margin,) = [term for term in plan.terms if term.name == terms.MARGIN]
    assert margin.bytes == round(0.05 * modelled)
    assert margin.known == "estimated"
    assert "no device has measured it" in margin.what
    assert plan.prefill == modelled + margin.bytes
    assert plan.mlx == plan.total - plan.of(terms.MARGIN, terms.CACHE, terms.APP)


def test_what_was_measured_on_the_cpu_has_no_margin():
    assert terms.MARGIN not in [term.name for term in request().plan("cpu").terms]


@pytest.mark.parametrize("rows", [0, 64])
def test_a_prompt_shorter_than_a_chunk_is_planned_as_long_as_it_is(rows):
    short = request(max_kv=rows, context=100)
    as_chunk = request(max_kv=rows, context=100, step=100)
    assert short.plan("iphone").total == as_chunk.plan("iphone").total
    assert short.plan("iphone").total < request(max_kv=rows, context=512).plan("iphone").total
