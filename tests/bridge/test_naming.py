import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.naming import (
    bundle_id,
    check_bundle_id,
    display_name,
    file_name,
    model_display_name,
    module_name,
    name_remarks,
    package_name,
    swift_string,
    xml_text,
)
from tests.messages import refused, says

SWIFT_ESCAPE = re.compile(r'\\u\{([0-9A-F]{1,6})\}|\\(["\\])')


def read_swift_literal(literal: str) -> str:
    """Read a literal as Swift would, by the escapes that swift_string may use."""
    assert literal[0] == literal[-1] == '"'
    body = literal[1:-1]
    assert all(" " <= character <= "~" for character in body)
    plain = SWIFT_ESCAPE.sub("", body)
    assert "\\" not in plain
    assert '"' not in plain
    return SWIFT_ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2], body)


@given(st.text())
def test_a_swift_string_reads_back_as_the_text_it_was_made_from(text):
    assert read_swift_literal(swift_string(text)) == text


def test_a_lone_surrogate_becomes_the_replacement_character():
    assert swift_string("\ud800") == '"\\u{FFFD}"'


@given(st.text())
def test_a_module_name_is_a_swift_identifier(text):
    assert re.fullmatch(r"[A-Z][A-Za-z0-9_]{0,64}", module_name(text))


@given(st.text())
def test_a_package_name_is_a_plain_file_name(text):
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", package_name(text))


@given(st.text(), st.text())
def test_the_bundle_identifier_of_any_name_is_one_that_apple_takes(name, maker):
    package = package_name(name)
    for identifier in (bundle_id(package), bundle_id(package, maker)):
        assert check_bundle_id(identifier) == identifier


def test_two_makers_of_one_package_have_two_bundle_identifiers():
    first, second = (bundle_id("Qwen2.5_Chat", maker) for maker in ("ann", "bob"))
    assert first != second
    assert re.fullmatch(r"org\.example\.Qwen2-5-Chat-[0-9a-f]{8}", first)


@pytest.mark.parametrize(
    "identifier",
    ["Chat", "com.example.", ".com.example", "com..a", "com.a b", "com.a_b", "com.\u00e9"],
)
def test_a_bundle_identifier_that_apple_refuses_is_refused(identifier):
    says(refused(check_bundle_id, identifier, code=ExitCode.USAGE))
    with pytest.raises(UserError, match="155 characters"):
        check_bundle_id("com." + "a" * 152)


@given(st.text())
def test_a_display_name_can_be_shown_and_read_back_from_xml(text):
    shown_name = display_name(text, "Chat")
    assert shown_name
    assert shown_name.isprintable()
    assert html.unescape(xml_text(shown_name)) == shown_name
    assert xml_text(shown_name).isascii()


@given(st.text())
def test_naming_twice_changes_nothing(text):
    assert package_name(package_name(text)) == package_name(text)
    assert module_name(package_name(text)) == module_name(text)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("My Chat", "My Chat"),
        ("名前", "名前"),
        ("../../etc", "etc"),
        ("AC/DC: live", "AC-DC- live"),
        ("...", "H2O"),
    ],
)
def test_the_folder_and_the_project_have_the_name_as_it_is(name, folder):
    assert file_name(name, package_name(name)) == folder


@given(st.text())
def test_the_name_of_a_folder_is_one_of_any_file_system(text):
    name = file_name(text, package_name(text))
    assert 1 <= len(name.encode()) <= 64
    assert name == name.strip("-. ")
    assert not set(name) & set('/\\:*?"<>|\0')


@pytest.mark.parametrize(
    ("name", "package", "module"),
    [
        ("Qwen3-4B-4bit", "Qwen3-4B-4bit", "Qwen3_4B_4bit"),
        ("My Chat", "My-Chat", "MyChat"),
        ("Llama-3.2-1B-it", "Llama-3.2-1B-it", "Llama_3_2_1BIt"),
        ("\u540d\u524d", "MingQian", "MingQian"),
        ("\u041c\u043e\u0439 \u0447\u0430\u0442", "Moy-chat", "MoyChat"),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", "hindi", "Hindi"),
        ("demo", "demo", "Demo"),
        ("class", "class", "Class"),
        ("3b", "3b", "M3b"),
        ("My App \N{PARTY POPPER}", "My-App", "MyApp"),
        ("\N{PARTY POPPER}", "H2O", "H2O"),
        ("", "H2O", "H2O"),
        ("../../etc/passwd", "etc-passwd", "EtcPasswd"),
        ("caf\u00e9", "cafe", "Cafe"),
        ('a"b\nc', "a-b-c", "ABC"),
    ],
)
def test_names_become_usable(name, package, module):
    assert package_name(name) == package
    assert module_name(name) == module


def test_a_model_is_called_by_the_last_part_of_its_id():
    assert model_display_name("mlx-community/Qwen3-4B-4bit") == "Qwen3-4B-4bit"
    assert model_display_name("demo") == "demo"


@pytest.mark.parametrize(
    ("name", "count"), [("\N{PARTY POPPER}", 1), ("名前", 0), ("H2O-x", 0)]
)
def test_a_name_of_which_nothing_is_left_is_said(name, count):
    assert len(name_remarks(name)) == count
