"""Shows plans at a terminal: on one screen, or every number with its source."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from h2o_pack.bundling.delivery import AppSize
from h2o_pack.devices.catalogue import DEFAULT, ENTITLED, limit
from h2o_pack.facts import store_limits
from h2o_pack.files.text import writing
from h2o_pack.memory.terms import APP, MARGIN, RECALL, ROUNDING, WORKING, MemoryPlan
from h2o_pack.naming import model_display_name
from h2o_pack.plan.advice import common_first
from h2o_pack.plan.device_fit import DeviceFit, PlannedModel, PlanResult, Verdict
from h2o_pack.plan.measured import BYTES, Measured
from h2o_pack.plan.speed import RecallPlan, rules
from h2o_pack.printing import caption, plain_table
from h2o_pack.sizes import disk_size, gigabytes, megabytes

STYLES = {"fits": "green", "tight": "dark_orange3", "does not fit": "red", "unknown": "dim"}
SHORT = {"fits": "fits", "tight": "tight", "does not fit": "no", "unknown": "?"}
HELD = ("fits", "tight")
NAMES = 36  # the most characters for a group's devices; a line then has at most 80 characters
PAGE = 100  # columns


def print_plan(plan: PlanResult, console: Console, *, verbose: bool = False) -> None:
    """Show the verdict, the bytes of each part and the devices; verbose: every number too."""
    print_verdict(plan, console)
    print_sums(plan.models, console)
    print_groups(plan, console)
    for model in plan.models:
        if model.measured is not None:
            print_measured(model.measured, console)
    for text in remarks(plan):
        caption(text, console, "")
    if verbose:
        print_all(plan, console)
    else:
        caption(legend(plan), console)


def legend(plan: PlanResult) -> str:
    """Explain the columns of the table of devices."""
    app = "an app with both memory entitlements, which generated apps have"
    if len(plan.models) > 1:
        columns = f"loads: model that the app loads; left: remaining part of the limit of {app}"
    else:
        columns = (
            f"needs: MB of the app; of: limit in MB of {app}; left: remaining part of the "
            "limit; max_kv: most rows that fit"
        )
    return f"GiB: RAM; {columns}; ~ estimated. --verbose shows every number with its source."


def print_verdict(plan: PlanResult, console: Console) -> None:
    """Show on which devices the package fits, and whether all tokens could be kept."""
    names = " or ".join(model_display_name(model.model) for model in plan.models)
    fitting = [loaded for loaded in plan.loaded if loaded.verdict in HELD]
    fits = {device.identifier: device for device in plan.models[-1].devices}
    sentence = f"{names} fits on {len(fitting)} of {len(plan.loaded)} devices"
    if len(plan.loaded) == 1:
        [only] = plan.loaded
        sentence = f"{names} {VERDICTS[only.verdict]} {only.name}"
    elif fitting:
        smallest = min(fitting, key=lambda device: fits[device.identifier].entitled.limit or 0)
        sentence += f"; smallest: {smallest.name}"
    caption(sentence, console, "bold")
    for model in plan.models:
        whole = model.full_cache
        if whole is not None:
            count = f" on {len(whole.devices)}" if len(plan.loaded) > 1 else ""
            bound = "no --max-kv, " if model.max_kv else ""
            text = f"all {model.context:,} tokens fit{count}, so nothing is forgotten: "
            caption(f"{text}{bound}--kv {whole.kv}", console, "")
        bound = f"max_kv {model.max_kv}" if model.max_kv else "every token kept"
        name = f"{model_display_name(model.model)}: " if len(plan.models) > 1 else ""
        caption(
            f"{name}{bound}, kv {model.kv}, context {model.context}, "
            f"prefill step {model.prefill_step}",
            console,
            "italic",
        )


VERDICTS = {
    "fits": "fits on",
    "tight": "just fits on",
    "does not fit": "does not fit on",
    "unknown": "may not fit on",
}


def sums(plan: MemoryPlan) -> dict[str, int]:
    """Return the bytes of a plan's parts, by short names."""
    return {
        "weights": plan.weights,
        "caches": plan.caches,
        "archive": plan.archive,
        "one chunk": plan.of(*WORKING, RECALL),
        "margin": plan.of(ROUNDING, MARGIN),
        "buffers": plan.buffer_cache,
        "app": plan.of(APP),
        "all": plan.total,
    }


