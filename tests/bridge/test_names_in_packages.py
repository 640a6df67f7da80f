"""Whatever a package or its model is called: its files stay inside and its Swift is whole."""

from __future__ import annotations

import dataclasses
import json
import plistlib
import re
from pathlib import Path, PurePosixPath

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_pack import assets, lock, write
from h2o_pack.models.resolve import from_folder
from h2o_pack.package import TEMPLATES
from h2o_pack.plan import CacheOptions, make_plan
from h2o_pack.render import render
from tests.bridge import openstep
from tests.bridge.trees import write_model

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", '"': '"', "'": "'", "\\": "\\"}
PATHS = ["../x", "/etc/passwd", "-", ".", "//"]
SWIFT = ["class", '"', "\\(x)", "a\nb", "*/", "{{ x }}", "${{ x }}", "$(x)"]
UNICODE = ["\u2028", "\0", "\udcff", "\U0001f389"]
NASTY = st.sampled_from(PATHS + SWIFT + UNICODE)
NAMES = st.one_of(st.text(), NASTY, st.lists(NASTY, min_size=1).map("".join))
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')


@pytest.fixture(scope="module")
def plain_plan(tmp_path_factory):
    model = from_folder("tiny", write_model(tmp_path_factory.mktemp("model") / "tiny"))
    return make_plan(model, CacheOptions(max_kv=512))


def rendered(plan, model_id: str, name: str) -> dict[str, str]:
    named = make_plan(dataclasses.replace(plan.model, id=model_id), CacheOptions(512), name)
    return render(named, assets.root(), TEMPLATES)


def decode(literal: str) -> str:
    """Read a Swift string literal; ValueError for what Swift would refuse or interpolate."""
    body, result, index = literal[1:-1], [], 0
    while index < len(body):
        character = body[index]
        if character != "\\":
            result.append(character)
            index += 1
        elif unicode := re.match(r"\\u\{([0-9A-Fa-f]{1,8})\}", body[index:]):
            result.append(chr(int(unicode[1], 16)))
            index += unicode.end()
        elif body[index + 1] in ESCAPES:
            result.append(ESCAPES[body[index + 1]])
            index += 2
        else:
            raise ValueError(f"{literal} has an escape that is none of plain text")
    return "".join(result)


def strings(swift: str) -> list[str]:
    code = "\n".join(re.sub(r"^\s*//.*", "", line) for line in swift.split("\n"))
    return LITERAL.findall(code)


def as_text(text: str) -> str:
    """What Swift can hold of a text: lone surrogates become U+FFFD."""
    return "".join("\ufffd" if 0xD800 <= ord(each) < 0xE000 else each for each in text)


@settings(max_examples=60, deadline=None)
@given(model_id=NAMES, name=NAMES)
def test_any_name_gives_files_inside_and_swift_that_reads_back(plain_plan, model_id, name):
    files = rendered(plain_plan, model_id, name)

    for path in files:
        parts = PurePosixPath(path).parts
        assert not path.startswith("/")
        assert not {"", ".", ".."} & set(path.split("/"))
        assert re.fullmatch(r"[\w .+-]+", "".join(parts), re.ASCII), path
    model = next(text for path, text in files.items() if path.endswith("/BundledModel.swift"))
    [literal] = [
        each for line in model.splitlines() if "let id = " in line for each in strings(line)
    ]
    assert decode(literal) == as_text(model_id)

    manifest = files["Package.swift"]
    found = [decode(each) for each in strings(manifest)]
    package, module = (
        json.loads(files[lock.NAME])["package"],
        json.loads(files[lock.NAME])["module"],
    )
    assert found[0] == package
    assert re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", package, re.ASCII)
    assert re.fullmatch(r"[A-Z]\w*", module, re.ASCII)
    assert f"{module}Model" in found
    assert f"Sources/{module}Model/BundledModel.swift" in files


@settings(max_examples=30, deadline=None)
@given(model_id=NAMES, name=NAMES)
def test_what_is_not_swift_stays_readable(plain_plan, model_id, name):
    files = rendered(plain_plan, model_id, name)

    assert yaml.safe_load(files[".github/workflows/parity.yml"])["jobs"]
    assert openstep.read(files["App/Chat.xcodeproj/project.pbxproj"])["objects"]
    assert plistlib.loads(files["App/Info.plist"].encode())
    recorded = json.loads(files[lock.NAME])
    assert recorded["model"] == model_id
    for text in files.values():
        assert all(each.isprintable() or each in "\n\t" for each in text)


@settings(max_examples=15, deadline=None)
@given(name=NAMES)
def test_writing_them_touches_nothing_outside(plain_plan, name, tmp_path_factory):
    outer = tmp_path_factory.mktemp("outer")
    write.write_files(outer / "package", rendered(plain_plan, name, name))
    assert [path.name for path in outer.iterdir()] == ["package"]
    assert (outer / "package" / "Package.swift").is_file()
    assert all(not path.is_symlink() for path in Path(outer).rglob("*"))


@pytest.mark.parametrize("literal", ['"\\(x)"', '"\\q"', '"\\u{}"'])
def test_the_decoder_refuses_what_is_no_plain_text(literal):
    with pytest.raises(ValueError, match="has an escape"):
        decode(literal)
