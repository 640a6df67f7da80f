"""The Swift samples of the documentation."""

import pytest

from h2o_pack import assets
from tests.bridge.golden import DEMO, SEVERAL, module, package_files
from tests.bridge.trees import build_tree
from tests.bridge.type_check.checker import assert_silent
from tests.bridge.type_check.samples import samples

PACKAGES = {"ChatModel": DEMO, "DuoModel": SEVERAL}
"""The modules that the samples import: a package of one model, and one of two."""
PAGES = {
    path.relative_to(assets.root()).as_posix(): path.read_text("utf-8")
    for pattern in ("*.md", "docs/**/*.md", "swift_templates/**/*.md")
    for path in assets.root().glob(pattern)
}
SAMPLES = {page: samples(page, text, *PACKAGES) for page, text in PAGES.items()}
FILES = {path.name: path.read_text("utf-8") for path in assets.root().glob("docs/samples/*")}


@pytest.mark.swift
def test_each_sample_compiles_as_it_stands_in_its_page(checker, kit, tmp_path):
    for name, package in PACKAGES.items():
        place, files = f"Sources/{module(package)}/", package_files(package).items()
        model = {path: text for path, text in files if path.startswith(place)}
        build_tree(tmp_path, model)
        assert_silent(checker.make(name, [tmp_path / path for path in model]))
    files = {name: text for each in (FILES, *SAMPLES.values()) for name, text in each.items()}
    assert_silent(checker.check(files, tmp_path / "samples"))


@pytest.mark.parametrize("page", PAGES)
def test_no_block_of_swift_is_left_out(page):
    assert len(SAMPLES[page]) == PAGES[page].count("```swift")
