"""What a check's rule says of its values."""

from __future__ import annotations

import math
from dataclasses import replace

from h2o_pack.prove.report import (
    AS_EXPECTED,
    DIFFERS,
    MEASURED,
    NOT_RUN,
    Check,
    Rule,
    Source,
    Verdict,
)

LARGEST = 1e300  # stands for infinity, which JSON lacks


def verdict_of(check: Check) -> Verdict:
    """Return the verdict that follows from a check's rule and values."""
    if check.measured is None:
        return NOT_RUN
    if check.expected is None:
        return MEASURED
    measured, expected, margin = check.measured, check.expected, check.tolerance
    agrees = {
        "equal": measured == expected,
        "at most": measured <= expected * (1 + margin),
        "at least": measured >= expected * (1 - margin),
        "within": abs(measured - expected) <= abs(expected) * margin,
        "none": False,
    }
    return AS_EXPECTED if agrees[check.rule] else DIFFERS


def checked(
    name: str,
    measured: float,
    unit: str,
    how: str,
    *,
    rule: Rule = "none",
    expected: float | None = None,
    source: Source = "",
    tolerance: float = 0.0,
    ratio_of: tuple[str, str] | None = None,
    at: float = 0.0,
) -> Check:
    """Make a check that ran, with its verdict."""
    made = Check(
        id=name,
        rule=rule,
        expected=expected,
        expected_from=source,
        measured=float(measured) if math.isfinite(measured) else LARGEST,
        unit=unit,
        tolerance=tolerance,
        verdict=MEASURED,
        how=how,
        ratio_of=ratio_of,
        at=at,
    )
    return replace(made, verdict=verdict_of(made))


def not_run(name: str, unit: str, how: str, why: str, at: float = 0.0) -> Check:
    """Make a check that could not be run, and say why."""
    return Check(id=name, rule="none", unit=unit, verdict=NOT_RUN, how=how, why=why, at=at)
