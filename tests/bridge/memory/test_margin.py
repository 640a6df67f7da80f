"""What is added to a plan because nobody has measured it."""

from __future__ import annotations

import pytest

from h2o_pack.memory import terms
from tests.bridge.memory.described import request


@pytest.mark.parametrize("backend", ["iphone", "ipad", "mac"])
def test_a_twentieth_of_what_metal_is_modelled_to_hold_is_added_and_shown(backend):
    plan = request().plan(backend)
    modelled = plan.of(*terms.WORKING, terms.ROUNDING)
    (margin,) = [each for each in plan.terms if each.name == terms.MARGIN]
    assert margin.bytes == round(0.05 * modelled)
    assert margin.known == "estimated"
    assert "no device has measured it" in margin.what
    assert sum(each.bytes for each in plan.terms) == plan.total
    assert plan.prefill == modelled + margin.bytes


def test_what_was_measured_on_the_cpu_has_no_margin():
    assert terms.MARGIN not in [each.name for each in request().plan("cpu").terms]


def test_the_margin_is_no_part_of_what_mlx_counts():
    plan = request().plan("iphone")
    assert plan.mlx == plan.total - plan.of(terms.MARGIN, terms.CACHE, terms.APP)


@pytest.mark.parametrize("rows", [0, 64])
def test_a_prompt_shorter_than_a_chunk_is_planned_as_long_as_it_is(rows):
    short = request(max_kv=rows, context=100)
    as_chunk = request(max_kv=rows, context=100, step=100)
    assert short.plan("iphone").total == as_chunk.plan("iphone").total
    assert short.plan("iphone").total < request(max_kv=rows, context=512).plan("iphone").total
