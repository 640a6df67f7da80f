"""Whether a rerun gives what a committed report says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from h2o_pack.measure.evaluation.report import FORMAT
from h2o_pack.measure.evaluation.statistics import Estimate

_NOT_REPRODUCIBLE = ("tokens_per_second", "peak_bytes")
"""They belong to the machine."""


def read(path: Path) -> dict[str, Any]:
    """Read a report.

    Raises:
        ValueError: the file is none, or cannot be read.

    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror or error}). Give the results.json of "
            "`h2o-pack eval`."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not JSON ({error}). Give the results.json of `h2o-pack eval`."
        ) from None
    if not isinstance(found, dict) or "experiments" not in found:
        raise ValueError(f"{path} is no report. Give the results.json of `h2o-pack eval`.")
    if found.get("format") != FORMAT:
        raise ValueError(
            f"{path}: format = {found.get('format')!r}; this release reads {FORMAT}."
        )
    return found


def differences(earlier: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What does not reproduce, a sentence each; none where all does.

    A figure reproduces when the intervals of the two runs overlap. Speed and memory
    belong to the machine and are not compared.
    """
    said = []
    for key, what in (("preset", "preset"), ("seeds", "seeds"), ("text", "text")):
        if earlier[key] != now[key]:
            said.append(f"{what}: {earlier[key]} before, {now[key]} now")
    if earlier["model"]["parameters_sha256"] != now["model"]["parameters_sha256"]:
        said.append("the model's parameters are other ones")
    before, after = _cells(earlier), _cells(now)
    for place, cell in before.items():
        where = ", ".join(str(part) for part in place)
        if place not in after:
            said.append(f"{where}: not in this run")
            continue
        for name, metric in cell["metrics"].items():
            if name in _NOT_REPRODUCIBLE:
                continue
            other = after[place]["metrics"].get(name)
            if other is None or not _estimate(metric).overlaps(_estimate(other)):
                found = "missing" if other is None else _shown(other)
                said.append(f"{where}: {name} was {_shown(metric)}, is {found}")
    said += [
        f"{', '.join(str(part) for part in place)}: not in the earlier run"
        for place in after.keys() - before.keys()
    ]
    return said


def _cells(report: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {
        (each["id"], group["id"], cell["length"], cell["budget"], cell["contender"]): cell
        for each in report["experiments"]
        for group in each["groups"]
        for cell in group["cells"]
    }


def _estimate(metric: dict[str, Any]) -> Estimate:
    return Estimate(metric["mean"], metric["low"], metric["high"], metric["samples"])


def _shown(metric: dict[str, Any]) -> str:
    return f"{metric['mean']:.4g} [{metric['low']:.4g}, {metric['high']:.4g}]"
