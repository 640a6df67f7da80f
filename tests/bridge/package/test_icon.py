"""The icon that a generated app begins with."""

import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_pack import naming
from h2o_pack.package.icon import FONT, ICON, ICON_SET, SIZE, WHITE, accent, icon


def pixels(data):
    """Read a PNG of one IDAT chunk and no filters; return its lines of RGB bytes."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    rest, chunks = data[8:], {}
    while rest:
        (length,) = struct.unpack(">I", rest[:4])
        kind, body = rest[4:8], rest[8 : 8 + length]
        assert struct.unpack(">I", rest[8 + length : 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        rest = rest[12 + length :]
    width, height, depth, color, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (width, height, depth, color) == (SIZE, SIZE, 8, 2)  # RGB: no transparency
    raw = zlib.decompress(chunks[b"IDAT"])
    stride = 1 + 3 * width
    assert len(raw) == stride * height
    assert not any(raw[start] for start in range(0, len(raw), stride))
    return [raw[start + 1 : start + stride] for start in range(0, len(raw), stride)]


def dots(lines):
    """Return the letter of an icon as rows of dots, read at their middles."""
    pitch, left, top = 96, 320, 224
    at = [left + pitch * column for column in range(5)]
    return " ".join(
        "".join(
            "1" if lines[top + pitch * row][3 * x : 3 * x + 3] == WHITE else "0" for x in at
        )
        for row in range(7)
    )


@pytest.mark.parametrize("initial", sorted(FONT))
def test_an_icon_shows_the_initial(initial):
    assert dots(pixels(icon(f"{initial.lower()}-chat"))) == FONT[initial]


def test_no_two_initials_look_alike():
    assert len(set(FONT.values())) == len(FONT)


def test_one_name_has_one_icon_and_another_name_another_color():
    assert icon.__wrapped__("Chat") == icon("Chat")  # drawn again
    assert accent("Chat") != accent("Other")
    assert all(0 <= float(part) <= 1 for part in accent("Chat"))


@given(st.text())
def test_every_package_name_has_an_initial(name):
    assert naming.package_name(name)[0].upper() in FONT


def test_the_app_has_it_in_its_asset_catalog_and_keeps_the_users_own(run, tmp_path):
    arguments = ("ios", "--model", "demo", "--max-kv", 96, "--no-vendor", "--output")
    assert run(*arguments, tmp_path / "Demo", "--name", "Demo").exit_code == 0
    place = tmp_path / "Demo/App" / ICON_SET
    assert (place / ICON).read_bytes() == icon("Demo")
    [image] = json.loads((place / "Contents.json").read_text())["images"]
    assert (image["filename"], image["size"]) == (ICON, f"{SIZE}x{SIZE}")
    (place / ICON).write_bytes(b"mine")
    assert run(*arguments, tmp_path / "Demo", "--name", "Demo", "--app").exit_code == 0
    assert (place / ICON).read_bytes() == b"mine"
    assert (tmp_path / "Demo/App.new" / ICON_SET / ICON).read_bytes() == icon("Demo")
    assert run("verify", tmp_path / "Demo").exit_code == 0
