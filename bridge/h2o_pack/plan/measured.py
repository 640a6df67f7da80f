"""Compares the memory that a device reported with the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from h2o_pack.devices.catalogue import Catalogue
from h2o_pack.errors import nearest, usage_error
from h2o_pack.files.text import read_json
from h2o_pack.memory import terms
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.results import Count, doc

TOTAL, MLX = "total", "MLX"
ORDER = (*terms.ALL, MLX, TOTAL)
REMEDY = "docs/memory-plan.md explains the format of such a report."


@dataclass(frozen=True)
class MeasuredTerm:
    """Bytes that a device counted for one term of the plan."""

    name: str
    bytes: Count


@dataclass(frozen=True)
class MeasuredMemory:
    """A report of one device.

    device: its identifier, as the system reports it. terms: the measured terms, with the plan's
    names; "MLX" is the peak of MLX's own counter, and "total" the app's footprint. system: the
    version of the device's system. source: who measured.
    """

    format: Literal[1]
    device: str
    terms: Annotated[tuple[MeasuredTerm, ...], Meta(min_length=1)]
    system: str = ""
    source: str = ""


@dataclass(frozen=True)
class SeenTerm:
    """The planned and the measured bytes of a term."""

    name: Annotated[str, doc("Name of the term; MLX and total are sums of other terms.")]
    planned: Annotated[Count, doc("Planned bytes.")]
    seen: Annotated[Count, doc("Measured bytes.")]
    share: Annotated[
        float | None,
        doc(
            "Measured bytes divided by planned bytes; above 1 the plan was "
            "too low. null if 0 were planned."
        ),
    ]


@dataclass(frozen=True)
class SeenMemory:
    """A device's report, compared with the plan."""

    device: Annotated[str, doc("Identifier of the device.")]
    backend: Annotated[str, doc("Name of the plan with which the report is compared.")]
    system: Annotated[str, doc("Version of the device's system; empty if unknown.")]
    source: Annotated[str, doc("Who measured; empty if unknown.")]
    terms: Annotated[tuple[SeenTerm, ...], doc("Terms that were measured.")]
    margin: Annotated[
        float | None,
        doc(
            "Margin that the device needed, as a share of the modelled bytes; null if unknown."
        ),
    ] = None


def read_measured(path: Path) -> MeasuredMemory:
    """Read a report of a device.

    Raises UserError: the file is not a report, or a term is unknown or occurs twice.
    """
    report = read_json(path, MeasuredMemory, "a report of a device's memory", REMEDY)
    names = [term.name for term in report.terms]
    for name in names:
        if name not in ORDER:
            what, near = f'no plan has a term "{name}"', nearest(name, ORDER)
        elif names.count(name) > 1:
            what, near = f'the term "{name}" occurs twice', ""
        else:
            continue
        remedy = f"{near}Choose from: {', '.join(ORDER)}."
        raise usage_error(what, remedy, where=str(path))
    return report


def beside(
    measured: MeasuredMemory, plans: Sequence[MemoryPlan], devices: Catalogue
) -> SeenMemory:
    """Compare a device's report with the plan for the device's backend."""
    (device, *_) = devices.find(measured.device)
    plan = next(plan for plan in plans if plan.backend == device.backend)
    sums = {TOTAL: plan.total, MLX: plan.mlx}
    terms_seen = []
    for term in sorted(measured.terms, key=lambda term: ORDER.index(term.name)):
        planned = sums.get(term.name, plan.of(term.name))
        share = round(term.bytes / planned, 4) if planned else None
        terms_seen.append(SeenTerm(term.name, planned, term.bytes, share))
    modelled = max(1, plan.of(*terms.MODELLED))
    peaks = [term.bytes for term in measured.terms if term.name == MLX]
    return SeenMemory(
        device=measured.device,
        backend=plan.backend,
        system=measured.system,
        source=measured.source,
        terms=tuple(terms_seen),
        margin=round(max(0, peaks[0] - plan.mlx) / modelled, 4) if peaks else None,
    )
