"""Reads reports, and refuses those that contradict themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from h2o_pack.errors import ExitCode, Problems
from h2o_pack.files.text import read_json
from h2o_pack.prove.check import contradictions
from h2o_pack.prove.own import denied_by_own_code, is_planned_here, is_same_code
from h2o_pack.prove.report import Counts, ProofReport
from h2o_pack.results import Result, doc

OTHER_CODE = "expected values, digests and versions: the report was made by other code"
NO_PLAN = "the plan: the model is not on this machine"
WHAT = "a report of `h2o-pack prove`"
REMEDY = "Make one with `h2o-pack prove FILE`, or with the app's page for it."
AGAIN = "It was changed, or made wrongly: make the report again on that machine."


@dataclass(frozen=True, kw_only=True)
class CheckedProof(Result):
    """A report that says nothing against itself."""

    file: Annotated[Path, doc("The report.")]
    machine: Annotated[str, doc("Identifier of the machine.")]
    counts: Annotated[Counts, doc("Of the checks' verdicts.")]
    not_recomputed: Annotated[tuple[str, ...], doc("What could not be computed again.")]


def read_report(path: Path) -> ProofReport:
    """Read a report.

    Raises:
        UserError: it is no report (code USAGE), or contradicts itself (code DIFFERENT); names
            all fields concerned.

    """
    report = read_json(path, ProofReport, WHAT, REMEDY)
    found = contradictions(report)
    if is_same_code(report):
        found += denied_by_own_code(report)
    problems = Problems(str(path), ExitCode.DIFFERENT)
    for each in found:
        problems.add(f"{each.field} contradicts the report: {each.what}", AGAIN)
    problems.refuse()
    return report


def check_report(path: Path) -> CheckedProof:
    """Read a report and say what was not computed again.

    Raises:
        UserError: as `read_report`.

    """
    report = read_report(path)
    return CheckedProof(
        file=path,
        machine=report.machine.identifier,
        counts=report.counts,
        not_recomputed=not_recomputed(report),
    )


def not_recomputed(report: ProofReport) -> tuple[str, ...]:
    """Return what of a report cannot be computed again here."""
    if not is_same_code(report):
        return (OTHER_CODE,)
    return () if is_planned_here(report) else (NO_PLAN,)
