"""The table of the peers' complaints: complete, and each test that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.conftest import ROOT, SOURCES

PAGE = SOURCES["complaints.md"]
ROW = re.compile(r"^\| (\d+) \|(.*)\|(.*)\|(.*)\|$", re.MULTILINE)
ROWS = {int(row[0]): tuple(cell.strip() for cell in row[1:]) for row in ROW.findall(PAGE)}
XCTESTS = ROOT / "swift_templates/Tests"


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the tests of a Python file, those of classes as Class::name."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    found = set()
    for each in tree.body:
        if isinstance(each, ast.FunctionDef):
            found.add(each.name)
        if isinstance(each, ast.ClassDef):
            members = [m for m in each.body if isinstance(m, ast.FunctionDef)]
            found |= {f"{each.name}::{member.name}" for member in members}
    return frozenset(found)


def exists(test: str) -> bool:
    """Whether a pytest node or an XCTest of the package exists."""
    if "::" in test:
        path, _, name = test.partition("::")
        return (ROOT / path).is_file() and name in names_in(path)
    suite, _, name = test.partition(".")
    sources = [path.read_text("utf-8") for path in sorted(XCTESTS.rglob("*.swift*"))]
    pattern = rf"\bclass {suite}\b.*?\bfunc {name}\("
    return any(re.search(pattern, source, re.DOTALL) for source in sources)


def test_there_are_twenty_two_in_order_each_with_its_source():
    assert list(ROWS) == list(range(1, 23))
    for number, (complaint, behavior, _) in ROWS.items():
        assert re.search(r"#\d+|Apple", complaint), number
        assert len(behavior) > 20, number


@pytest.mark.parametrize("number", ROWS)
def test_each_names_tests_that_exist_or_says_why_there_is_none(number):
    tests = ROWS[number][2]
    named = re.findall(r"`([^`]+)`", tests)
    if not named:
        assert re.match(r"no test: \w+", tests), tests
    for test in named:
        assert exists(test), test


def test_most_have_a_test():
    assert sum("`" in tests for _, _, tests in ROWS.values()) >= 20


def test_a_test_that_does_not_exist_is_found():
    assert exists("MetalCheckTests.testAnEmptyLibraryIsNone")
    assert not exists("MetalCheckTests.testNothing")
    assert not exists("NothingTests.testAnEmptyLibraryIsNone")
    assert exists("tests/docs/test_complaints.py::test_most_have_a_test")
    assert not exists("tests/docs/test_complaints.py::test_nothing")
    assert not exists("tests/docs/nothing.py::test_most_have_a_test")
