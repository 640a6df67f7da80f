"""Whether a rerun gives what a committed report says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from h2o_pack.files.text import read_json
from h2o_pack.measure.evaluation.results import Cell, Report
from h2o_pack.measure.evaluation.statistics import Estimate

_NOT_REPRODUCIBLE = ("tokens_per_second", "peak_bytes")
"""They belong to the machine."""


def read(path: Path) -> Report:
    """Read a report.

    Raises:
        UserError: the file cannot be read or is not a report.

    """
    return read_json(path, Report, "a report", "Give the results.json of `h2o-pack eval`.")


def differences(earlier: Report, now: Report) -> list[str]:
    """Return what does not reproduce, one sentence each.

    A figure reproduces when the intervals of the two runs overlap. Speed and memory
    belong to the machine and are not compared.
    """
    found = [
        f"{name}: {_listed(before)} before, {_listed(after)} now"
        for name in ("preset", "seeds", "text")
        if (before := getattr(earlier, name)) != (after := getattr(now, name))
    ]
    if earlier.model.parameters_sha256 != now.model.parameters_sha256:
        found.append("the model's parameters differ")
    before, after = _cells(earlier), _cells(now)
    for place, cell in before.items():
        where = ", ".join(str(part) for part in place)
        if place not in after:
            found.append(f"{where}: not in this run")
            continue
        for name, metric in cell.metrics.items():
            other = after[place].metrics.get(name)
            if name in _NOT_REPRODUCIBLE or (other is not None and metric.overlaps(other)):
                continue
            shown = "missing" if other is None else _shown(other)
            found.append(f"{where}: {name} was {_shown(metric)}, is {shown}")
    found += [
        f"{', '.join(str(part) for part in place)}: not in the earlier run"
        for place in after.keys() - before.keys()
    ]
    return found


def _cells(report: Report) -> dict[tuple[Any, ...], Cell]:
    return {
        (each.id, group.id, cell.length, cell.budget, cell.contender): cell
        for each in report.experiments
        for group in each.groups
        for cell in group.cells
    }


def _listed(value: str | tuple[int, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(map(str, value))


def _shown(metric: Estimate) -> str:
    return f"{metric.mean:.4g} [{metric.low:.4g}, {metric.high:.4g}]"
