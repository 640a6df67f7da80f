"""A made-up report of a phone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from h2o_pack.prove.report import (
    ProofReport,
    ProvenLevel,
    ProvenMachine,
    ProvenMemory,
    ProvenSpeed,
)

PHONE = ProvenMachine(
    identifier="iPhone17,1",
    chip="",
    gpu="Apple A18 Pro GPU",
    cores=6,
    memory_bytes=8_000_000_000,
    system="iOS",
    system_version="26.1",
)


def report(**changes: Any) -> ProofReport:
    """Make the report, with other values for some fields."""
    return replace(
        ProofReport(
            tool="app",
            date="2026-11-22T10:00:00Z",
            machine=PHONE,
            versions={"h2o-pack": "0.1.0", "mlx-swift": "0.31.6"},
            model="demo",
            max_kv=64,
            kv="dense",
            levels=(ProvenLevel(2, "equal", cases=1),),
            memory=(ProvenMemory("MLX", 25_000_000, 26_000_000),),
            speed=(ProvenSpeed("decode, first minute", 31.25),),
            thermal_state=1,
        ),
        **changes,
    )
