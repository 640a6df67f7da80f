"""Finds uses of APIs that need a declared reason, and licenses, in the sources for Vendor."""

from __future__ import annotations

import os
import plistlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from h2o_pack.facts import Component, components, license_text
from h2o_pack.files.toml import read_tables
from h2o_pack.models.files import CARD, is_notice
from h2o_pack.vendoring.edits import CopiedPath
from h2o_pack.vendoring.vendor import unwanted


@dataclass(frozen=True)
class Drift:
    """A difference between upstream and h2o-pack's expectation.

    expected: as a regular expression or in words. found: what upstream has instead. used_by:
    the part of h2o-pack that relies on it.
    """

    file: str
    expected: str
    found: str
    used_by: str


def copied_files(clone: Path, copy: CopiedPath) -> Iterator[Path]:
    """Yield every file that vendoring copies from a clone; missing files are ignored."""
    for name in copy.paths:
        root = clone / name
        if root.is_file():
            yield root
        for parent, folders, files in os.walk(root):
            without = unwanted(copy, parent, [*folders, *files])
            folders[:] = sorted(set(folders) - without)
            yield from (Path(parent, name) for name in sorted(set(files) - without))


NAME = "PrivacyInfo.xcprivacy"
PRIVACY = f"swift_templates/H2OKit/{NAME}"
SUFFIXES = (".swift", ".j2", ".c", ".cc", ".cpp", ".h", ".hpp", ".m", ".mm")
COMMENT = re.compile(r"(?<!:)//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class RequiredReason:
    """A category of APIs, and the reasons that Apple accepts for it; see privacy.toml."""

    name: str
    symbols: tuple[str, ...]
    calls: tuple[str, ...]
    reasons: tuple[str, ...]
    source: str
    measured: bool

    def used_in(self, text: str) -> tuple[str, ...]:
        """Return the symbols of this category that a source without its comments uses."""
        return tuple(dict.fromkeys(self.pattern.findall(text)))

    @property
    def pattern(self) -> re.Pattern[str]:
        """The expression that matches uses of this category."""
        names = [rf"\b(?:{'|'.join(self.symbols)})\b"]
        if self.calls:
            names.append(rf"(?<![\w.>])(?:{'|'.join(self.calls)})(?=\s*\()")
        return re.compile("|".join(names))


@dataclass(frozen=True)
class Unlinked:
    """An upstream source file that uses an API of a category but is part of no app."""

    package: str
    file: str
    why: str


@dataclass(frozen=True)
class PrivacyFile:
    """The content of privacy.toml."""

    api: tuple[RequiredReason, ...]
    unlinked: tuple[Unlinked, ...]


@cache
def privacy() -> PrivacyFile:
    """Return the content of privacy.toml."""
    return read_tables(Path(__file__).with_name("privacy.toml"), PrivacyFile)


def declared(manifest: Path) -> Mapping[str, tuple[str, ...]]:
    """Return {category: reasons} of a privacy manifest."""
    document = plistlib.loads(manifest.read_bytes())
    return {
        use["NSPrivacyAccessedAPIType"]: tuple(use["NSPrivacyAccessedAPITypeReasons"])
        for use in document["NSPrivacyAccessedAPITypes"]
    }


def uses(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (category, symbol) for each API that a source uses; nothing for other files."""
    if path.suffix not in SUFFIXES:
        return
    text = COMMENT.sub("", path.read_text("utf-8", errors="replace"))
    for api in privacy().api:
        for symbol in api.used_in(text):
            yield api.name, symbol


def undeclared(clone: Path, copy: CopiedPath, manifest: Path) -> Iterator[Drift]:
    """Yield the uses of APIs in a clone's copied files that a manifest must declare."""
    categories = declared(manifest)
    unlinked = {part.file for part in privacy().unlinked if part.package == copy.package}
    expected = "the privacy manifest declares each API whose use needs a reason"
    for path in copied_files(clone, copy):
        if path.relative_to(clone).as_posix() in unlinked:
            continue
        for category, symbol in uses(path):
            if category not in categories:
                found = f"uses {symbol}, which the manifest does not declare"
                yield Drift(str(path), expected, found, PRIVACY)


OWNER = re.compile(r"Copyright (\(c\)|©|\d)", re.IGNORECASE)


def drifted_licenses(clone: Path, copy: CopiedPath) -> Iterator[Drift]:
    """Yield licenses in a clone's copied files that the acknowledgements in packages lack."""

    def drift(path: Path, found: str) -> Drift:
        expected = "the license that components.toml states"
        return Drift(str(path), expected, found, "acknowledgements")

    of_package = [known for known in components() if known.package == copy.package]
    for component in of_package:
        path = clone / component.file
        license_text = words(path.read_text("utf-8")) if path.is_file() else ""
        yield from (
            drift(path, f"does not say {line!r}")
            for line in component.copyright
            if words(line) not in license_text
        )
    for path in copied_files(clone, copy):
        if is_notice(path.name) and path.name.lower() != CARD and path.suffix != ".swift":
            text = path.read_text("utf-8", errors="replace")
            if not is_stated(text, of_package):
                yield drift(path, "is the license of a work that components.toml does not name")


def is_stated(text: str, components: Sequence[Component]) -> bool:
    """Whether a license is the license of one of the components."""
    text_words = words(text)
    if OWNER.search(text):
        lines = (line for component in components for line in component.copyright)
        return any(words(line) in text_words for line in lines)
    texts = (license_text(name) for component in components for name in component.texts)
    return any(words(statement) in text_words for statement in texts)


def words(text: str) -> str:
    """Return the words of a text, without line ends, comment marks and punctuation."""
    return " ".join(re.findall(r"\w+", text))
