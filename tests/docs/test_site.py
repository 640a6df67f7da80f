"""The site: its pages, and what they load."""

import os
import re
from pathlib import Path

import pytest

import h2o_py
from h2o_py import fast
from tests.processes import python

pytestmark = pytest.mark.nightly("test_pages.py, of their sources")
FROM_ELSEWHERE = re.compile(
    r"""(?:<(?:link|script|img|source|iframe)\b[^>]*\b(?:href|src|srcset)=|url\(|@import)"""
    r"""\s*["']?(?:[a-z][a-z+.-]*:)?//[^\s"')>]+"""
    r"""|class="(?:[^"]*\s)?(?:mermaid|md-source)[\s"]""",
    re.IGNORECASE,
)
"""What a page or a style loads, or lets the theme's script load, from another server."""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; any warning of mkdocs is an error, also of a page without navigation."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = ("-m", "mkdocs", "build", "--strict", "--site-dir", folder)
    process = python(*command, env=environment)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder


def test_no_program_is_published(site):
    assert not [path for path in site.rglob("*") if path.suffix in (".py", ".pyc")]


def test_no_page_loads_anything_from_elsewhere(site):
    for path in site.rglob("*"):
        if path.suffix in (".html", ".css"):
            assert FROM_ELSEWHERE.findall(path.read_text("utf-8")) == [], path


def test_every_public_python_name_is_in_the_reference(site):
    page = (site / "reference/python.html").read_text("utf-8")
    names = [
        f"h2o_py.fast.{name}"
        for name, value in vars(fast).items()
        if callable(value) and value.__module__ == fast.__name__ and not name.startswith("_")
    ]
    assert len(names) > 5
    for name in (*names, *(f"h2o_py.{name}" for name in h2o_py.__all__)):
        assert f'id="{name}"' in page, name
