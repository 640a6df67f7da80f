from __future__ import annotations

from types import SimpleNamespace

import pytest

from h2o_pack.parity.case import TOLERANCES
from h2o_pack.prove import level_zero
from h2o_pack.prove.level_zero import Shape, compare, shapes
from h2o_py import fast
from h2o_py.models import STORAGES

SHAPES = (Shape("dense", 64, "bfloat16"), Shape("k8v4", 128, "float16"))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_core_agrees_with_the_reference(tmp_path, shape):
    case = compare(shape, tmp_path)
    assert case.equal
    assert case.comparisons >= 3 * len(level_zero.STEPS)


def test_every_storage_and_type_is_compared():
    made = set(shapes())
    assert {each.kv for each in made} == set(STORAGES)
    assert {each.dtype for each in made} == set(TOLERANCES)
    assert len({each.name + each.dtype for each in made}) == len(made)


def altered(**functions):
    return SimpleNamespace(**(vars(fast) | functions))


def test_a_kernel_that_computes_something_else_differs(tmp_path, monkeypatch):
    def wrong(*arguments, **options):
        attended = fast.cache_attend(*arguments, **options)
        return attended._replace(out=attended.out * 1.1)

    monkeypatch.setattr(level_zero, "fast", altered(cache_attend=wrong))
    case = compare(SHAPES[0], tmp_path)
    assert not case.equal
    assert case.first_difference.kind == "output"


def test_a_kernel_that_cannot_run_differs_and_says_why(tmp_path, monkeypatch):
    def refuses(*_arguments, **_options):
        raise RuntimeError("[h2o] h2o_attend can run with 512 threads per threadgroup")

    monkeypatch.setattr(level_zero, "fast", altered(cache_attend=refuses))
    case = compare(SHAPES[0], tmp_path)
    assert not case.equal
    assert "can run with 512 threads" in case.first_difference.detail
