"""The memory that a device reported, beside the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.files.text import read_json
from h2o_pack.memory import terms
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.results import Count, doc

TOTAL, MLX = "total", "MLX"
REMEDY = "docs/memory-plan.md explains the format of such a report."


@dataclass(frozen=True)
class MeasuredTerm:
    """Bytes that a device counted for one term of the plan."""

    name: str
    bytes: Count


@dataclass(frozen=True)
class MeasuredMemory:
    """A report of one device.

    device: its identifier, as the system gives it. terms: by the names of the plan's, "MLX"
    for the peak of MLX's own counter and "total" for the app's footprint, as far as they were
    counted. system: its version. source: who measured it.
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
    """A device's report beside the plan."""

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

    Raises:
        UserError: it cannot be read, or names a term that no plan has, or one twice.

    """
    report = read_json(path, MeasuredMemory, "a report of a device's memory", REMEDY)
    choices = (*terms.ALL, MLX, TOTAL)
    names = [term.name for term in report.terms]
    for name in names:
        if name not in choices:
            what, near = f'no plan has a term "{name}"', nearest(name, choices)
        elif names.count(name) > 1:
            what, near = f'the term "{name}" occurs twice', ""
        else:
            continue
        remedy = f"{near}Choose from: {', '.join(choices)}."
        raise UserError(what, where=str(path), remedy=remedy, code=ExitCode.USAGE)
    return report


def beside(measured: MeasuredMemory, plan: MemoryPlan) -> SeenMemory:
    """Hold a device's report against the plan for its backend."""
    planned = {TOTAL: plan.total, MLX: plan.mlx}
    peaks = [term.bytes for term in measured.terms if term.name == MLX]
    exact = plan.mlx - plan.of(*terms.MODELLED)
    return SeenMemory(
        device=measured.device,
        backend=plan.backend,
        system=measured.system,
        source=measured.source,
        terms=tuple(
            seen_term(term, planned.get(term.name, plan.of(term.name)))
            for term in in_order(measured.terms)
        ),
        margin=margin_of(peaks[0], plan.mlx, exact) if peaks else None,
    )


def margin_of(peak: int, planned: int, exact: int) -> float:
    """Return the part of the modelled bytes that MLX needed beyond them.

    Args:
        peak: MLX's peak on a device.
        planned: the same in the plan, without a margin.
        exact: bytes of both that follow from shapes.

    Returns:
        0 where the plan said enough.

    """
    modelled = max(1, planned - exact)
    return round(max(0.0, (peak - exact) / modelled - 1), 4)


def in_order(measured: Sequence[MeasuredTerm]) -> list[MeasuredTerm]:
    """Return terms in the plan's order, the sums last."""
    order = (*terms.ALL, MLX, TOTAL)
    return sorted(measured, key=lambda term: order.index(term.name))


def seen_term(measured: MeasuredTerm, planned: int) -> SeenTerm:
    """Return one term beside its plan."""
    share = round(measured.bytes / planned, 4) if planned else None
    return SeenTerm(measured.name, planned, measured.bytes, share)
