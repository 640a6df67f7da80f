from __future__ import annotations

import re
from importlib import metadata

import pytest

import h2o_pack
from h2o_pack import facts
from h2o_py import _pins


def test_pinned_commits_are_whole_commit_ids():
    for pin in facts.pins().values():
        assert pin.commit == "" or re.fullmatch("[0-9a-f]{40}", pin.commit)
        assert pin.source.startswith("https://")


def test_the_pins_are_those_that_the_package_depends_on():
    required = metadata.requires("h2o-pack") or []
    for name in ("mlx", "mlx-lm"):
        pinned = f"=={facts.pins()[name].version}"
        found = [each for each in required if re.match(rf"{name}\b(?!-)", each)]
        assert found
        assert all(pinned in each for each in found)
    assert facts.pins()["mlx"].version == _pins.MLX_VERSION


def test_the_version_is_that_of_the_installed_package():
    assert h2o_pack.__version__ == metadata.version("h2o-pack")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"name": "x", "source": "y"}, "facts: [[pin]] number 1 lacks 'version'"),
        (
            {"name": "x", "version": 1, "source": "y", "measured": True},
            "facts: [[pin]] number 1: version should be of type str",
        ),
        (
            {"name": "x", "version": "1", "source": "y", "measured": True, "colour": "red"},
            "facts: [[pin]] number 1 has an unknown key 'colour'",
        ),
    ],
)
def test_a_fact_that_does_not_fit_its_schema_is_refused(row, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        facts.tables({"pin": [row]}, "pin", facts.Pin, "facts")
