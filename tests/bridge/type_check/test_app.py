"""The app, and the files of H2OKit that only Apple's systems compile."""

import re

import pytest

from tests.bridge.golden import (
    APART,
    DEMO,
    FETCHED,
    PACKAGES,
    SEVERAL,
    module,
    package_files,
)
from tests.bridge.trees import build_tree
from tests.bridge.type_check.checker import assert_silent
from tests.bridge.type_check.samples import samples
from tests.nightly import nightly_except

pytestmark = pytest.mark.swift


def test_the_caches_compile_with_uikit_and_background_assets(kit):
    assert_silent(kit)


@pytest.mark.parametrize("name", nightly_except([DEMO, APART, FETCHED, SEVERAL], PACKAGES))
def test_the_model_the_app_and_the_readme_of_a_package_compile(name, checker, kit, tmp_path):
    model = sources(name, f"Sources/{module(name)}/")
    build_tree(tmp_path, model)
    assert_silent(checker.make(module(name), [tmp_path / path for path in model]))
    readme = samples("README.md", package_files(name)["README.md"], module(name))
    assert len(readme) == 2
    assert_silent(checker.check({**sources(name, "App/Chat/"), **readme}, tmp_path))


def test_the_extension_that_fetches_an_asset_pack_compiles(checker, tmp_path):
    assert_silent(checker.check(sources(APART, "App/Downloader/"), tmp_path))


def sources(name, folder):
    return {
        path: text
        for path, text in package_files(name).items()
        if path.startswith(folder) and path.endswith(".swift")
    }


WRONG = """\
import SwiftUI

struct Wrong: View {
    var body: some View { Text("a").lineLimits(2) }
    var label: some View { Button("a", systemImge: "doc") {} }
    var padded: some View { Text("a").padding(.bottom, "8") }
    nonisolated func copy() { UIPasteboard.general.string = "a" }
}
"""


def test_misspelt_names_wrong_types_and_other_threads_are_found(checker, kit, tmp_path):
    messages = checker.check({"Wrong.swift": WRONG}, tmp_path)
    lines = re.findall(r"Wrong.swift:(\d+):\d+: error: ", messages)
    assert sorted(set(lines)) == ["4", "5", "6", "7"], messages
