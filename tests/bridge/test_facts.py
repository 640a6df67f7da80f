"""Facts, the assets, and the errors' exit codes."""

import re
from importlib import metadata
from pathlib import Path

import pytest

import h2o_pack
from h2o_pack import assets, facts
from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.files.toml import read_rows
from h2o_py._pins import VERSIONS
from tests.messages import refused, says


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
        ("= 3", "the file is not TOML"),
        ("", "[[pin]]: Object missing required field `version` (PATH:1)"),
        ("version = 1", "[[pin]]: Expected `str`, got `int` - at `$.version` (PATH:1)"),
        (
            'versions = "1"',
            "[[pin]] has an unknown key 'versions' (PATH:1). Did you mean \"version\"?",
        ),
        (
            'version = "1"\n[[pins]]',
            "unknown key 'pins': the file may have only [[pin]] (PATH)",
        ),
    ],
)
def test_a_fact_that_does_not_fit_its_type_is_refused(tmp_path, row, message):
    path = tmp_path / "upstream.toml"
    path.write_text(f'[[pin]]\nname = "x"\nsource = "y"\nmeasured = true\n{row}\n')
    with pytest.raises(UserError, match=re.escape(message.replace("PATH", str(path)))):
        read_rows(path, "pin", facts.Pin)


def test_a_wheel_finds_its_own_assets_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "site-packages" / "h2o_pack"
    (package / "_assets").mkdir(parents=True)
    (package / "_assets" / assets.MARKER).touch()
    monkeypatch.setattr(assets, "__file__", str(package / "assets.py"))
    assert assets.root() == package / "_assets"


def test_a_broken_installation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(assets, "__file__", str(tmp_path / "a" / "b" / "assets.py"))
    says(refused(assets.root, code=ExitCode.INTERNAL))


def test_an_error_says_what_where_and_what_next():
    error = UserError("no", where="h2o.toml:7", remedy="Go.", code=ExitCode.USAGE)
    assert str(error) == "no (h2o.toml:7). Go."
    assert str(UserError("no", remedy="Go.", code=ExitCode.TOOL)) == "no. Go."


@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("QWEN3-7B-4bit", 'Did you mean "Qwen3-8B-4bit"? '),
        ("qwen3-4b", 'Did you mean "Qwen3-4B-4bit"? '),  # which goes on, is nearer
        ("zebra", ""),
        ("", ""),
    ],
)
def test_the_nearest_name_is_offered_whatever_its_case(name, offer):
    assert nearest(name, ("Qwen3-8B-4bit", "Qwen3-4B-4bit", "Qwen3-4B-Instruct-4bit")) == offer
