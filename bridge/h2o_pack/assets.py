"""Finds the files that go into generated packages, installed or in a checkout."""

from __future__ import annotations

from pathlib import Path

from h2o_pack.errors import internal_error

MARKER = "Package.swift.j2"


def root() -> Path:
    """Return the folder with swift_templates, cexport, metal and Package.swift.j2.

    A wheel carries them in h2o_pack/_assets; a checkout has them two levels
    above this package.
    """
    here = Path(__file__).resolve().parent
    candidates = (here / "_assets", here.parent.parent)
    for candidate in candidates:
        if (candidate / MARKER).is_file():
            return candidate
    raise internal_error(
        f"{MARKER} is missing from this installation",
        "Install h2o-pack again.",
        where=str(candidates[0]),
    )
