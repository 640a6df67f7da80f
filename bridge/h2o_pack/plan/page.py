"""A plan as one HTML page that needs nothing else: no scripts, no other files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from h2o_pack import __version__
from h2o_pack.devices.catalogue import limit
from h2o_pack.devices.facts import DEFAULT, ENTITLED
from h2o_pack.files.text import writing
from h2o_pack.plan.device_fit import DeviceFit, PlannedModel, PlanResult, Verdict
from h2o_pack.plan.plan_tables import capacity, recall_line, recall_seconds, size_sentence
from h2o_pack.plan.speed import rules
from h2o_pack.sizes import gigabytes, megabytes

TITLES = {"iphone": "iPhones, and iPads with A chips", "ipad": "iPads with M chips"}
FOLDER = Path(__file__).parent
WHOLE, ONE_MODEL = "plan.html.j2", "plan_model.html.j2"


def page(plan: PlanResult) -> str:
    """Return the page of the models of an app."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters |= {"GB": gigabytes, "MB": megabytes, "percent_of": percent_of}
    reports, several = plan.models, len(plan.models) > 1
    one_model = environment.get_template(ONE_MODEL)
    return environment.get_template(WHOLE).render(
        title=f"Memory of {' and '.join(report.model for report in reports)}",
        bodies=[Markup(one_model.render(values(report))) for report in reports],  # noqa: S704
        reports=reports,
        loaded=plan.loaded if several else (),
        size=size_sentence(plan.size) if several else "",
        fits=fits,
        calibration=reports[0].calibration,
        rule=rules(),
    )


def values(report: PlannedModel) -> dict[str, Any]:
    """Return what the template of one model may use."""
    return {
        "report": report,
        "plans": {plan.backend: plan for plan in report.plans},
        "terms": [
            (number, term)
            for number, term in enumerate(report.plans[0].terms)
            if any(plan.terms[number].bytes for plan in report.plans)
        ],
        "groups": groups(report),
        "headroom": headroom,
        "fits": fits,
        "holds": partial(holds, recalls=report.recall is not None),
        "recall": recall_line(report.recall) if report.recall else "",
        "size": size_sentence(report.size),
        "sources": sources(report),
        "version": __version__,
    }


@dataclass(frozen=True)
class Group:
    """Devices of one kind, whose bars have one scale: the bytes of the whole width."""

    title: str
    devices: tuple[DeviceFit, ...]
    scale: float


def groups(report: PlannedModel) -> list[Group]:
    """Return phones and tablets apart, each with a scale of its own."""
    found = []
    for plan in report.plans:
        devices = tuple(row for row in report.devices if row.backend == plan.backend)
        limits = [each.limit or 0 for row in devices for each in (row.default, row.entitled)]
        title = TITLES.get(plan.backend, plan.backend)
        if devices:
            found.append(Group(title, devices, 1.03 * max(plan.total, *limits)))
    return found


def percent_of(part: float, whole: float) -> str:
    """A width or a place, with digits enough that widths add up."""
    return f"{100 * part / whole:.4f}"


def headroom(verdict: Verdict) -> str:
    """Say what is left of a limit, or lacks; nothing where nobody knows the limit."""
    share, left = verdict.headroom_share, verdict.headroom
    if share is None or left is None:
        return ""
    if left < 0:
        return f"{gigabytes(-left)} GB too much"
    return f"{gigabytes(left)} GB, {share:.0%} left"


def fits(row: DeviceFit) -> list[str]:
    """Return a device's cells in the table of limits."""
    share = row.entitled.headroom_share
    return [
        gigabytes(row.needed),
        limit(row.source(DEFAULT)),
        row.default.verdict,
        limit(row.source(ENTITLED)),
        row.entitled.verdict,
        "-" if share is None else f"{share:.0%}",
    ]


def holds(row: DeviceFit, *, recalls: bool) -> list[str]:
    """Return a device's cells in the table of speeds and of what fits at most."""
    speeds, largest = capacity(row)
    return [*speeds, *((recall_seconds(row),) if recalls else ()), *largest]


def sources(report: PlannedModel) -> list[str]:
    """Name every source of the numbers that were used, once."""
    numbers = (number for row in report.devices for number in row.sources)
    return list(dict.fromkeys(f"{each.source} ({each.kind})" for each in numbers))


def write_page(plan: PlanResult, path: Path) -> None:
    """Write a plan as an HTML page."""
    with writing(path, "the page", "Give --html a file in a folder that you may write to."):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(plan), "utf-8")
