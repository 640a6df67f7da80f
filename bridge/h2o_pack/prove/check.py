"""Whether a report agrees with itself and, where the code is the same, with this h2o-pack."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from h2o_pack.prove.checksum import checksum_of
from h2o_pack.prove.contradiction import Contradiction, place
from h2o_pack.prove.expected import DIFFERENCES, LEVELS, OUTPUTS
from h2o_pack.prove.ids import OP, PARTS, TRACE, part_of
from h2o_pack.prove.machine_check import wrong_machine
from h2o_pack.prove.report import (
    NOT_RUN,
    Check,
    Counts,
    ProofReport,
    parse_time,
)
from h2o_pack.prove.verdict import verdict_of

CLOCK = timedelta(days=1)  # by which clocks may be wrong
ROUNDED = 1e-6  # of a ratio


def contradictions(report: ProofReport, now: datetime | None = None) -> list[Contradiction]:
    """Return all that a report says against itself.

    now: when it is checked, with a time zone; None for the clock's.
    """
    now = now or datetime.now(timezone.utc)
    found = [
        *wrong_checksum(report),
        *wrong_times(report, now),
        *wrong_machine(report),
        *wrong_ids(report),
        *(each for n, check in enumerate(report.checks) for each in wrong_check(n, check)),
        *wrong_ratios(report),
        *wrong_cases(report),
        *wrong_counts(report),
    ]
    return list(dict.fromkeys(found))


def wrong_checksum(report: ProofReport) -> Iterator[Contradiction]:
    """The checksum is that of the rest."""
    computed = checksum_of(report)
    if report.checksum != computed:
        yield Contradiction("checksum", f"it is not that of the report, {computed}")


def wrong_times(report: ProofReport, now: datetime) -> Iterator[Contradiction]:
    """Nothing ends before it starts, or after now; checks are in the order made."""
    times = {field: time_of(getattr(report, field)) for field in ("started", "finished")}
    for field, time in times.items():
        if time is None:
            yield Contradiction(field, f"no calendar has {getattr(report, field)}")
    started, finished = times["started"], times["finished"]
    if started is None or finished is None:
        return
    if finished < started:
        yield Contradiction("finished", "it is before it started")
    if finished > now + CLOCK:
        yield Contradiction("finished", "it is in the future")
    before, last = 0.0, (finished - started).total_seconds() + 1  # times are whole seconds
    for n, check in enumerate(report.checks):
        if check.at < before:
            yield Contradiction(f"{place(n, check)}.at", "it is before the check above it")
        if check.at > last:
            yield Contradiction(f"{place(n, check)}.at", "it is after the report was finished")
        before = max(before, check.at)


def time_of(text: str) -> datetime | None:
    """Read a time; None for one that no calendar has."""
    try:
        return parse_time(text)
    except ValueError:
        return None


def wrong_ids(report: ProofReport) -> Iterator[Contradiction]:
    """Every part is there, none is unknown, and no check is there twice."""
    seen: set[str] = set()
    parts = PARTS[report.tool]
    for n, check in enumerate(report.checks):
        if check.id in seen:
            yield Contradiction(f"{place(n, check)}.id", "it is there twice")
        seen.add(check.id)
        if part_of(check.id) not in parts:
            what = f"its part is none of {', '.join(parts)}"
            yield Contradiction(f"{place(n, check)}.id", what)
    for part in parts:
        if part not in map(part_of, seen):
            what = f'nothing is said of "{part}", not even why it was not run'
            yield Contradiction("checks", what)


def wrong_check(n: int, check: Check) -> Iterator[Contradiction]:
    """A check's fields agree with each other."""
    here = place(n, check)
    numbers = {"expected": check.expected, "measured": check.measured, "at": check.at}
    for field, value in numbers.items():
        if value is not None and (not math.isfinite(value) or value < 0):
            yield Contradiction(f"{here}.{field}", f"{value} is not a quantity")
    if (check.rule == "none") != (check.expected is None):
        yield Contradiction(f"{here}.expected", f'it does not go with the rule "{check.rule}"')
    if check.measured is not None and check.why:
        yield Contradiction(f"{here}.why", "it was run")
    if check.measured is None and not check.why:
        yield Contradiction(f"{here}.why", "it was not run, and nothing says why")
    if check.tolerance >= 1:
        yield Contradiction(f"{here}.tolerance", "a tolerance of 1 or more allows everything")
    is_level = part_of(check.id) in LEVELS
    if is_level and check.measured is not None and check.rule == "none":
        yield Contradiction(f"{here}.rule", "parity expects something")
    wanted = verdict_of(check)
    if check.verdict != wanted:
        what = f'"{check.verdict}" is not what the values say, "{wanted}"'
        yield Contradiction(f"{here}.verdict", what)


def wrong_ratios(report: ProofReport) -> Iterator[Contradiction]:
    """A ratio is that of the two checks that it names."""
    known = report.by_id()
    for n, check in enumerate(report.checks):
        if check.ratio_of is None or check.measured is None:
            continue
        here = place(n, check)
        named = [known.get(each) for each in check.ratio_of]
        missing = [name for name, each in zip(check.ratio_of, named, strict=True) if not each]
        if missing:
            what = f'there is no check "{missing[0]}"'
            yield Contradiction(f"{here}.ratio_of", what)
            continue
        one, other = (each.measured if each else None for each in named)
        if one is None or not other:
            yield Contradiction(f"{here}.ratio_of", "one of the two has no value to divide by")
        elif not math.isclose(check.measured, one / other, rel_tol=ROUNDED):
            what = f"{check.measured:g} is not {one:g} / {other:g} = {one / other:g}"
            yield Contradiction(f"{here}.measured", what)


def wrong_cases(report: ProofReport) -> Iterator[Contradiction]:
    """Every case of parity says all of it, and levels 1 and 2 have the same cases."""
    cases: dict[str, dict[str, set[str]]] = {}
    for check in report.checks:
        part, _, rest = check.id.partition("/")
        if part in LEVELS and check.verdict != NOT_RUN:
            case, _, what = rest.rpartition("/")
            cases.setdefault(part, {}).setdefault(case, set()).add(what)
    for part, found in cases.items():
        for case, whats in found.items():
            for needed in {DIFFERENCES, OUTPUTS} - whats:
                yield Contradiction("checks", f'there is no "{part}/{case}/{needed}"')
    if OP in cases and TRACE in cases:
        for case in sorted(cases[OP].keys() ^ cases[TRACE].keys()):
            lacking = TRACE if case in cases[OP] else OP
            yield Contradiction("checks", f'{lacking} lacks the case "{case}" of the other')


def wrong_counts(report: ProofReport) -> Iterator[Contradiction]:
    """The counts are those of the verdicts."""
    found = Counts.of(report.checks)
    for field, value in vars(found).items():
        said = getattr(report.counts, field)
        if said != value:
            yield Contradiction(f"counts.{field}", f"it is {said}, and {value} checks are so")
