"""What property tests try: the same in every run, anything in `make fuzz`."""

from __future__ import annotations

from hypothesis import settings

from tests import fuzz
from tests.processes import python

FAILING = """
from hypothesis import given, settings, strategies
@settings(database=None)
@given(number=strategies.integers(), word=strategies.just("a(b"))
def test_small(number, word):
    assert number < 1000
"""


def test_a_test_run_tries_the_same_examples_each_time():
    assert settings().derandomize
    assert settings().database is None
    assert settings().deadline is None


def test_the_random_search_finds_an_example_and_prints_it_as_a_decorator(tmp_path):
    (tmp_path / "test_failing.py").write_text(FAILING)
    plugins = ("-p", "tests.fuzz", "-p", "no:cacheprovider")
    folder = ("--rootdir", tmp_path, "--confcutdir", tmp_path, "-c", "/dev/null")
    process = python("-m", "pytest", *plugins, *folder, tmp_path / "test_failing.py")
    assert process.returncode == 1
    output = process.stdout.partition(fuzz.FOUND)[2].replace("\n", "").replace(" ", "")
    assert '@example(number=1000,word="a(b",)' in output.replace("'", '"')


def test_the_files_with_property_tests_are_found():
    assert any(file.endswith("tests/h2o_py/test_traffic.py") for file in fuzz.property_tests())
