from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_pack.bundling.manifest import check_paths
from h2o_pack.errors import ExitCode, UserError
from tests.bridge.refusals import refused
from tests.messages import says


def refusal(*paths):
    return refused(check_paths, paths, code=ExitCode.MODEL)


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("../x.json", "leads out of its folder"),
        ("a/../../x.json", "leads out of its folder"),
        ("a//b", "leads out of its folder"),
        ("./config.json", "leads out of its folder"),
        ("a/", "leads out of its folder"),
        ("/etc/passwd", "is not inside the model's folder"),
        ("", "is not a name"),
        ("a\0b", "has control or unprintable characters"),
        ("a\nb.json", "has control or unprintable characters"),
        ("\ud800.json", "has control or unprintable characters"),
        ("..\\x.json", "has a backslash"),
        ("C:\\x.json", "has a backslash"),
        ("~/x.json", "is not inside the model's folder"),
        ("Resources/config.json", "a folder named Resources"),
        ("a/rEsOuRcEs/config.json", "a folder named Resources"),
        ("x" * 256, "is too long"),
        ("ü" * 128, "is too long"),
    ],
)
def test_a_path_that_may_not_be_written_is_refused(path, what):
    assert what in refusal(path)


@pytest.mark.parametrize(
    "paths",
    [
        ("config.json", "Config.JSON"),
        ("straße.json", "STRASSE.json"),
        (unicodedata.normalize("NFC", "é.json"), unicodedata.normalize("NFD", "é.json")),
        ("sub", "SUB/config.json"),
        ("sub/config.json", "Sub"),
        ("manifest.json",),
        ("MANIFEST.json",),
        ("a.json", "a.json"),
    ],
)
def test_names_that_are_one_on_apples_disks_are_refused(paths):
    says(refusal(*paths))


def test_usual_names_pass():
    check_paths(
        [
            "config.json",
            "model-00001-of-00002.safetensors",
            "1_Pooling/config.json",
            "Resources",
        ]
    )
    check_paths(
        ["sub/a.json", "sub/b.json", "sub/deep/a.json", "ünïcode 🦙.json", "ab:c", "-x"]
    )


def test_all_that_is_wrong_is_said_and_nothing_odd_reaches_the_terminal():
    with pytest.raises(UserError) as caught:
        check_paths(["../x", "fine.json", "\x1b[2J\u202e"])
    assert len(caught.value.errors) == 2
    assert str(caught.value).isascii()


hostile = st.text(st.sampled_from("./\\aA\0\n~é:🦙"), max_size=12)


@given(st.lists(hostile | st.text(max_size=20), max_size=5))
def test_what_passes_stays_below_the_folder_and_is_distinct(paths):
    try:
        check_paths(paths)
    except UserError:
        return
    for path in paths:
        pure = PurePosixPath(path)
        assert not pure.is_absolute()
        assert ".." not in pure.parts
        assert pure.as_posix() == path
        path.encode()
    folded = {unicodedata.normalize("NFD", path).casefold() for path in paths}
    assert len(folded) == len(paths)
