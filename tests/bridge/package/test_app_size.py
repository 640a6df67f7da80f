"""What `ios` says of the bytes that models add to an app."""

from __future__ import annotations

import json

import pytest

from h2o_pack.bundling import manifest
from tests.bridge import schemas


@pytest.fixture
def package(run, tmp_path):
    """Package the demo model without Vendor; return the result of the command."""
    output = ("--output", tmp_path / "Demo", "--no-vendor")
    return lambda *options: run("ios", "--model", "demo", "--max-kv", 96, *output, *options)


def test_the_bytes_in_the_app_are_those_of_the_files_that_are_bundled(package, tmp_path):
    document = schemas.check(json.loads(package("--json").stdout), "ios")
    assert document["in_app_bytes"] == manifest.read(tmp_path / "Demo").size


@pytest.mark.parametrize("way", [("--asset-pack",), ("--download", "https://example.com/m")])
def test_a_model_that_comes_apart_from_the_app_adds_nothing_to_it(package, way):
    result = package(*way, "--json", "--dry-run")
    assert json.loads(result.stdout)["in_app_bytes"] == 0
    assert "that the store allows" not in package(*way, "--dry-run").stdout


def test_the_summary_compares_them_with_what_the_store_allows(package):
    said = " ".join(package("--dry-run").stdout.replace("\u2502", " ").split())
    assert "4.0 MB of the 4,000 that the store allows an app; its code is not counted" in said
