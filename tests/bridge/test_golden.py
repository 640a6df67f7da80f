"""Packages and pages, file by file, against committed text; `make golden` updates it."""

from __future__ import annotations

import difflib

import pytest

from tests.bridge.golden import COPIED, FOLDER, PACKAGES, PAGES, golden_files
from tests.bridge.trees import tree


@pytest.mark.parametrize("name", [*PACKAGES, PAGES])
def test_what_is_generated_is_as_committed(name):
    made, committed = golden_files(name), tree(FOLDER / name)
    assert sorted(made) == sorted(committed), "run `make golden` and look at the diff"
    for path, text in made.items():
        difference = difflib.unified_diff(
            committed[path].splitlines(), text.splitlines(), "committed", "made", lineterm=""
        )
        assert text == committed[path], "\n".join(
            [f"{name}/{path}, `make golden`?", *difference]
        )


def test_what_depends_on_the_model_is_committed_and_the_rest_is_copied():
    texts, copied = golden_files("demo"), golden_files("demo")[COPIED]
    assert "Sources/DemoModel/BundledModel.swift" in texts
    assert "App/Chat.xcodeproj/project.pbxproj" in texts
    assert (
        "Sources/H2OKit/H2OKVCache.swift <- swift_templates/H2OKit/H2OKVCache.swift" in copied
    )
    assert "Sources/H2OKit/H2OKVCache.swift" not in texts
