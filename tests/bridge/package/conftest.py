"""A package that tests copy and change, which takes less than making it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from h2o_pack.cli import main


@pytest.fixture(scope="session")
def demo_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Package the demo model as the fixture `ios` does without options."""
    package = tmp_path_factory.mktemp("once") / "Demo"
    arguments = ["ios", "--model", "demo", "--max-kv", "96", "--output", str(package)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return package
