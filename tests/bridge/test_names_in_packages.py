"""Whatever text a model is called by: Swift reads back the same, and nothing else breaks."""

from __future__ import annotations

import dataclasses
import json
import plistlib
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_pack import assets
from h2o_pack.files import lock, write
from h2o_pack.hub.resolve import resolve
from h2o_pack.package.contents import TEMPLATES
from h2o_pack.package.render import render
from h2o_pack.plan.package_plan import CacheOptions, make_plan
from tests.bridge import openstep

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", '"': '"', "'": "'", "\\": "\\"}
PATHS = ["../x", "/etc/passwd", "-", ".", "//"]
SWIFT = ["class", '"', "\\(x)", "a\nb", "*/", "{{ x }}", "${{ x }}", "$(x)"]
UNICODE = ["\u2028", "\0", "\udcff", "\U0001f389"]  # \udcff: a folder's byte that is no UTF-8
NASTY = st.sampled_from(PATHS + SWIFT + UNICODE)
NAMES = st.one_of(st.text(), NASTY, st.lists(NASTY, min_size=1).map("".join))
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')


def rendered(model_id: str, name: str) -> dict[str, str]:
    model = dataclasses.replace(resolve("demo"), id=model_id)
    return render(make_plan(model, CacheOptions(256), name), assets.root(), TEMPLATES)


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


@settings(max_examples=60)
@given(model_id=NAMES, name=NAMES)
def test_swift_reads_back_the_name_that_was_given(model_id, name):
    files = rendered(model_id, name)
    model = next(text for path, text in files.items() if path.endswith("/BundledModel.swift"))
    [line] = [line for line in model.splitlines() if "let id = " in line]
    [literal] = strings(line)
    assert decode(literal) == as_text(model_id)

    recorded = json.loads(files[lock.NAME])
    assert recorded["model"] == model_id
    found = [decode(each) for each in strings(files["Package.swift"])]
    assert found[0] == recorded["package"]
    assert f"{recorded['module']}Model" in found
    assert f"Sources/{recorded['module']}Model/BundledModel.swift" in files


@settings(max_examples=20)
@given(model_id=NAMES, name=NAMES)
def test_what_is_not_swift_can_be_read_and_written(model_id, name, tmp_path_factory):
    files = rendered(model_id, name)
    assert yaml.safe_load(files[".github/workflows/parity.yml"])["jobs"]
    assert openstep.read(files["App/Chat.xcodeproj/project.pbxproj"])["objects"]
    assert plistlib.loads(files["App/Info.plist"].encode())
    for text in files.values():
        assert all(each.isprintable() or each in "\n\t" for each in text)
    outer = tmp_path_factory.mktemp("outer")
    write.write_files(outer / "package", files)
    assert [path.name for path in outer.iterdir()] == ["package"]


@pytest.mark.parametrize("literal", ['"\\(x)"', '"\\q"', '"\\u{}"'])
def test_the_decoder_refuses_what_is_no_plain_text(literal):
    with pytest.raises(ValueError, match="has an escape"):
        decode(literal)
