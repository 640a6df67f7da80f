"""Edits of upstream's sources, as data: read, checked and applied to text.

An edit finds its lines by a regular expression. If a new upstream version has changed these
lines, an error names the expression and the file. Applying an edit to a text that contains it
changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from h2o_pack.errors import CombinedError, Problems, UserError, version_error
from h2o_pack.facts import pins
from h2o_pack.files.toml import load, rows_of

FOLDER = "swift_templates/upstream"
EDITS = f"{FOLDER}/edits.toml"
Place = Literal["after", "before", "replace"]
GUARD = "#include <TargetConditionals.h>\n"


@dataclass(frozen=True)
class Edit:
    """One change of one file; the comments of edits.toml document the fields.

    anchor must match `count` times. `insert` becomes new lines before or after the matched
    lines; `replacement` replaces the match. only: a case, such as the host "linux", to which
    the edit is limited; "" for none. other_files: empty once the edits are read, because each
    file then has its own.
    """

    package: str
    file: str
    anchor: str
    where: Place
    insert: str = ""
    replacement: str = ""
    count: int = 1
    only: str = ""
    other_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an edit that changes nothing."""
        text = self.replacement if self.where == "replace" else self.insert
        if not text.strip() or not (self.replacement or text.endswith("\n")):
            raise ValueError(f"the edit of {self.file} at {self.anchor!r} adds no line")
        re.compile(self.anchor, re.MULTILINE)


@dataclass(frozen=True)
class AddedFile:
    """A file of h2o-pack that is added to upstream's tree.

    source is relative to the assets and may end in a pattern; a destination
    that ends in "/" is the folder that takes the files.
    """

    package: str
    source: str
    destination: str
    only: str = ""


@dataclass(frozen=True)
class CopiedPath:
    """Files and folders of upstream's tree that a build needs.

    needs: paths that a clone without submodules lacks. without: patterns for the end of a path
    in `paths`. folder: the folder in Vendor/; "" for the name of the package.
    """

    package: str
    paths: tuple[str, ...]
    folder: str = ""
    only: str = ""
    needs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Guard:
    """Files that compile only if a condition of the preprocessor holds.

    paths may end in a pattern. without: names to leave out. count: the number of files that
    are left, so that a file that upstream adds or moves is noticed. condition: a macro of
    Apple's TargetConditionals.h.
    """

    package: str
    paths: tuple[str, ...]
    condition: str
    count: int
    without: tuple[str, ...] = ()
    only: str = ""

    def around(self, text: str) -> str:
        """Return a file's text with the guard around it."""
        return f"{GUARD}#if {self.condition}\n{text.rstrip()}\n#endif\n"


@dataclass(frozen=True)
class EditSet:
    """The content of a file of edits."""

    copies: tuple[CopiedPath, ...]
    edits: tuple[Edit, ...]
    files: tuple[AddedFile, ...]
    guards: tuple[Guard, ...] = ()

    def folder(self, package: str) -> str:
        """Return the folder in Vendor/ of a package's files."""
        folders = {copy.package: copy.folder for copy in self.copies}
        return folders.get(package) or package

    def by_file(self) -> dict[tuple[str, str], list[Edit]]:
        """Return the edits of each file, by its package and path."""
        files: dict[tuple[str, str], list[Edit]] = {}
        for edit in self.edits:
            files.setdefault((edit.package, edit.file), []).append(edit)
        return dict(sorted(files.items()))

    def applying(self, *conditions: str) -> EditSet:
        """Return the entries whose `only` is empty or one of these conditions."""
        cases = ("", *conditions)
        return EditSet(
            tuple(copy for copy in self.copies if copy.only in cases),
            tuple(edit for edit in self.edits if edit.only in cases),
            tuple(file for file in self.files if file.only in cases),
            tuple(guard for guard in self.guards if guard.only in cases),
        )


def edits_of(root: Path) -> EditSet:
    """Return the edits of the sources at our pins."""
    return read_edits(root / EDITS)


def read_edits(path: Path) -> EditSet:
    """Read a file of edits; UserError if it is invalid."""
    document, text = load(path)
    kinds = {"copy": CopiedPath, "edit": Edit, "file": AddedFile, "guard": Guard}
    rows = rows_of(document, text, path, kinds)
    rows["edit"] = tuple(
        replace(edit, file=file, other_files=())
        for edit in rows.get("edit", ())
        for file in (edit.file, *edit.other_files)
    )
    return EditSet(*(rows.get(key, ()) for key in kinds))


def apply_all(text: str, edits: Iterable[Edit]) -> str:
    """Return a file's text with all its edits; UserError for all anchors that do not match."""
    edits = tuple(edits)
    problems = Problems()
    for edit in edits:
        with problems.caught():
            text = apply(text, edit)
    if problems.found:
        raise CombinedError(problems.found)
    for edit in edits:
        if apply(text, edit) != text:
            raise ValueError(f"the edit of {edit.file} at {edit.anchor!r} would apply twice")
    return text


def apply(text: str, edit: Edit) -> str:
    """Return `text` with one edit; unchanged if it contains the edit."""
    matches = list(re.finditer(edit.anchor, text, re.MULTILINE))
    if edit.where == "replace" and text.count(edit.replacement) == edit.count:
        rest = text.replace(edit.replacement, "")
        if not re.search(edit.anchor, rest, re.MULTILINE):
            return text
    if len(matches) != edit.count:
        what = f"the pattern {edit.anchor!r} of an edit matches {len(matches)} times"
        raise drifted(edit, what, f"{edit.package}/{edit.file}")
    for match in reversed(matches):
        start, end = span(text, match, edit.where)
        if edit.where == "after" and text.startswith(edit.insert, end):
            continue
        if edit.where == "before" and text.endswith(edit.insert, 0, start):
            continue
        text = text[:start] + (edit.replacement or edit.insert) + text[end:]
    return text


def span(text: str, match: re.Match[str], where: Place) -> tuple[int, int]:
    """Return the part of the text that an edit replaces; empty for an insertion."""
    if where == "replace":
        return match.span()
    if where == "before":
        start = text.rfind("\n", 0, match.start()) + 1
        return start, start
    end = text.find("\n", match.end())
    end = len(text) if end < 0 else end + 1
    return end, end


def guarded_files(folder: Path, guard: Guard) -> list[Path]:
    """Return a guard's files in the folder of its package.

    Raises UserError if there are more or fewer than the guard counts: a file that upstream
    added would be compiled for simulators and devices alike, and an app would not link.
    """
    files = [
        path
        for pattern in guard.paths
        for path in sorted(folder.glob(pattern))
        if path.name not in guard.without
    ]
    if len(files) != guard.count:
        what = f"{len(files)} files match {' and '.join(guard.paths)}"
        raise drifted(guard, what, guard.package)
    return files


def drifted(part: Edit | Guard, what: str, where: str) -> UserError:
    """Make the error for sources in which `part` has another `count` than it needs."""
    expected = f"{part.package} {pins()[part.package].version}"
    return version_error(
        f"{what} instead of {part.count}",
        f"Use the sources of {expected}.",
        where=f"{where}, expected as in {expected}",
    )
