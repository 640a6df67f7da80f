"""A report that a phone could have written, and ways to change one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from h2o_pack import __version__, results
from h2o_pack.prove import ids
from h2o_pack.prove.checksum import with_checksum
from h2o_pack.prove.expected import Expected, expected_of, plan_of
from h2o_pack.prove.report import (
    Check,
    Counts,
    Digests,
    ProofReport,
    ProvenMachine,
    Setting,
)
from h2o_pack.prove.verdict import checked, not_run

PHONE = ProvenMachine("iPhone17,1", "A18 Pro", "Apple A18 Pro GPU", 6, 8 * 10**9, "iOS", "26.1")
SETTING = Setting("demo", 64, "dense", 512, 128, "iphone")
HOW = "made up"


def report(**changes: Any) -> ProofReport:
    """Return a consistent report of an app; what is changed has its counts and checksum."""
    made = ProofReport(
        tool="app",
        started="2026-11-22T10:00:00Z",
        finished="2026-11-22T10:11:00Z",
        commit="",
        versions={"h2o-pack": __version__, "mlx-swift": "0.31.6"},
        machine=PHONE,
        digests=Digests("", "ab" * 32, ""),
        setting=SETTING,
        checks=checks(),
        counts=Counts(0, 0, 0, 0),
    )
    return sealed(dataclasses.replace(made, **changes))


def sealed(made: ProofReport) -> ProofReport:
    """Return a report with the counts and the checksum of what it says."""
    counted = dataclasses.replace(made, counts=Counts.of(made.checks))
    return with_checksum(counted)


def checks() -> tuple[Check, ...]:
    plan = plan_of(SETTING)
    return (
        expected("level 2/float32/float32/differences", 0, "differences", 1),
        expected("level 2/float32/float32/outputs", 2e-6, "relative", 1),
        expected("level 2/kv k8v4/float32/differences", 0, "differences", 2),
        expected("level 2/kv k8v4/float32/outputs", 3e-6, "relative", 2),
        expected("memory/keys and values", plan.of("keys and values"), "bytes", 3),
        expected("memory/total", round(plan.total * 0.9), "bytes", 4),
        checked(ids.DECODE_COLD, 400.0, "tokens/s", HOW, at=40),
        checked("speed/decode after ten minutes", 300.0, "tokens/s", HOW, at=640),
        checked(
            "speed/lasting",
            0.75,
            "ratio",
            HOW,
            ratio_of=("speed/decode after ten minutes", ids.DECODE_COLD),
            at=640,
        ),
        checked("thermal/state", 1, "of 3", HOW, at=641),
        not_run("pressure/warning", "steps", HOW, "memory was never short", at=642),
        checked(ids.DEFAULT_LIMIT, 3.4e9, "bytes", HOW, at=643),
    )


def expected(name: str, measured: float, unit: str, at: float) -> Check:
    """Return a check with what the code expects of it."""
    own = expected_of(name, SETTING)
    assert isinstance(own, Expected)
    return checked(
        name,
        measured,
        unit,
        HOW,
        rule=own.rule,
        expected=own.value,
        source=own.source,
        tolerance=own.tolerance,
        at=at,
    )


def changed(name: str, **changes: Any) -> tuple[Check, ...]:
    """Return the checks with one of them changed."""
    assert name in {check.id for check in checks()}
    return tuple(
        dataclasses.replace(check, **changes) if check.id == name else check
        for check in checks()
    )


def written(made: ProofReport, folder: Path, name: str = "proof.json") -> Path:
    """Write a report to a file."""
    path = folder / name
    path.write_text(results.to_json(made), encoding="utf-8")
    return path


def rewritten(made: ProofReport, folder: Path, **changes: Any) -> Path:
    """Write a report with other values in its JSON, and nothing else made to fit."""
    path = folder / "proof.json"
    path.write_text(json.dumps(json.loads(results.to_json(made)) | changes), encoding="utf-8")
    return path
