"""Plans and devices as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2o_pack.bundling.app_size import AppSize
from h2o_pack.bundling.space import shown
from h2o_pack.devices.device import Device
from h2o_pack.devices.facts import DEFAULT, ENTITLED, Number
from h2o_pack.facts import store_limits
from h2o_pack.plan.measured import SeenMemory
from h2o_pack.plan.recall import RecallPlan
from h2o_pack.plan.report import DeviceFit, PlanResult
from h2o_pack.plan.speed import rules
from h2o_pack.plan.verdict import Verdict
from h2o_pack.sizes import gigabytes, megabytes

if TYPE_CHECKING:
    from rich.console import Console


STYLES = {"fits": "green", "tight": "yellow", "does not fit": "red", "unknown": "dim"}
PLAIN: dict[str, Any] = {"show_edge": False, "collapse_padding": True, "pad_edge": False}
SHORT = {"fits": "fits", "tight": "tight", "does not fit": "no", "unknown": "?"}
HUNDREDTH = 0.01
KNOWN = {"measured": "", "reported": "", "estimated": "~"}


def print_report(report: PlanResult, console: Console) -> None:
    """Show terms, devices, remarks and what the speeds stand on."""
    print_terms(report, console)
    if report.measured is not None:
        print_measured(report.measured, console)
    if report.devices:
        print_rows(report, console)
    print_note(f"app: {size_sentence(report.size)}", console)
    if report.recall is not None:
        print_note(f"recall: {recall_line(report.recall)}", console)
    for said in report.advice:
        print_note(f"note: {said}", console)
    for row in report.devices:
        print_margin(row, console)
        print_remedies(row, console)
    print_speed_rule(report, console)


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


def print_speed_rule(report: PlanResult, console: Console) -> None:
    """Show what estimates of speed stand on."""
    worst = max(abs(each.error) for each in report.calibration)
    measured_on = " and ".join(dict.fromkeys(each.identifier for each in report.calibration))
    caption(
        f"Speeds are estimates: {rules()['efficiency']:g} of the memory's bandwidth over the "
        f"bytes read per token, within {worst:.0%} of {len(report.calibration)} published "
        f"speeds on {measured_on}, on M chips {rules()['efficiency_m']:g} at least.",
        console,
    )


def caption(text: str, console: Console) -> None:
    """Show what stands below a table, on lines no longer than the screen."""
    console.print(text, style="dim", markup=False, soft_wrap=False)


def print_terms(report: PlanResult, console: Console) -> None:
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


def print_rows(report: PlanResult, console: Console) -> None:
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
            f"about {shown(size.download)} to download from the store, {code}, and about "
            f"{shown(size.installed)} installed with {shown(size.models)} that come apart"
        )
    else:
        most = store_limits()["app"].bytes
        said = (
            f"about {shown(size.download)} to download and to install, {code} and models "
            f"{shown(size.models)}; the store takes up to {shown(most)}"
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


def limit(number: Number | None) -> str:
    """A limit in GB, with a sign before estimates."""
    return "-" if number is None else KNOWN[number.kind] + gigabytes(number.amount)


def print_devices(devices: tuple[Device, ...], console: Console, *, sources: bool) -> None:
    """Show devices and, for few of them, who says so."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="devices", title_justify="left", box=SIMPLE_HEAD, **PLAIN)
    for name in ("identifier", "device", "chip"):
        table.add_column(name, no_wrap=name != "device")
    for name in ("GiB", "limit", "entitled", "GB/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for device in devices:
        memory, bandwidth = device.ram, device.bandwidth
        table.add_row(
            device.identifier,
            device.title,
            device.chip,
            "-" if memory is None else f"{memory / 2**30:g}",
            limit(device.number(DEFAULT)),
            limit(device.number(ENTITLED)),
            "-" if bandwidth is None else f"{bandwidth / 1e9:g}",
        )
    console.print(table)
    caption(
        "GiB of RAM; limit: what an app may use, in GB; entitled: with increased-memory-limit "
        "and extended-virtual-addressing. ~ estimated; `h2o-pack devices NAME` shows sources.",
        console,
    )
    if sources:
        print_sources(devices, console)


def print_sources(devices: tuple[Device, ...], console: Console) -> None:
    """Show every number of some devices, those that plans do not use too."""
    from rich.table import Table

    for device in devices:
        table = Table(title=f"{device.identifier} {device.title}", title_justify="left")
        for name in ("what", "value", "kind", "system", "source", "note"):
            table.add_column(name)
        for number in device.numbers:
            table.add_row(
                number.what,
                f"{number.value:,.10g} {number.unit}",
                number.kind,
                number.os_version,
                number.source,
                number.note,
            )
        console.print(table)
