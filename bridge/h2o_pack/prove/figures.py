"""Values of checks, as people read them."""

from __future__ import annotations

from h2o_pack.prove.report import Check

SIGNS = {"equal": "", "at most": "<= ", "at least": ">= ", "within": "~ ", "none": ""}


def expected(check: Check) -> str:
    """Write what was expected of a check."""
    if check.expected is None:
        return "-"
    return SIGNS[check.rule] + amount(check.expected, check.unit)


def amount(value: float | None, unit: str) -> str:
    """Write a value and its unit in few letters."""
    if value is None:
        return "-"
    if unit == "bytes":
        return f"{value / 1e6:,.2f} MB"
    short = {"differences": "", "ratio": "", "relative": "", "tokens/s": " tok/s"}
    return f"{value:.4g}{short.get(unit, f' {unit}')}"
