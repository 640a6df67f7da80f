"""The source states each thing once, and only what is used."""

import shutil
import tempfile
from pathlib import Path

import pytest

from interface.generate import ROOT, TARGETS
from interface.source import FOLDER, SourceError, read
from interface.usage import check_used
from tests.messages import says


@pytest.fixture
def folder(tmp_path):
    """A copy of the source."""
    copy(tmp_path)
    return tmp_path


def copy(folder):
    for file in FOLDER.glob("*.toml"):
        shutil.copy(file, folder / file.name)


def change(folder, file, old, new):
    path = folder / file
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


FIELD = """
[[field]]
name = "row_weight"
type = "number"
least = 0
default = 0.0
meaning = "Weight of a row."
flag = "--row-weight"
help = "Weight of a token."
kernel = true

[[score]]"""


def test_every_setting_is_used_by_the_oracle_and_the_core_or_by_a_rule():
    check_used(read(), ROOT, (target.path for target in TARGETS))


def test_a_setting_that_no_formula_uses_is_refused(folder):
    change(folder, "policy.toml", "\n[[score]]", FIELD)
    with pytest.raises(SourceError) as caught:
        check_used(read(folder), ROOT, (target.path for target in TARGETS))
    says(str(caught.value))


def test_a_setting_of_recall_that_nothing_reads_is_refused(folder):
    field = """
[[recall.field]]
name = "patience"
type = "integer"
least = 0
default = 1
meaning = "Prompts that go by."
help = "prompts that go by"
"""
    policy = folder / "policy.toml"
    policy.write_text(policy.read_text("utf-8") + field, "utf-8")
    with pytest.raises(SourceError) as caught:
        check_used(read(folder), ROOT, (target.path for target in TARGETS))
    says(str(caught.value))


# What is said of each is in tests/golden/pages/contradictions.txt.
CONTRADICTIONS = (
    ("policy.toml", 'name = "max_size"', 'name = "max_size"\ncolor = 3'),
    ("policy.toml", 'type = "integer"', 'type = "int"'),
    ("policy.toml", "values = { decay = 0.97", "values = { decai = 0.97"),
    ("errors.toml", "pin less.", "pin {fewer}."),
    ("storages.toml", "key = 8", "key = 7"),
)


def contradictions():
    """Return each change of the source with what is said of it."""
    told = []
    for file, old, new in CONTRADICTIONS:
        with tempfile.TemporaryDirectory() as folder:
            copy(Path(folder))
            change(Path(folder), file, old, new)
            with pytest.raises(SourceError) as caught:
                read(Path(folder))
        told.append(f"{file}: {new}\n{caught.value}\n")
    return "\n".join(told)
