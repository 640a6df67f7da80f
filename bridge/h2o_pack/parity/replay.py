"""Level 2: the package's Swift caches replay the trace in `swift test`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from h2o_pack.parity.report import CaseResult, Difference
from h2o_pack.parity.toolchain import Build, failure
from h2o_pack.parity.trace import Trace

TESTS = "ParityReplayTests"


def replay(
    trace: Trace, build: Build, work: Path, on_line: Callable[[str], None]
) -> tuple[CaseResult, ...]:
    """Run the replay; UserError when it does not build or does not report."""
    report = work / "report.json"
    report.unlink(missing_ok=True)
    settings = {"H2O_PARITY_TRACE": str(trace.folder), "H2O_PARITY_REPORT": str(report)}
    failed = build.run_tests(TESTS, settings, on_line)
    results = read_report(report, trace) if report.exists() else ()
    if len(results) != len(trace.cases) or (failed and all(each.equal for each in results)):
        raise failure("swift test", build.log)
    return results


def read_report(path: Path, trace: Trace) -> tuple[CaseResult, ...]:
    """Read what the Swift tests wrote."""
    tolerances = {case.name: case.tolerance for case in trace.cases}
    results = []
    for case in json.loads(path.read_text("utf-8"))["cases"]:
        first = case.pop("first_difference", None)
        difference = Difference(**first) if first else None
        results.append(
            CaseResult(**case, tolerance=tolerances[case["name"]], first_difference=difference)
        )
    return tuple(results)
