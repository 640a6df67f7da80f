"""A plan as one HTML page that needs nothing else: no scripts, no other files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_pack import __version__
from h2o_pack.devices.facts import DEFAULT, ENTITLED
from h2o_pack.plan.speed import rules
from h2o_pack.plan.tables import capacity, limit
from h2o_pack.sizes import gigabytes, megabytes

if TYPE_CHECKING:
    from h2o_pack.memory.terms import MemoryPlan
    from h2o_pack.plan.report import DeviceFit, PlanResult

TEMPLATE = Path(__file__).with_name("plan.html.j2")
STYLES = {"fits": "fits", "tight": "tight", "does not fit": "over", "unknown": "unknown"}


def page(report: PlanResult) -> str:
    """Return the page."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(values(report))


def values(report: PlanResult) -> dict[str, Any]:
    """Return what the template shows."""
    terms = [
        {
            "name": term.name,
            "known": term.known,
            "what": term.what,
            "color": position,
            "sizes": [megabytes(plan.terms[position].bytes) for plan in report.plans],
        }
        for position, term in enumerate(report.plans[0].terms)
        if any(plan.terms[position].bytes for plan in report.plans)
    ]
    scale = scale_of(report)
    known = rules()
    plans = {plan.backend: plan for plan in report.plans}
    return {
        "version": __version__,
        "settings": report,
        "legend": terms,
        "terms": terms,
        "plans": [
            {"backend": plan.backend, "total": megabytes(plan.total)} for plan in report.plans
        ],
        "rows": [row_values(row, plans[row.backend], scale) for row in report.devices],
        "scale_text": f"{gigabytes(scale)} GB",
        "advice": report.advice,
        "sources": sources(report),
        "rule": known,
        "small": f"{gigabytes(known['small_bytes'])} GB",
        "sustained": f"{known['sustained']:.0%}",
        "points": [
            {
                "model": each.model,
                "device": each.identifier,
                "published": f"{each.tokens_per_second:.1f}",
                "predicted": f"{each.predicted:.1f}",
                "error": f"{each.error:+.1%}",
            }
            for each in report.calibration
        ],
    }


def scale_of(report: PlanResult) -> float:
    """The bytes that the whole width of a track stands for."""
    amounts = [plan.total for plan in report.plans]
    for row in report.devices:
        amounts += [each.limit for each in (row.default, row.entitled) if each.limit]
    return 1.03 * max(amounts)


def percent(part: float, whole: float) -> str:
    """A width or a place, with digits enough that widths add up."""
    return f"{100 * part / whole:.4f}"


def row_values(row: DeviceFit, plan: MemoryPlan, scale: float) -> dict[str, Any]:
    """Return one device's bar, marks and figures."""
    share, left = row.entitled.headroom_share, row.entitled.headroom
    headroom = ""
    if share is not None and left is not None:
        headroom = (
            f"{gigabytes(left)} GB, {share:.0%} left"
            if left >= 0
            else f"{gigabytes(-left)} GB too much"
        )
    marks = [
        {
            "kind": kind,
            "left": percent(verdict.limit, scale),
            "title": f"{kind}: {gigabytes(verdict.limit)} GB",
        }
        for kind, verdict in ((DEFAULT, row.default), (ENTITLED, row.entitled))
        if verdict.limit
    ]
    speed = "speed unknown" if row.speed is None else f"{row.speed} tokens/s"
    return {
        "name": row.name,
        "chip": row.chip,
        "speed": speed,
        "needed": f"{gigabytes(plan.total)} GB",
        "width": percent(plan.total, scale),
        "parts": [
            {
                "width": percent(term.bytes, plan.total),
                "color": position,
                "title": f"{term.name}: {megabytes(term.bytes)} MB",
            }
            for position, term in enumerate(plan.terms)
            if term.bytes
        ],
        "marks": marks,
        "verdict": row.entitled.verdict,
        "style": STYLES[row.entitled.verdict],
        "left": headroom,
        "cells": [
            gigabytes(plan.total),
            limit(row.source(DEFAULT)),
            row.default.verdict,
            limit(row.source(ENTITLED)),
            row.entitled.verdict,
            "-" if share is None else f"{share:.0%}",
            *capacity(row),
        ],
    }


def sources(report: PlanResult) -> list[str]:
    """Name every source of the numbers that were used, once."""
    numbers = (number for row in report.devices for number in row.sources)
    return list(dict.fromkeys(f"{each.source} ({each.kind})" for each in numbers))
