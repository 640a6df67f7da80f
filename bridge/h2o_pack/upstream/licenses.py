"""Compares the licenses in a folder of clones with those that components.toml states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from h2o_pack.facts.components import Component, components, license_text
from h2o_pack.models.files import CARD, is_notice
from h2o_pack.upstream.sources import copied_files
from h2o_pack.vendoring.edits import CopiedPath

OWNER = re.compile(r"Copyright (\(c\)|©|\d)", re.IGNORECASE)


def drifted_licenses(clone: Path, copy: CopiedPath, version: str) -> Iterator[tuple[Path, str]]:
    """Yield (file, what is wrong) for the licenses in what Vendor gets of a clone.

    version: the upstream version whose components are stated.
    """
    stated = [each for each in components(version) if each.package == copy.package]
    for component in stated:
        path = clone / component.file
        said = words(path.read_text("utf-8")) if path.is_file() else ""
        yield from (
            (path, f"does not say {line!r}")
            for line in component.copyright
            if words(line) not in said
        )
    for path in copied_files(clone, copy):
        if is_notice(path.name) and path.name.lower() != CARD and path.suffix != ".swift":
            text = path.read_text("utf-8", errors="replace")
            if not is_stated(text, stated):
                yield path, "is the license of a work that components.toml does not name"


def is_stated(text: str, components: Sequence[Component]) -> bool:
    """Whether a license is that of one of the components."""
    said = words(text)
    if OWNER.search(text):
        lines = (line for each in components for line in each.copyright)
        return any(words(line) in said for line in lines)
    texts = (license_text(name) for each in components for name in each.texts)
    return any(words(each) in said for each in texts)


def words(text: str) -> str:
    """Return a text without its lines, marks of comments and punctuation."""
    return " ".join(re.findall(r"\w+", text))
