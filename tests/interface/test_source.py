"""The source states each thing once, and only what is used."""

import shutil

import pytest

from interface.generate import ROOT, TARGETS
from interface.source import FOLDER, SourceError, read
from interface.usage import check_used


@pytest.fixture
def folder(tmp_path):
    """A copy of the source."""
    for file in FOLDER.glob("*.toml"):
        shutil.copy(file, tmp_path / file.name)
    return tmp_path


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
    assert str(caught.value) == (
        "interface/policy.toml: row_weight is stated, but the oracle (h2o_py/reference.py) "
        "and the core never uses it. Use it there or remove it."
    )


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "policy.toml",
            'name = "max_size"',
            'name = "max_size"\ncolor = 3',
            "policy.toml: Object contains unknown field `color` - at `$.field[0]`",
        ),
        (
            "policy.toml",
            'type = "integer"',
            'type = "int"',
            "policy.toml: Invalid enum value 'int' - at `$.field[0].type`",
        ),
        (
            "policy.toml",
            "max_size // 2",
            "max_sise // 2",
            "heavy_budget: its formula names 'max_sise', which is not a setting.",
        ),
        (
            "policy.toml",
            'error = "nothing_to_evict"',
            'error = "nothing_left"',
            "needs either an error or a warning of errors.toml.",
        ),
        (
            "policy.toml",
            "values = { decay = 0.97",
            "values = { decai = 0.97",
            "the policy tuned sets 'decai', which is not a setting.",
        ),
        (
            "errors.toml",
            "pin less.",
            "pin {fewer}.",
            "nothing_to_evict is worded with 'fewer', which it does not have.",
        ),
        (
            "storages.toml",
            "key = 8",
            "key = 7",
            "storages.toml: Invalid enum value 7 - at `$.storage[1].key`",
        ),
    ],
)
def test_a_source_that_contradicts_itself_is_refused(folder, file, old, new, message):
    change(folder, file, old, new)
    with pytest.raises(SourceError) as caught:
        read(folder)
    assert message in str(caught.value)
