"""Published memory of apps on a phone, beside what the plan says of the same."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from h2o_pack.devices.catalogue import catalogue
from h2o_pack.facts import FOLDER, known_models
from h2o_pack.files.toml import read_rows
from h2o_pack.models.catalogue import as_model
from tests.bridge.memory.described import request


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


def planned(each: Footprint) -> int:
    """The bytes of the same conversation with the model's own cache."""
    model = as_model(known_models()[each.model])
    (device,) = catalogue().find(each.identifier)
    context = each.prompt + each.generated
    return request(model, 0, context=context, step=each.prompt).plan(device.backend).total


@pytest.mark.parametrize("each", PUBLISHED, ids=lambda each: each.model)
def test_a_published_footprint_is_planned_within_a_twelfth(each):
    assert planned(each) == pytest.approx(each.mebibytes * 2**20, rel=1 / 12)


def test_plans_are_above_the_footprints_on_average():
    errors = [planned(each) / (each.mebibytes * 2**20) - 1 for each in PUBLISHED]
    assert sum(errors) / len(errors) > 0
