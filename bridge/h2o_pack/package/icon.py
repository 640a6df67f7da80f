"""Draws the icon of a new app as a PNG: the first letter of its name on a color.

An icon for the store is one picture of 1024 by 1024 pixels without transparency.
"""

from __future__ import annotations

import colorsys
import hashlib
import math
import struct
import zlib
from functools import cache
from pathlib import Path

from h2o_pack.files.toml import load

SIZE = 1024
DOT, GAP = 84, 12  # pixels: the width of a dot of the letter, and the gap between two dots
ROUNDING = 24  # radius of a dot's corners
WHITE = b"\xff\xff\xff"
ICON_SET = "Chat/Assets.xcassets/AppIcon.appiconset"
"""The icon's folder in an app."""
ICON = "AppIcon.png"
ICON_PATH = f"{ICON_SET}/{ICON}"

FONT: dict[str, str] = load(Path(__file__).with_name("font.toml"))[0]
"""Rows of dots of each letter and digit."""


@cache
def icon(package: str) -> bytes:
    """Return the PNG of a package's icon; the same name gives the same bytes.

    Drawing takes as long as making many files of a package, and an update draws it twice.
    """
    rows = [[dot == "1" for dot in row] for row in FONT[package[0].upper()].split()]
    height = len(rows) * (DOT + GAP) - GAP
    width = len(rows[0]) * (DOT + GAP) - GAP
    left, top = (SIZE - width) // 2, (SIZE - height) // 2
    lines = []
    for y in range(SIZE):
        color = shade(package, y)
        row, inside = divmod(y - top, DOT + GAP)
        if 0 <= row < len(rows) and inside < DOT:
            letter = b"".join(cell(dot, inside, color) for dot in rows[row])
            right = SIZE - left - len(letter) // 3
            lines.append(color * left + letter + color * right)
        else:
            lines.append(color * SIZE)
    return png(lines)


def accent(package: str) -> tuple[str, ...]:
    """Return the icon's color for controls: red, green and blue from 0 to 1."""
    return tuple(f"{part / 255:.3f}" for part in shade(package, SIZE // 2))


def shade(package: str, y: int) -> bytes:
    """Return a line's background color, lighter at the top; the name decides the hue."""
    hue = hashlib.sha256(package.encode()).digest()[0] / 256
    parts = colorsys.hls_to_rgb(hue, 0.48 - 0.2 * y / SIZE, 0.55)
    return bytes(round(255 * part) for part in parts)


def cell(dot: bool, y: int, color: bytes) -> bytes:  # noqa: FBT001 - a dot or no dot
    """Return line `y` of one cell of the letter's grid, which has a dot or only background."""
    if not dot:
        return color * (DOT + GAP)
    away = max(ROUNDING - y, y - (DOT - 1 - ROUNDING), 0)
    cut = ROUNDING - round(math.sqrt(ROUNDING * ROUNDING - away * away))
    return color * cut + WHITE * (DOT - 2 * cut) + color * (cut + GAP)


def png(lines: list[bytes]) -> bytes:
    """Return a PNG of lines of 8-bit RGB."""
    header = struct.pack(">IIBBBBB", len(lines[0]) // 3, len(lines), 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    chunks = ((b"IHDR", header), (b"IDAT", body), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in chunks)


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
