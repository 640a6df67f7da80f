"""Reports that `h2o-pack prove` and an app made with `--proof` write, and the page of them.

A report comes from other people, so it is not trusted: identifiers must match a pattern, no
text of a report becomes part of a path, and the page escapes all texts.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from h2o_pack import __version__, assets
from h2o_pack.errors import Problems, output_error
from h2o_pack.files.text import read_json, writing
from h2o_pack.parity.report import DIFFERENT, Verdict
from h2o_pack.results import Count, Result, doc

Identifier = Annotated[str, Meta(pattern=r"^\w[\w.,-]*$(?!\n)", max_length=80)]
Name = Annotated[str, Meta(pattern=r"^\w[\w.,:+/@() -]*$(?!\n)", max_length=200)]
Text = Annotated[str, Meta(max_length=400)]


@dataclass(frozen=True, kw_only=True)
class ProvenMachine:
    """The machine, without its name, its user or its serial number."""

    identifier: Annotated[
        Identifier,
        doc('Identifier that the system reports, such as "Mac15,3" or "iPhone17,1".'),
    ]
    chip: Annotated[
        Text, doc("Name of the processor; empty if the system does not report it.")
    ] = ""
    gpu: Annotated[Text, doc("Name of the GPU that MLX runs on; empty on a CPU.")] = ""
    cores: Annotated[Count, doc("Cores that the process may use.")]
    memory_bytes: Annotated[Count, doc("Bytes of RAM.")]
    system: Annotated[Literal["macOS", "iOS", "iPadOS", "Linux"], doc("Operating system.")]
    system_version: Annotated[Name, doc("Version of the system.")]


@dataclass(frozen=True)
class ProvenLevel:
    """The result of a level of parity."""

    number: Annotated[Literal[1, 2, 3], doc("Number of the level, as in `h2o-pack parity`.")]
    verdict: Annotated[Verdict, doc("Whether all cases agree.")]
    cases: Annotated[Count, doc("Cases compared.")] = 0
    largest_output_difference: Annotated[
        float,
        Meta(ge=0),
        doc(
            "Largest difference of outputs, relative to the largest "
            "output of the step if that is above 1."
        ),
    ] = 0.0
    detail: Annotated[Text, doc("First difference, or why the level did not run.")] = ""


@dataclass(frozen=True)
class ProvenMemory:
    """The measured bytes of one use of memory."""

    name: Annotated[
        Name,
        doc("Name of a term of the plan, or of another quantity, such as the app's limit."),
    ]
    bytes: Annotated[Count, doc("Measured bytes.")]
    planned: Annotated[
        Count | None, doc("Planned bytes; null if the plan has no such term.")
    ] = None


@dataclass(frozen=True)
class ProvenSpeed:
    """The measured speed of one cache or run."""

    name: Annotated[Name, doc("What was measured, with which cache or when.")]
    tokens_per_second: Annotated[float, Meta(ge=0), doc("Tokens per second.")]


@dataclass(frozen=True, kw_only=True)
class ProofReport(Result):
    """The measurements and checks of one machine."""

    tool: Annotated[Literal["h2o-pack", "app"], doc("Program that wrote the report.")]
    date: Annotated[
        Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$(?!\n)")],
        doc("Time of the report in UTC."),
    ]
    machine: Annotated[ProvenMachine, doc("Machine that ran the checks.")]
    versions: Annotated[
        dict[Name, Name],
        doc("Versions of h2o-pack and its dependencies: mlx, mlx-lm, swift and others."),
    ]
    model: Annotated[Name, doc("Short name or id of the model.")]
    max_kv: Annotated[Count, doc("Rows that a layer keeps.")]
    kv: Annotated[Name, doc("Storage of rows.")]
    levels: Annotated[tuple[ProvenLevel, ...], doc("Levels of parity.")]
    memory: Annotated[tuple[ProvenMemory, ...], doc("Measured memory, compared with the plan.")]
    speed: Annotated[tuple[ProvenSpeed, ...], doc("Speed of the whole model.")]
    kernels: Annotated[
        tuple[Name, ...], doc("Metal kernels that wrote scores; empty if unknown.")
    ] = ()
    thermal_state: Annotated[
        Annotated[int, Meta(ge=0, le=3)] | None,
        doc("Thermal state of a device at the end, from 0 (nominal) to 3 (critical)."),
    ] = None

    @property
    def differs(self) -> bool:
        """Whether a level of parity found a difference."""
        return any(level.verdict == DIFFERENT for level in self.levels)

    @property
    def title(self) -> str:
        """The machine, the model and its cache."""
        machine = self.machine
        return (
            f"{machine.identifier}, {machine.system} {machine.system_version}: {self.model}, "
            f"max_kv {self.max_kv}, {self.kv} rows"
        )

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the measurements as rows of `COLUMNS`."""
        rows = [
            (f"level {level.number}", f"{level.verdict} ({level.cases} cases)", level.detail)
            for level in self.levels
        ]
        for term in self.memory:
            planned = "" if term.planned is None else megabytes(term.planned)
            rows.append((term.name, megabytes(term.bytes), planned))
        rows += [
            (speed.name, f"{speed.tokens_per_second:.1f} tokens/s", "") for speed in self.speed
        ]
        if self.thermal_state is not None:
            rows.append(("thermal state", f"{self.thermal_state} of 3", ""))
        return [*rows, ("Metal kernels", str(len(self.kernels)), "")]


