"""The manifest of a bundled model, and the names of its files."""

import json
import unicodedata
from dataclasses import replace
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_pack.bundling import manifest
from h2o_pack.bundling.manifest import BundledFile, Manifest, check_paths
from h2o_pack.errors import ExitCode, UserError
from tests.bridge.trees import build_tree
from tests.messages import refused, says

FILES = tuple(
    BundledFile(path, 2, digit * 64)
    for path, digit in [
        ("model.safetensors", "1"),
        ("config.json", "2"),
        ("tokenizer.json", "3"),
        ("tokenizer_config.json", "4"),
        ("generation_config.json", "5"),
    ]
)
DIGEST = Manifest("tiny", FILES).digest


def changed(path: str) -> str:
    """Return the digest of a model of which one file has other content."""
    files = (replace(file, sha256="0" * 64) if file.path == path else file for file in FILES)
    return Manifest("tiny", tuple(files)).digest


@pytest.mark.parametrize("path", [file.path for file in FILES])
def test_the_digest_is_of_what_decides_the_caches_and_not_of_template_and_sampling(path):
    decides = path not in ("tokenizer_config.json", "generation_config.json")
    assert (changed(path) != DIGEST) == decides


def test_names_and_order_do_not_change_the_digest():
    assert Manifest("other", FILES[::-1], "c" * 40).digest == DIGEST


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    original = Manifest("tiny", FILES)
    build_tree(tmp_path, {"Model/manifest.json": original.to_json()})
    assert manifest.read(tmp_path) == original


def test_a_digest_that_is_not_of_the_files_is_refused(tmp_path):
    document = json.loads(Manifest("tiny", FILES).to_json()) | {"digest": "0" * 64}
    build_tree(tmp_path, {"Model/manifest.json": json.dumps(document)})
    says(refused(manifest.read, tmp_path, code=ExitCode.OUTPUT))


# Names


def refusal(*paths):
    return refused(check_paths, paths, code=ExitCode.MODEL)


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("../x.json", 'has an empty part, or a part "." or ".."'),
        ("a/../../x.json", 'has an empty part, or a part "." or ".."'),
        ("a//b", 'has an empty part, or a part "." or ".."'),
        ("./config.json", 'has an empty part, or a part "." or ".."'),
        ("a/", 'has an empty part, or a part "." or ".."'),
        ("/etc/passwd", "is not a relative path"),
        ("", "is not a name"),
        ("a\0b", "has control or unprintable characters"),
        ("a\nb.json", "has control or unprintable characters"),
        ("\ud800.json", "has control or unprintable characters"),
        ("..\\x.json", "has a backslash"),
        ("C:\\x.json", "has a backslash"),
        ("~/x.json", "is not a relative path"),
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
    with pytest.raises(UserError) as error:
        check_paths(["../x", "fine.json", "\x1b[2J\u202e"])
    assert len(error.value.errors) == 2
    assert str(error.value).isascii()


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