def print_sums(models: Sequence[PlannedModel], console: Console) -> None:
    """Show the MB of each part of the memory, and of files, one line per model.

    Slashes separate backends.
    """
    for model in models:
        lines = [sums(plan) for plan in model.plans]
        parts = [
            f"{name} {'/'.join(dict.fromkeys(f'{line[name] / 1e6:,.0f}' for line in lines))}"
            for name in lines[0]
            if any(line[name] for line in lines)
        ]
        backends = "/".join(plan.backend for plan in model.plans)
        name = f"{model_display_name(model.model)}, " if len(models) > 1 else ""
        recall = model.recall
        if recall is not None and recall.archive == "files":
            parts.append(f"files {recall.archive_bytes / 1e6:,.0f}")
        caption(f"{name}MB on {backends}: {', '.join(parts)}", console, "")


@dataclass(frozen=True)
class Group:
    """Devices with the same memory, limit and plan.

    places: the indices of the devices in the plan. names: the devices' names, in one line.
    """

    places: tuple[int, ...]
    names: str


def groups(plan: PlanResult) -> list[Group]:
    """Group the devices of a plan that have the same memory and limits."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, fits in enumerate(zip(*(model.devices for model in plan.models), strict=True)):
        key = (fits[0].ram, *((fit.needed, fit.entitled.limit) for fit in fits))
        alike.setdefault(key, []).append(place)
    names = [loaded.name for loaded in plan.loaded]
    return [
        Group(tuple(places), together([names[place] for place in places]))
        for places in alike.values()
    ]


def together(names: Sequence[str]) -> str:
    """Return names in one line; a name omits its first word if the name before has it too."""
    short, before = list[str](), ""
    for name in dict.fromkeys(names):
        family = name.partition(" ")[0]
        short.append(name.removeprefix(f"{family} ") if family == before else name)
        before = family
    for count in range(len(short), 1, -1):
        line = ", ".join(short[:count])
        line += f" and {len(short) - count} more" if count < len(short) else ""
        if len(line) <= NAMES:
            return line
    return f"{short[0]} and {len(short) - 1} more" if len(short) > 1 else short[0]


def print_groups(plan: PlanResult, console: Console) -> None:
    """Show the groups of devices, one per line, with the model that the app loads on them."""
    if not plan.loaded:
        return
    several = len(plan.models) > 1
    columns = (
        ("loads", "left", "tok/s") if several else ("needs", "of", "left", "tok/s", "max_kv")
    )
    table = plain_table("GiB", "devices", *columns, text=("devices", "loads"))
    for group in groups(plan):
        loads = plan.loaded[group.places[0]].model
        matching = (model for model in plan.models if model.model == loads)
        model = next(matching, plan.models[-1])
        fits = [model.devices[place] for place in group.places]
        first, ram = fits[0], fits[0].ram
        cells = [left(first.entitled), speeds(fits)]
        if several:
            cells = [model_display_name(loads) if loads else "-", *cells]
        else:
            rows = "-" if first.entitled.limit is None else str(first.largest.max_kv or 0)
            cells = [f"{first.needed / 1e6:,.0f}", entitled(first), *cells, rows]
        table.add_row("-" if ram is None else f"{ram / 2**30:g}", group.names, *cells)
    console.print(table)


def entitled(fit: DeviceFit) -> str:
    """Return the MB that an app may use on a device with both entitlements."""
    number = fit.source(ENTITLED)
    if number is None:
        return "-"
    return f"{'~' if number.kind == 'estimated' else ''}{number.amount / 1e6:,.0f}"


def left(verdict: Verdict) -> str:
    """Return the part of the limit that is left, in the verdict's color."""
    share = verdict.headroom_share
    text = SHORT[verdict.verdict] if share is None or share < 0 else f"{share:.0%}"
    return f"[{STYLES[verdict.verdict]}]{text}[/]"


