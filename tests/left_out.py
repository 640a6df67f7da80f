"""Leaves out tests of the Swift half where no Swift builds packages, and says on a workflow's
page which tests were skipped, and why.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from h2o_pack.doctor.checks import swift
from h2o_pack.doctor.machine import Surroundings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is marked `swift` where Swift is missing or too old."""
    if item.get_closest_marker("swift") and (reason := without_swift()):
        pytest.skip(reason)


@cache
def without_swift() -> str:
    """Return what doctor finds wrong with this machine's Swift, "" where nothing is."""
    finding = swift(Surroundings())
    return "" if finding.status == "ok" else f"Swift: {finding.what}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Append a line for each reason, where GitHub gives a page to write to."""
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if not page:
        return
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    lines = [
        f"- not run: {count} test{'s' if count > 1 else ''} ({reason})\n"
        for reason, count in sorted(reasons.items())
    ]
    with Path(page).open("a", encoding="utf-8") as file:
        file.writelines(lines)
