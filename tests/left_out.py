"""Says on a workflow's page which tests were skipped, and why."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Append a line for each reason, where GitHub gives a page to write to."""
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if not page:
        return
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(each.longrepr[2]).removeprefix("Skipped: ") for each in skipped)
    lines = [
        f"- not run: {count} test{'s' if count > 1 else ''} ({reason})\n"
        for reason, count in sorted(reasons.items())
    ]
    with Path(page).open("a", encoding="utf-8") as file:
        file.writelines(lines)
