"""The levels of parity, as checks of a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import mlx.core as mx

from h2o_pack.errors import UserError
from h2o_pack.files.layout import VENDOR_FOLDER
from h2o_pack.parity.parity import DEFAULT, LEVELS, run_parity
from h2o_pack.parity.report import CaseResult, Level, sentence
from h2o_pack.prove import level_zero
from h2o_pack.prove.expected import DIFFERENCES, OUTPUTS, SCORES
from h2o_pack.prove.ids import KERNELS
from h2o_pack.prove.notes import Notes

CASES = "cases"
ON_CPU = "MLX has no GPU here; `make test` runs the Metal kernels on a CPU"


def prove_kernels(notes: Notes, say: Callable[[str], None]) -> None:
    """Level 0, where there is a GPU."""
    if mx.default_device() != mx.Device(mx.gpu):
        notes.skip(f"{KERNELS}/{CASES}", CASES, level_zero.COMPARED, ON_CPU)
        return
    with TemporaryDirectory() as folder:
        for shape in level_zero.shapes():
            say(f"{KERNELS}: {shape.name}, {shape.dtype}")
            case = level_zero.compare(shape, Path(folder))
            note_case(notes, KERNELS, case, level_zero.COMPARED)


def prove_package(
    notes: Notes, package: Path, say: Callable[[str], None], no_vendor: str
) -> None:
    """Levels 1 to 3 of a package, as far as it has what they take.

    no_vendor: why it has no Vendor/, if it has none.
    """
    levels = tuple(LEVELS) if (package / VENDOR_FOLDER).is_dir() else DEFAULT
    try:
        done = run_parity(package, levels=levels, progress=say).levels
        why = no_vendor
    except UserError as error:  # Swift's compiler, or what it needs
        done = run_parity(package, levels=("op",), progress=say).levels
        why = f"{error.what}. {error.remedy}"
    for level in done:
        note_level(notes, level)
    for number in set(LEVELS.values()) - {level.number for level in done}:
        notes.skip(f"level {number}/{CASES}", CASES, "h2o-pack parity", why)


def note_level(notes: Notes, level: Level) -> None:
    """Note all cases of a level, or why it did not run."""
    name = f"level {level.number}"
    if level.not_run:
        notes.skip(f"{name}/{CASES}", CASES, level.compared, level.not_run)
    for case in level.cases:
        note_case(notes, name, case, level.compared)


def note_case(notes: Notes, level: str, case: CaseResult, compared: str) -> None:
    """Note whether a case differs anywhere, and by how much at most."""
    name = f"{level}/{case.name}/{case.dtype}"
    first = case.first_difference
    how = compared if first is None else f"{compared}; {sentence(first)}"
    notes.note(f"{name}/{DIFFERENCES}", 0 if first is None else 1, DIFFERENCES, how)
    notes.note(f"{name}/{OUTPUTS}", case.largest_output_difference, "relative", compared)
    if case.largest_score_difference is not None:
        notes.note(f"{name}/{SCORES}", case.largest_score_difference, "relative", compared)
