"""The Swift that the page on sessions shows is what a package's tests compile."""

from __future__ import annotations

import re
from textwrap import dedent

from tests.docs.conftest import ROOT, SOURCES

SOURCE = ROOT / "swift_templates/Tests/H2OFoundationModelsTests/Examples.swift.j2"
FUNCTION = re.compile(r"^( *)func \w+\([^{]*\{\n(.*?)^\1\}$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```swift\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def compiled() -> list[str]:
    return [dedent(body) for _, body in FUNCTION.findall(SOURCE.read_text("utf-8"))]


def shown() -> list[str]:
    return BLOCK.findall(SOURCES["using-the-session.md"])


def test_each_example_is_compiled_and_each_compiled_one_is_shown():
    assert sorted(shown()) == sorted(compiled())
