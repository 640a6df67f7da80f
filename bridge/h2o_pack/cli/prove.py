"""The `prove` command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import origin_options
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH, POSITIVE
from h2o_pack.errors import ExitCode
from h2o_pack.files.text import usage_error, writing


@command(example="h2o-pack prove proof.json")
@click.argument("files", type=PATH, nargs=-1, metavar="[FILE]...")
@click.option(
    "--import",
    "imports",
    is_flag=True,
    help="Run nothing: add the reports in FILEs to the page of results in this checkout.",
)
@click.option("--model", default="demo", help="Alias, folder or hub id.")
@click.option("--max-kv", type=POSITIVE, default=128, help="Rows that a layer keeps.")
@click.option(
    "--package",
    type=PATH,
    help="Package to run, in place of a new one of --model and --max-kv.",
)
@click.option(
    "--vendor/--no-vendor",
    default=sys.platform == "darwin",
    show_default="--vendor on a Mac",
    help="Fetch upstream's sources for level 3.",
)
@origin_options
def prove(
    *,
    files: tuple[Path, ...],
    imports: bool,
    model: str,
    max_kv: int,
    package: Path | None,
    vendor: bool,
    upstream: Path | None,
    mirror: str,
    cache: Path,
    out: Terminal,
) -> None:
    """Show what this machine does, and write the report to FILE.

    Runs parity, and measures memory beside the plan and speed beside mlx-lm's own caches.
    Ends with 1 if a level of parity differs.
    """
    if imports and files:
        import_all(files, out)
        return
    if imports or len(files) > 1:
        raise usage_error(f"{len(files)} files were given", "Give one FILE.")
    from h2o_pack.prove.report import print_report
    from h2o_pack.prove.run import Options, run
    from h2o_pack.results import to_json
    from h2o_pack.vendoring.fetch import Origin

    origin = upstream or (Origin(cache, mirror) if vendor else None)
    with out.progress() as say:
        report = run(Options(model, max_kv, package, origin), say)
    for file in files:
        with writing(file):
            file.write_text(to_json(report) + "\n", encoding="utf-8")
    out.show(report, lambda console: print_report(report, console))
    if report.differs:
        sys.exit(ExitCode.DIFFERENT)


def import_all(files: tuple[Path, ...], out: Terminal) -> None:
    """Add reports to the page, and show what changed."""
    from h2o_pack.prove.devices import checkout, import_reports

    imported = import_reports(files, checkout())
    count = imported.reports
    lines = [f"{count} report{' is' if count == 1 else 's are'} on the page"]
    lines += [f"changed: {name}" for name in imported.changed]
    out.show(imported, lambda console: console.print("\n".join(lines), markup=False))
