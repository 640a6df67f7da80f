"""Packages and pages against committed text; `make golden` updates it."""

import difflib

import pytest

from tests import messages, ten_minutes
from tests.bridge.golden import FOLDER, PACKAGES, PAGES, STRANGER, golden_files
from tests.bridge.trees import tree
from tests.nightly import nightly_except


@pytest.mark.parametrize(
    "name", nightly_except([*PACKAGES, PAGES], [*PACKAGES, PAGES, STRANGER])
)
def test_what_is_generated_is_as_committed(name):
    generated = golden_files(name)
    committed = {path: text for path, text in tree(FOLDER).items() if path in generated}
    for path, text in generated.items():
        difference = difflib.unified_diff(
            committed.get(path, "").splitlines(), text.splitlines(), "committed", "generated"
        )
        assert text == committed.get(path), "\n".join([f"{path}, `make golden`?", *difference])


def test_what_a_stranger_sees_of_commands_that_run_no_model_is_as_committed():
    transcript = ten_minutes.transcript(without=("chat ", "ios --device"))
    assert transcript == ten_minutes.GOLDEN.read_text("utf-8")


def test_nothing_else_is_committed():
    generated = {path for name in (*PACKAGES, PAGES) for path in golden_files(name)}
    generated.add(STRANGER)
    others = {"models/Qwen3-4B-4bit/config.json", messages.FILE.name}
    assert set(tree(FOLDER)) - generated == others


def test_each_message_belongs_to_a_test():
    sources = "".join(
        path.read_text("utf-8") for path in (messages.ROOT / "tests").rglob("test_*.py")
    )
    assert [test for test in messages.committed() if f"def {test}(" not in sources] == []


def test_another_message_is_refused():
    with pytest.raises(AssertionError, match="make messages"):
        messages.says("No command says this.")
