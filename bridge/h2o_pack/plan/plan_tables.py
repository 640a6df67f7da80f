"""Plans as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2o_pack.bundling.delivery import AppSize
from h2o_pack.devices.catalogue import PLAIN, caption, limit
from h2o_pack.devices.facts import DEFAULT, ENTITLED
from h2o_pack.facts import store_limits
from h2o_pack.plan.device_fit import (
    DeviceFit,
    LoadedModel,
    PlannedModel,
    PlanResult,
    Verdict,
)
from h2o_pack.plan.measured import SeenMemory
from h2o_pack.plan.speed import RecallPlan, rules
from h2o_pack.sizes import disk_size, gigabytes, megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

LOADS = "loads"
STYLES = {"fits": "green", "tight": "yellow", "does not fit": "red", "unknown": "dim"}
SHORT = {"fits": "fits", "tight": "tight", "does not fit": "no", "unknown": "?"}
HUNDREDTH = 0.01


def print_plan(plan: PlanResult, console: Console) -> None:
    """Show what each model takes, what each device holds, and what the speeds stand on."""
    for model in plan.models:
        print_terms(model, console)
        if model.measured is not None:
            print_measured(model.measured, console)
    if len(plan.models) > 1:
        print_loaded(plan, console)
    elif plan.loaded:
        print_rows(plan.models[0], console)
    together = "with all models " if len(plan.models) > 1 else ""
    print_note(f"app: {together}{size_sentence(plan.size)}", console)
    for model in plan.models:
        if model.recall is not None:
            name = f"{model.model}: " if len(plan.models) > 1 else ""
            print_note(f"recall: {name}{recall_line(model.recall)}", console)
    for text in notes(plan.models):
        print_note(f"note: {text}", console)
    for row, loaded in zip(plan.models[-1].devices, plan.loaded, strict=True):
        print_margin(row, console)
        if loaded.model is None:
            print_remedies(row, console)
    print_speed_rule(plan.models[0], console)


def notes(models: tuple[PlannedModel, ...]) -> Iterator[str]:
    """Yield what to know beforehand: of all models, then of some by name."""
    common = [text for text in models[0].advice if all(text in m.advice for m in models)]
    yield from common
    for model in models:
        for text in model.advice:
            if text not in common:
                yield f"{model.model}: {text}"


def print_note(text: str, console: Console) -> None:
    """Show a sentence on lines no longer than the screen."""
    console.print(text, markup=False, soft_wrap=False)


def print_margin(row: DeviceFit, console: Console) -> None:
    """Show the margin that a device is planned with, if it reported one."""
    if row.margin is not None:
        said = f"{row.name} is planned with the margin that it needed, "
        said += f"{row.margin.margin:.1%} of what is modelled ({row.margin.source})"
        print_note(f"note: {said}", console)


def print_remedies(row: DeviceFit, console: Console) -> None:
    """Show with which options the model would fit a device, if it does not."""
    if row.remedies:
        print_note(f"{row.name}: would fit with {', or '.join(row.remedies)}", console)


def print_speed_rule(report: PlannedModel, console: Console) -> None:
    """Show what estimates of speed stand on."""
    worst = max(abs(point.error) for point in report.calibration)
    measured_on = " and ".join(dict.fromkeys(point.identifier for point in report.calibration))
    caption(
        f"Speeds are estimates: {rules()['efficiency']:g} of the memory's bandwidth over the "
        f"bytes read per token, within {worst:.0%} of {len(report.calibration)} published "
        f"speeds on {measured_on}, on M chips {rules()['efficiency_m']:g} at least.",
        console,
    )


def print_terms(report: PlannedModel, console: Console) -> None:
    """Show what takes how much, a column per backend."""
    from rich.table import Table

    bound = f"max_kv {report.max_kv}" if report.max_kv else "no bound"
    settings = (
        f"{report.model}: {bound}, kv {report.kv}, context {report.context}, "
        f"prefill step {report.prefill_step}"
    )
    console.print(settings, style="italic", markup=False, soft_wrap=False)
    table = Table()
    table.add_column("term", no_wrap=True)
    for plan in report.plans:
        table.add_column(f"{plan.backend}, MB", justify="right")
    table.add_column("source")
    table.add_column("what")
    for position, term in enumerate(report.plans[0].terms):
        sizes = [plan.terms[position].bytes for plan in report.plans]
        if any(sizes):
            table.add_row(term.name, *map(megabytes, sizes), term.known, term.what)
    table.add_section()
    totals = [megabytes(plan.total) for plan in report.plans]
    table.add_row("total", *totals, "", "of the app at its worst moment", style="bold")
    peaks = [megabytes(plan.mlx) for plan in report.plans]
    table.add_row("of which MLX", *peaks, "", "what MLX's own counter calls peak memory")
    console.print(table)


def print_measured(measured: SeenMemory, console: Console) -> None:
    """Show what a device saw beside what was planned, term by term."""
    from rich.table import Table

    on = " ".join(filter(None, (measured.device, measured.system)))
    table = Table(title=f"seen on {on}", title_justify="left")
    table.add_column("term", no_wrap=True)
    for name in ("planned, MB", "seen, MB", "seen of planned"):
        table.add_column(name, justify="right")
    for each in measured.terms:
        share = "-" if each.share is None else f"{each.share:.1%}"
        more = each.share is None or each.share > 1
        style = "red" if each.seen and more else "green"
        sizes = (megabytes(each.planned), megabytes(each.seen))
        table.add_row(each.name, *sizes, f"[{style}]{share}[/]")
    console.print(table)
    if measured.margin is not None:
        said = f"The margin that it needed: {measured.margin:.1%} of what is modelled."
        caption(said, console)


def print_rows(report: PlannedModel, console: Console) -> None:
    """Show whether each device holds it, then how fast it is and what else it holds."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    fits = Table(title="devices, GB", title_justify="left", box=SIMPLE_HEAD, **PLAIN)
    fits.add_column("device", no_wrap=True)
    for name in ("needs", "limit", "", "entitled", "", "left"):
        fits.add_column(name, justify="right", no_wrap=True)
    most = Table(title="at most", title_justify="left", box=SIMPLE_HEAD, **PLAIN)
    most.add_column("device")
    recalls = () if report.recall is None else ("recall, s",)
    for name in ("tok/s", "sustained", *recalls, "max_kv", "unbounded"):
        most.add_column(name, justify="right", no_wrap=True)
    most.add_column("model", overflow="fold")
    for row in report.devices:
        share = row.entitled.headroom_share
        left = "-" if share is None else f"{share:.0%}"
        fits.add_row(
            row.name,
            gigabytes(row.needed),
            limit(row.source(DEFAULT)),
            styled(row.default),
            limit(row.source(ENTITLED)),
            styled(row.entitled),
            left,
        )
        speeds, holds = capacity(row)
        seconds = () if report.recall is None else (recall_seconds(row),)
        most.add_row(row.name, *speeds, *seconds, *holds)
    console.print(fits)
    caption(
        "limit: of an app; entitled: with both memory entitlements, which generated apps "
        "have; left: of that. ~ estimated.",
        console,
    )
    console.print(most)
    caption(
        "sustained: after ten minutes; max_kv, unbounded, model: the most rows per layer, the "
        "longest conversation with the model's own cache and the largest known model that "
        "fit with both entitlements.",
        console,
    )