COLUMNS = ("", "measured", "planned, or why it did not run")


def megabytes(size: int) -> str:
    """Write a number of bytes in MB."""
    return f"{size / 1e6:,.2f} MB"


def print_report(report: ProofReport, console: Console) -> None:
    """Show a report as a table."""
    table = Table(*COLUMNS, title=escape(report.title), title_justify="left")
    for row in report.rows():
        table.add_row(*map(escape, row))
    console.print(table)


FOLDER = "docs/results/devices"
PAGE, REPORTS = "README.md", "reports.jsonl"
HEAD = (
    f"<!-- generated by h2o-pack {__version__} (h2o-pack prove --import), do not edit -->\n"
    "# What devices reported\n\n"
    "Reports of [`h2o-pack prove`](../../proving.md) and of the app's page *Prove it*, newest "
    "first.\n"
)
MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~-])")


@dataclass(frozen=True, kw_only=True)
class ImportedProofs(Result):
    """The result of importing reports into the page."""

    reports: Annotated[Count, doc("Number of reports on the page.")]
    changed: Annotated[tuple[str, ...], doc("Files that were written in the checkout.")]


def checkout() -> Path:
    """Return the root of h2o-pack's own repository; UserError outside of one."""
    root = assets.root()
    if not ((root / "pyproject.toml").is_file() and (root / "docs/results").is_dir()):
        raise output_error(
            "reports are added to the repository of h2o-pack, but this h2o-pack is installed "
            "without the repository",
            "Clone the repository and run the command there.",
            where=str(root),
        )
    return root


def import_reports(paths: Iterable[Path], root: Path) -> ImportedProofs:
    """Add the reports in files to the page.

    Raises UserError: a file is not a report. Nothing is written then.
    """
    what = "a report of `h2o-pack prove`"
    remedy = (
        'Make a report with `h2o-pack prove FILE`, or with the page "Prove it" of an app '
        "made with --proof."
    )
    problems = Problems()
    reports = read_reports(root)
    for path in paths:
        with problems.caught():
            reports.append(read_json(path, ProofReport, what, remedy))
    problems.refuse()
    reports.sort(key=lambda report: report.date, reverse=True)
    by_line = {msgspec.json.encode(report).decode(): report for report in reports}
    lines = "".join(f"{line}\n" for line in by_line)
    files = []
    with writing(root / FOLDER):
        (root / FOLDER).mkdir(parents=True, exist_ok=True)
        for name, text in ((REPORTS, lines), (PAGE, page(list(by_line.values())))):
            path = root / FOLDER / name
            if not path.is_file() or path.read_text("utf-8") != text:
                path.write_text(text, encoding="utf-8", newline="\n")
                files.append(f"{FOLDER}/{name}")
    return ImportedProofs(reports=len(by_line), changed=tuple(files))


def read_reports(root: Path) -> list[ProofReport]:
    """Return the reports on the page, newest first."""
    path = root / FOLDER / REPORTS
    lines = path.read_text("utf-8").splitlines() if path.is_file() else ()
    return [msgspec.json.decode(line, type=ProofReport) for line in lines]


def page(reports: Sequence[ProofReport]) -> str:
    """Return the Markdown of reports, newest first."""
    none = ["No report has come from a device yet.\n"]
    return "\n".join([HEAD, *(map(section, reports) if reports else none)])


def section(report: ProofReport) -> str:
    """Return the Markdown of one report."""
    machine = report.machine
    memory = f"{machine.memory_bytes / 1e9:.0f} GB"
    where = f"{machine.chip} {machine.gpu}, {machine.cores} cores, {memory}"
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    header, *rows = ([plain(cell) for cell in row] for row in (COLUMNS, *report.rows()))
    lines = [f"| {' | '.join(row)} |" for row in (header, ["---"] * 3, *rows)]
    names = plain(", ".join(report.kernels))
    kernels = [f"Metal kernels: {names}", ""] if names else []
    origin = plain(f"{report.date[:10]}; {where}; {versions}")
    return "\n".join([f"## {plain(report.title)}", "", origin, "", *lines, "", *kernels])


def plain(text: str) -> str:
    """Escape all that Markdown or HTML would not show as it is; line ends become spaces."""
    return MARKDOWN.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