def speeds(fits: Sequence[DeviceFit]) -> str:
    """Return the tokens per second of devices, from the slowest to the fastest."""
    ranges = [fit.speed.tokens_per_second for fit in fits if fit.speed is not None]
    if not ranges:
        return "-"
    low, high = min(pair[0] for pair in ranges), max(pair[1] for pair in ranges)
    return f"~{low:.0f}" if round(low) == round(high) else f"~{low:.0f}-{high:.0f}"


def remarks(plan: PlanResult) -> Iterator[str]:
    """Yield the app's size, warnings, and settings that would fit on more devices."""
    size = plan.size
    yield f"app: about {disk_size(size.download)} to download, models {disk_size(size.models)}"
    for text in common_first([(model.model, model.advice) for model in plan.models]):
        yield f"note: {text}"
    for group in groups(plan):
        first = group.places[0]
        settings = plan.models[-1].devices[first].remedies
        if plan.loaded[first].model is None and settings:
            yield f"{group.names}: would just fit with {', or '.join(settings)}"


def print_all(plan: PlanResult, console: Console) -> None:
    """Show every term, device and estimate."""
    for model in plan.models:
        print_terms(model, console)
        print_rows(model, console)
        caption(f"An app with {model.model} alone: {size_sentence(model.size)}", console)
        if model.recall is not None:
            caption(f"recall: {recall_line(model.recall)}", console)
    if len(plan.models) > 1:
        caption(f"An app with all models: {size_sentence(plan.size)}", console)
    print_speed_rule(plan.models[0], console)


def print_terms(report: PlannedModel, console: Console) -> None:
    """Show the bytes of each term, a column per backend."""
    table = Table(title=f"memory of {escape(report.model)}", title_justify="left")
    table.add_column("term", no_wrap=True)
    for plan in report.plans:
        table.add_column(f"{plan.backend}, MB", justify="right")
    table.add_column("source")
    table.add_column("meaning")
    for position, term in enumerate(report.plans[0].terms):
        sizes = [plan.terms[position].bytes for plan in report.plans]
        if any(sizes):
            table.add_row(term.name, *map(megabytes, sizes), term.known, term.what)
    table.add_section()
    totals = [megabytes(plan.total) for plan in report.plans]
    table.add_row("total", *totals, "", "all together", style="bold")
    peaks = [megabytes(plan.mlx) for plan in report.plans]
    table.add_row("of which MLX", *peaks, "", "part that MLX's counter of peak memory includes")
    console.print(table)


def print_rows(report: PlannedModel, console: Console) -> None:
    """Show each device's limits, its speed, and the largest settings that fit on it."""
    fits = plain_table("device", "needs", "limit", " ", "entitled", "  ", "left")
    names = ("device", "tok/s", "sustained", "max_kv", "unbounded", "model")
    most = plain_table(*names, text=("device", "model"))
    for row in report.devices:
        share, speed, memory = row.entitled.headroom_share, row.speed, row.entitled.limit
        fits.add_row(
            row.name,
            gigabytes(row.needed),
            limit(row.source(DEFAULT)),
            styled(row.default),
            limit(row.source(ENTITLED)),
            styled(row.entitled),
            "-" if share is None else f"{share:.0%}",
        )
        holds = (row.largest.max_kv, row.largest.context, row.largest.model)
        most.add_row(
            row.name,
            "-" if speed is None else str(speed),
            "-" if speed is None or speed.sustained is None else f"~{speed.sustained:.0f}",
            *("-" if memory is None else str(size or "none") for size in holds),
        )
    console.print(fits)
    caption(
        "GB. limit: of an app; entitled: limit of an app with both memory entitlements; left: "
        "remaining part of the entitled limit.",
        console,
    )
    console.print(most)
    caption(
        "sustained: tok/s after ten minutes. The other columns show the largest settings with "
        "both entitlements: max_kv, rows per layer; unbounded, tokens of a conversation with "
        "caches that keep every token; model, the largest known model.",
        console,
    )


