"""Finds the APIs whose use a privacy manifest must name, in sources that apps are built of."""

from __future__ import annotations

import plistlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from h2o_pack.facts import FOLDER
from h2o_pack.files.toml import read_tables
from h2o_pack.upstream.sources import copied_files
from h2o_pack.vendoring.edits import CopiedPath

NAME = "PrivacyInfo.xcprivacy"
SUFFIXES = (".swift", ".j2", ".c", ".cc", ".cpp", ".h", ".hpp", ".m", ".mm")
COMMENT = re.compile(r"(?<!:)//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class RequiredReason:
    """A category of APIs and the reasons that Apple takes for it; see privacy.toml."""

    name: str
    symbols: tuple[str, ...]
    calls: tuple[str, ...]
    reasons: tuple[str, ...]
    source: str
    measured: bool

    def used_in(self, text: str) -> tuple[str, ...]:
        """Return the symbols of this category that a source uses, comments apart."""
        return tuple(dict.fromkeys(self.pattern.findall(COMMENT.sub("", text))))

    @property
    def pattern(self) -> re.Pattern[str]:
        """What a use looks like."""
        names = [rf"\b{each}\b" for each in self.symbols]
        names += [rf"(?<![\w.>]){each}(?=\s*\()" for each in self.calls]
        return re.compile("|".join(names))


@dataclass(frozen=True)
class Unlinked:
    """A source of upstream that names such an API and is in no app's use."""

    package: str
    file: str
    why: str


@dataclass(frozen=True)
class PrivacyFile:
    """privacy.toml."""

    api: tuple[RequiredReason, ...]
    unlinked: tuple[Unlinked, ...]


@cache
def privacy() -> PrivacyFile:
    """Everything that privacy.toml says."""
    return read_tables(FOLDER / "privacy.toml", PrivacyFile)


def declared(manifest: Path) -> Mapping[str, tuple[str, ...]]:
    """Return {category: reasons} of a privacy manifest."""
    document = plistlib.loads(manifest.read_bytes())
    return {
        each["NSPrivacyAccessedAPIType"]: tuple(each["NSPrivacyAccessedAPITypeReasons"])
        for each in document["NSPrivacyAccessedAPITypes"]
    }


def uses(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (category, symbol) for what a source uses; nothing for other files."""
    if path.suffix not in SUFFIXES:
        return
    text = path.read_text("utf-8", errors="replace")
    for api in privacy().api:
        for symbol in api.used_in(text):
            yield api.name, symbol


def undeclared(clone: Path, copy: CopiedPath, manifest: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, symbol) for uses, in what Vendor gets of a clone, that need declaring."""
    known = declared(manifest)
    unlinked = {each.file for each in privacy().unlinked if each.package == copy.package}
    for path in copied_files(clone, copy):
        if path.relative_to(clone).as_posix() not in unlinked:
            yield from (
                (path, symbol) for category, symbol in uses(path) if category not in known
            )