def size_sentence(size: AppSize) -> str:
    """What an app weighs, and whether the store asks users before they download it."""
    span = f"{size.code_least / 1e6:.0f} to {size.code_most / 1e6:.0f}"
    code = f"its code about {size.code / 1e6:.0f} MB ({span})"
    if size.download < size.installed:
        said = (
            f"about {disk_size(size.download)} to download from the store, {code}, and about "
            f"{disk_size(size.installed)} installed with {disk_size(size.models)} that "
            "come apart"
        )
    else:
        most = store_limits()["app"].bytes
        said = (
            f"about {disk_size(size.download)} to download and to install, {code} and models "
            f"{disk_size(size.models)}; the store takes up to {disk_size(most)}"
        )
    if size.asks:
        over = store_limits()["cellular"].bytes / 1e6
        said += f", and asks users before it downloads more than {over:.0f} MB by cellular"
    return f"{said}."


def recall_line(recall: RecallPlan) -> str:
    """What recall costs, in a sentence."""
    place = "in memory" if recall.archive == "memory" else "in files"
    when = f", at prompts and every {recall.every} tokens" if recall.every else ""
    return (
        f"{recall.layers} layers archive {recall.bytes_per_token:,} bytes per token in "
        f"{recall.archive_bits} bits {place}, {megabytes(recall.archive_bytes)} MB at most. "
        f"One recall brings back up to {recall.rows} rows per head{when}; it reads "
        f"{megabytes(recall.read_bytes)} MB, and computes as much as "
        f"{recall.prompt_tokens:,.0f} tokens of a prompt."
    )


def recall_seconds(row: DeviceFit) -> str:
    """How long a recall reads on a device."""
    seconds = row.recall_seconds
    return "-" if seconds is None else f"~{seconds:.2f}" if seconds >= HUNDREDTH else "<0.01"


def capacity(row: DeviceFit) -> tuple[list[str], list[str]]:
    """How fast a device is, and what else it holds."""
    speed, unknown = row.speed, row.entitled.limit is None
    return [
        "-" if speed is None else str(speed),
        "-" if speed is None or speed.sustained is None else f"~{speed.sustained:.0f}",
    ], [
        "-" if unknown else str(row.largest.max_kv or "none"),
        "-" if unknown else str(row.largest.context or "none"),
        "-" if unknown else row.largest.model or "none",
    ]


def styled(verdict: Verdict) -> str:
    """A verdict in its color, short enough for a table."""
    return f"[{STYLES[verdict.verdict]}]{SHORT[verdict.verdict]}[/]"


def print_loaded(plan: PlanResult, console: Console) -> None:
    """Show each model on each device, and which one the app loads there."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="devices, GB", title_justify="left", box=SIMPLE_HEAD, **PLAIN)
    table.add_column("device", overflow="fold")
    table.add_column("model", overflow="fold")
    for name in ("needs", "left", "tok/s", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for number, loaded in enumerate(plan.loaded):
        for model in plan.models:
            first = model is plan.models[0]
            cells = row_of(model, model.devices[number], loaded)
            table.add_row(loaded.name if first else "", *cells)
    console.print(table)
    caption(
        "left: of an app's limit with both memory entitlements, which generated apps have; "
        "loads: the app takes the largest model that fits the memory that is free.",
        console,
    )


def row_of(model: PlannedModel, fit: DeviceFit, loaded: LoadedModel) -> tuple[str, ...]:
    """Return the cells of a model on a device."""
    share = fit.entitled.headroom_share
    return (
        model.model,
        gigabytes(fit.needed),
        "-" if share is None else f"{share:.0%}",
        "-" if fit.speed is None else str(fit.speed),
        f"[bold]{LOADS}[/]" if loaded.model == model.model else styled(fit.entitled),
    )
