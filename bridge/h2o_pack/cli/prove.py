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
from h2o_pack.files.text import usage_error


@command(example="h2o-pack prove proof.json")
@click.argument("files", type=PATH, nargs=-1, metavar="[FILE]...")
@click.option("--check", is_flag=True, help="Run nothing: check the report in FILE.")
@click.option(
    "--import",
    "keep",
    is_flag=True,
    help="Run nothing: keep the reports in FILEs in this checkout, as a page and as facts.",
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
    check: bool,
    keep: bool,
    model: str,
    max_kv: int,
    package: Path | None,
    vendor: bool,
    upstream: Path | None,
    mirror: str,
    cache: Path,
    out: Terminal,
) -> None:
    """Prove what this machine does, and write the report to FILE.

    Compares kernels, caches and tokens, measures memory and speed, and holds all of it
    against what the plan and mlx-lm say. Ends with 1 if anything differs.
    """
    if check and keep:
        raise usage_error("--check and --import were given", "--import checks too.")
    if keep and files:
        keep_all(files, out)
        return
    if len(files) > 1 or ((check or keep) and not files):
        raise usage_error(f"{len(files)} files were given", "Give one FILE.")
    if check:
        check_one(files[0], out)
        return
    from h2o_pack.prove.run import Options, run, write
    from h2o_pack.prove.tables import print_report
    from h2o_pack.vendoring.fetch import Origin

    origin = upstream or (Origin(cache, mirror) if vendor else None)
    with out.progress() as say:
        report = run(Options(model, max_kv, package, origin), say)
    if files:
        write(report, files[0])
    out.show(report, lambda console: print_report(report, console))
    if report.differs:
        sys.exit(ExitCode.DIFFERENT)


def check_one(file: Path, out: Terminal) -> None:
    """Show what --check finds."""
    from h2o_pack.prove.read import check_report
    from h2o_pack.prove.tables import print_checked

    checked = check_report(file)
    out.show(checked, lambda console: print_checked(checked, console))


def keep_all(files: tuple[Path, ...], out: Terminal) -> None:
    """Show what --import keeps."""
    from h2o_pack.prove.keep import checkout, import_reports
    from h2o_pack.prove.tables import print_imported

    imported = import_reports(files, checkout())
    out.show(imported, lambda console: print_imported(imported, console))
