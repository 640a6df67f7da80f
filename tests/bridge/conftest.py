"""A small model, a copy of the assets, and the command line."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from h2o_pack import assets, facts
from h2o_pack.cli import main
from h2o_pack.errors import ExitCode
from h2o_pack.model import Model
from h2o_pack.models.files import from_folder
from h2o_pack.package.build import make_package
from h2o_pack.parity import swift
from h2o_pack.spec import CacheSpec
from tests.bridge.faults import with_faults
from tests.bridge.plans import plan_of
from tests.bridge.repositories import GitServer, Repositories, make_repositories
from tests.bridge.trees import write_model


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the devices and models of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("H2O_PACK_DEVICES", "H2O_PACK_MODELS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return from_folder("tiny", write_model(tmp_path / "tiny"))


@pytest.fixture
def tiny_package(model: Model, tmp_path: Path) -> Path:
    """Make a package of the small model in tmp_path / "Demo"."""
    return make_package(plan_of(model, CacheSpec(max_kv=512)), tmp_path / "Demo").folder


@pytest.fixture(scope="session")
def demo_package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a package of the bundled demo model, whose builds the tests share.

    The builds contain the faults of tests/bridge/faults.py.
    """
    output = tmp_path_factory.mktemp("demo") / "Demo"
    arguments = ["ios", "--model", "demo", "--max-kv", "64", "--output", str(output)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output

    def standin_files(package: Path) -> dict[str, Path | str]:
        files = original(package)
        if package != output.resolve():
            return files
        # Parity builds the package as it is, so that all tests share one build.
        return with_faults({**files, "Package.swift": package / "Package.swift"})

    original = swift.standin_files
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swift, "standin_files", standin_files)
        yield output


@pytest.fixture
def run() -> Callable[..., Result]:
    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return invoke


@pytest.fixture
def ios(run: Callable[..., Result], tmp_path: Path) -> Callable[..., Result]:
    """Package a model in tmp_path / "Demo" by the command, whose exit code is checked."""

    def command(*options: object, model="demo", max_kv=96, code=ExitCode.OK) -> Result:
        all_options = ("--model", model, "--max-kv", max_kv, "--output", tmp_path / "Demo")
        result = run("ios", *all_options, *options)
        assert result.exit_code == code, result.output
        return result

    return command


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
    repositories = make_repositories(tmp_path)
    monkeypatch.setattr(facts, "FOLDER", repositories.facts)
    facts.pins.cache_clear()
    yield repositories
    facts.pins.cache_clear()


@pytest.fixture
def server(repositories: Repositories) -> Iterator[GitServer]:
    """Serve them on the loopback."""
    server = GitServer(repositories.mirror)
    yield server
    server.close()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"
