from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

import h2o_pack
from h2o_pack import facts
from h2o_pack.errors import UserError
from h2o_pack.files.toml import read_tables
from h2o_py._pins import VERSIONS


def test_pinned_commits_are_whole_commit_ids():
    for pin in facts.pins().values():
        assert pin.commit == "" or re.fullmatch("[0-9a-f]{40}", pin.commit)
        assert pin.source.startswith("https://")


def test_the_pins_are_those_that_the_package_depends_on():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for name, version in VERSIONS.items():
        assert re.findall(rf'"{name}(?:\[cpu\])?==([\d.]+)[";]', project).count(version) >= 1


def test_the_version_is_that_of_the_installed_package():
    assert h2o_pack.__version__ == metadata.version("h2o-pack")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("", "[[pin]]: Object missing required field `version` (PATH:1)"),
        ("version = 1", "[[pin]]: Expected `str`, got `int` - at `$.version` (PATH:1)"),
        (
            'versions = "1"',
            "[[pin]] has an unknown key 'versions' (PATH:1). Did you mean \"version\"?",
        ),
        (
            'version = "1"\n[[pins]]',
            "unknown key 'pins': the file has [[upstream_version]], [[pin]] (PATH)",
        ),
    ],
)
def test_a_fact_that_does_not_fit_its_type_is_refused(tmp_path, row, message):
    path = tmp_path / "upstream.toml"
    path.write_text(f'[[pin]]\nname = "x"\nsource = "y"\nmeasured = true\n{row}\n')
    with pytest.raises(UserError, match=re.escape(message.replace("PATH", str(path)))):
        read_tables(path, facts.UpstreamFile)
