"""Sources of upstream's that only some builds compile, chosen by the preprocessor.

SwiftPM's conditions know platforms, and take a simulator for the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2o_pack.errors import CombinedError, ExitCode, Problems, UserError
from h2o_pack.files import lock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from h2o_pack.vendoring.edits import Guard


def guard_sources(vendor_folder: Path, guards: Iterable[Guard]) -> tuple[lock.EditedFile, ...]:
    """Put each guard around its files; return each file's sha256 before and after.

    Raises UserError for all guards whose files are not those that are expected, together.
    """
    done = []
    problems = Problems()
    for guard in guards:
        with problems.caught():
            for path in guarded_files(vendor_folder / guard.package, guard):
                before = path.read_text("utf-8")
                after = guarded(before, guard.condition)
                path.write_text(after, "utf-8")
                name = path.relative_to(vendor_folder).as_posix()
                digests = (lock.sha256(text.encode()) for text in (before, after))
                done.append(lock.EditedFile(name, *digests))
    if problems.found:
        raise CombinedError(problems.found)
    return tuple(done)


def guarded_files(folder: Path, guard: Guard) -> list[Path]:
    """Return a guard's files in the folder of its package.

    Raises UserError where they are more or fewer than the guard counts: a file that upstream
    added would be compiled for simulators and devices alike, and an app would not link.
    """
    found = [
        path
        for pattern in guard.paths
        for path in sorted(folder.glob(pattern))
        if path.name not in guard.without
    ]
    if len(found) != guard.count:
        raise UserError(
            f"{len(found)} files match {' and '.join(guard.paths)} instead of {guard.count}",
            where=f"{guard.package}, expected as in {guard.expected}",
            remedy=f"Use the sources of {guard.expected}.",
            code=ExitCode.VERSION,
        )
    return found


def guarded(text: str, condition: str) -> str:
    """Return a source that only compiles where a condition of Apple's targets holds."""
    return f"#include <TargetConditionals.h>\n#if {condition}\n{text.rstrip()}\n#endif\n"
