"""A small model, a copy of the assets, and the command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from h2o_pack import assets, facts
from h2o_pack.cli import main
from h2o_pack.model import Model
from h2o_pack.models.files import from_folder
from tests.bridge.repositories import GitServer, Repositories, make_repositories
from tests.bridge.trees import write_model


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return from_folder("tiny", write_model(tmp_path / "tiny"))


@pytest.fixture(scope="session")
def demo_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package of the bundled demo model; its builds are shared by the tests."""
    output = tmp_path_factory.mktemp("demo") / "Demo"
    arguments = ["ios", "--model", "demo", "--max-kv", "64", "--output", str(output)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return output


@pytest.fixture
def run() -> Callable[..., Result]:
    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(each) for each in arguments])

    return invoke


@pytest.fixture
def copied_assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the tool use a copy of the assets, which a test may change."""
    source = assets.root()
    copy = tmp_path / "assets"
    for name in ("swift_templates", "cexport", "metal"):
        shutil.copytree(source / name, copy / name)
    shutil.copyfile(source / assets.MARKER, copy / assets.MARKER)
    monkeypatch.setattr(assets, "root", lambda: copy)
    return copy


@pytest.fixture
def repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repositories]:
    """Make small repositories of upstream's names, which the facts then pin."""
    made = make_repositories(tmp_path)
    monkeypatch.setattr(facts, "FOLDER", made.facts)
    facts.pins.cache_clear()
    yield made
    facts.pins.cache_clear()


@pytest.fixture
def server(repositories: Repositories) -> Iterator[GitServer]:
    """Serve them on the loopback."""
    made = GitServer(repositories.mirror)
    yield made
    made.close()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"
