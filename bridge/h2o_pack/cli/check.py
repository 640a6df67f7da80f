"""The commands that check: this machine, an app, a package, and Swift beside Python."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import PATH, POSITIVE, origin_options
from h2o_pack.cli.terminal import Terminal
from h2o_pack.errors import ExitCode
from h2o_pack.files.text import usage_error, writing


@command(example="h2o-pack doctor ~/MyApp")
@click.argument("app", type=PATH, required=False)
@click.option(
    "--output",
    type=PATH,
    default=Path(),
    show_default=False,
    help="Folder that packages will be made in. [default: this one]",
)
@click.option(
    "--run-manifest",
    is_flag=True,
    help="Run APP's Package.swift without a question: it is a program, and Swift reads it so.",
)
def doctor(*, app: Path | None, output: Path, run_manifest: bool, out: Terminal) -> None:
    """Tell what this machine has of what h2o-pack needs, and what to do about the rest.

    Exits with 5 where `h2o-pack ios` cannot work: an old Python, another mlx or mlx-lm
    than the pinned one, no room where packages are made. Xcode is needed to build a
    package, not to make one.

    With APP, the folder of an app's Package.swift or Xcode project, it tells instead what
    collides when a package is added to the app, and what to do. Then it exits with 1 if
    something does, and with 2 if APP is not an app's folder. A Package.swift is a program:
    it runs only with --run-manifest, or after a question at a terminal.
    """
    from h2o_pack.coexistence.collisions import check_app, print_app
    from h2o_pack.doctor.checks import check_up
    from h2o_pack.doctor.finding import print_checkup
    from h2o_pack.doctor.machine import Surroundings

    machine = Surroundings(output=output.absolute())
    if app is not None:
        may_run = run_manifest or may_run_manifest(app, out)
        with out.progress() as say:
            say(f"reading {app}")
            collisions = check_app(app, machine, may_run=may_run)
        out.show(collisions, lambda console: print_app(collisions, console))
        if collisions.collides:
            sys.exit(ExitCode.DIFFERENT)
        return
    with out.progress() as say:
        say("looking at this machine")
        checkup = check_up(machine)
    out.show(checkup, lambda console: print_checkup(checkup, console))
    if checkup.blocked:
        sys.exit(ExitCode.TOOL)


def may_run_manifest(app: Path, out: Terminal) -> bool:
    """Ask whether Swift may run the manifest of an app; no where nobody can answer."""
    folder = app.parent if app.suffix in (".xcodeproj", ".xcworkspace") else app
    manifest = folder / "Package.swift"
    if out.json or out.quiet or not sys.stdin.isatty() or not manifest.is_file():
        return False
    return click.confirm(f"{manifest} is a program. Run it, to read it?", err=True)


@command(example="h2o-pack verify build/Demo")
@click.argument("package", type=PATH)
@click.option("--quick", is_flag=True, help="Compare sizes of the model's files only.")
@click.option("--strict", is_flag=True, help="End with 1 for files of your own too.")
def verify(*, package: Path, quick: bool, strict: bool, out: Terminal) -> None:
    """Check that every file of PACKAGE is as h2o-pack wrote it.

    Files of your own, and those of the app that you changed, are named and no error.
    """
    from h2o_pack.verify.check import print_verification
    from h2o_pack.verify.check import verify as check

    with out.progress() as say:
        verification = check(package, quick=quick, say=say)
    out.show(verification, lambda console: print_verification(verification, console))
    if verification.differences or (strict and verification.users):
        sys.exit(ExitCode.DIFFERENT)


@command(example="h2o-pack parity build/Demo")
@click.argument("package", type=PATH)
@click.option(
    "--level",
    "levels",
    type=click.Choice(["op", "trace", "tokens", "all"]),
    multiple=True,
    help="Check this level only; may be given again. tokens needs PACKAGE/Vendor. "
    "[default: op and trace]",
)
@click.option("--require-swift", is_flag=True, help="Exit with 5 where there is no Swift.")
def parity(
    *, package: Path, levels: tuple[str, ...], require_swift: bool, out: Terminal
) -> None:
    """Check that PACKAGE does in Swift what mlx-lm does in Python."""
    from h2o_pack.parity.parity import DEFAULT, LEVELS, run_parity
    from h2o_pack.parity.report import print_report

    with out.progress() as say:
        report = run_parity(
            package,
            levels=tuple(LEVELS) if "all" in levels else levels or DEFAULT,
            require_swift=require_swift,
            progress=say,
        )
    out.show(report, lambda console: print_report(report, console))
    if report.differs:
        sys.exit(ExitCode.DIFFERENT)


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
    from h2o_pack.prove.report import checkout, import_reports

    imported = import_reports(files, checkout())
    count = imported.reports
    lines = [f"{count} report{' is' if count == 1 else 's are'} on the page"]
    lines += [f"changed: {name}" for name in imported.changed]
    out.show(imported, lambda console: console.print("\n".join(lines), markup=False))
