"""Collects the checks of a run, each beside what is expected of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from h2o_pack.prove.expected import Expected, expected_of
from h2o_pack.prove.report import Check, Setting
from h2o_pack.prove.verdict import checked, not_run

MOST = 400  # characters of a text of the report
NOTHING = Expected("none", 0, "")


@dataclass
class Notes:
    """The checks made so far. started: of time.monotonic."""

    setting: Setting
    started: float = field(default_factory=time.monotonic)
    checks: list[Check] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return round(time.monotonic() - self.started, 3)

    def said(self, text: str) -> str:
        """Return a text as it goes into a report: short, and without the user's name."""
        return text.replace(str(Path.home()), "~")[:MOST]

    def note(
        self,
        name: str,
        measured: float,
        unit: str,
        how: str,
        *,
        expected: Expected | None = None,
        ratio_of: tuple[str, str] | None = None,
    ) -> None:
        """Note what was measured; expected: None for what the code expects of this name."""
        wanted = expected or expected_of(name, self.setting) or NOTHING
        made = checked(
            name,
            measured,
            unit,
            self.said(how),
            rule=wanted.rule,
            expected=None if wanted.rule == "none" else wanted.value,
            source=wanted.source,
            tolerance=wanted.tolerance,
            ratio_of=ratio_of,
            at=self.seconds,
        )
        self.checks.append(made)

    def note_ratio(self, name: str, of: str, over: str, how: str) -> None:
        """Note how many times the second of two checks the first one is."""
        known = {check.id: check.measured for check in self.checks}
        one, other = known.get(of), known.get(over)
        if one is None or not other:
            self.skip(name, "ratio", how, "one of the two was not measured")
        else:
            self.note(name, one / other, "ratio", how, ratio_of=(of, over))

    def skip(self, name: str, unit: str, how: str, why: str) -> None:
        """Note what could not be run, and why."""
        made = not_run(name, unit, self.said(how), self.said(why), self.seconds)
        self.checks.append(made)
