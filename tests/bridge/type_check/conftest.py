"""The compiler with the modules that an app on an iPhone may import."""

from pathlib import Path

import pytest

from h2o_pack.parity.swift import prepare
from tests.bridge.golden import APART, DEMO, FETCHED, package_files
from tests.bridge.trees import build_tree
from tests.bridge.type_check.checker import Checker, build_modules


@pytest.fixture(scope="session")
def checker(demo_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Checker:
    host = prepare(demo_package)
    build_modules(host)
    checker = Checker(host, tmp_path_factory.mktemp("modules"))
    checker.declare()
    return checker


@pytest.fixture(scope="session")
def kit(checker: Checker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make H2OKit as an iPhone has it: with UIKit, and with each way to deliver a model.

    What the compiler says of it.
    """
    folder, place = tmp_path_factory.mktemp("kit"), "Sources/H2OKit/"
    sources = {
        path: text
        for name in (DEMO, APART, FETCHED)
        for path, text in package_files(name).items()
        if path.startswith(place) and path.endswith(".swift")
    }
    build_tree(folder, sources)
    return checker.make("H2OKit", [folder / path for path in sources])