def print_measured(measured: Measured, console: Console) -> None:
    """Show planned and measured values side by side."""
    on = " ".join(filter(None, (measured.device, measured.system)))
    table = Table(title=f"measured on {escape(on)}", title_justify="left")
    table.add_column("", no_wrap=True)
    for name in ("planned", "measured", "measured / planned"):
        table.add_column(name, justify="right")
    for value in measured.values:
        shown = (quantity(number, value.unit) for number in (value.planned, value.measured))
        ratio = "-"
        if value.ratio is not None:
            style = "red" if (value.ratio > 1) == (value.unit == BYTES) else "green"
            ratio = f"[{style}]{value.ratio:.1%}[/]"
        table.add_row(value.name, *shown, ratio)
    console.print(table)
    after = ""
    if measured.thermal_state:
        after = f" After three minutes, it was {measured.thermal_state}."
    caption(
        f"The plan is for {measured.context:,} tokens. The device needed a margin of "
        f"{measured.margin:.1%} of the modelled terms.{after}",
        console,
    )


def quantity(number: float | None, unit: str) -> str:
    """Write bytes in MB, and other numbers as a speed; "-" for None."""
    if number is None:
        return "-"
    return f"{number / 1e6:,.1f} MB" if unit == BYTES else f"{number:,.1f}/s"


def print_speed_rule(report: PlannedModel, console: Console) -> None:
    """Show the rule that estimates speeds, and the sources of the devices' numbers."""
    worst = max(abs(point.error) for point in report.calibration)
    measured_on = " and ".join(dict.fromkeys(point.identifier for point in report.calibration))
    caption(
        f"Speeds are estimates: {rules()['efficiency']:g} of the memory bandwidth divided by "
        f"the bytes read per token, within {worst:.0%} of {len(report.calibration)} "
        f"published speeds on {measured_on}; on M chips at least {rules()['efficiency_m']:g}.",
        console,
    )
    sources = (number for row in report.devices for number in row.sources)
    names = dict.fromkeys(f"{source.source} ({source.kind})" for source in sources)
    if names:
        caption(f"Limits and bandwidths: {'; '.join(names)}.", console)


def size_sentence(size: AppSize) -> str:
    """Describe the size of an app, and whether the store asks users before a download."""
    span = f"{size.code_least / 1e6:.0f} and {size.code_most / 1e6:.0f} MB"
    code = f"code: about {size.code / 1e6:.0f} MB, between {span}"
    if size.download < size.installed:
        sentence = (
            f"about {disk_size(size.download)} to download from the store ({code}), and about "
            f"{disk_size(size.installed)} on the device, including {disk_size(size.models)} "
            "of models that are downloaded separately"
        )
    else:
        most = store_limits()["app"].bytes
        sentence = (
            f"about {disk_size(size.download)} to download and to store on the device ({code}; "
            f"models: {disk_size(size.models)}); the store accepts up to {disk_size(most)}"
        )
    if size.asks:
        over = store_limits()["cellular"].bytes / 1e6
        sentence += (
            f", and asks users before it downloads more than {over:.0f} MB over cellular"
        )
    return f"{sentence}."


def recall_line(recall: RecallPlan) -> str:
    """Describe the memory and the reading that recall costs."""
    place = "in memory" if recall.archive == "memory" else "in files"
    generated = "A generated token reads nothing of them"
    if recall.reach:
        generated = (
            "A generated token reads the sketch and "
            f"{megabytes(recall.token_read_bytes)} MB of the archives"
        )
    return (
        f"{recall.layers} layers archive {recall.bytes_per_token:,} bytes per token in "
        f"{recall.archive_bits} bits {place}, at most {megabytes(recall.archive_bytes)} MB, "
        f"and a sketch of {recall.sketch_bytes_per_token:,} bytes per token in memory, at "
        f"most {megabytes(recall.sketch_bytes)} MB. {generated}; a chunk of a prompt reads "
        f"{megabytes(recall.prompt_read_bytes)} MB of the archives, and computes as much as "
        f"{recall.prompt_tokens:,.0f} more tokens."
    )


def styled(verdict: Verdict) -> str:
    """Return a verdict in its color, short enough for a table."""
    return f"[{STYLES[verdict.verdict]}]{SHORT[verdict.verdict]}[/]"


def write_page(plan: PlanResult, path: Path) -> None:
    """Write a whole plan as one HTML page that loads no other file."""
    screen = Console(record=True, file=io.StringIO(), width=PAGE, highlight=False)
    print_plan(plan, screen, verbose=True)
    with writing(path, "the page", "Give --html a file in a folder in which you may write."):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(screen.export_html(inline_styles=True), "utf-8")
