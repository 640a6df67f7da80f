"""The `kernels` commands: parse, call, print."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from h2o_pack.errors import ExitCode

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group()
def kernels() -> None:
    """Build and check the Metal kernels, and tell what they are."""


@kernels.command(epilog="Example: h2o-pack kernels build --sdk iphoneos --output build/metal")
@click.option("--sdk", "sdks", multiple=True, help="macosx, iphoneos or iphonesimulator. [all]")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("build/metal"),
    show_default=True,
    help="Folder for SDK/h2o.metallib.",
)
@click.option("--min-os", help="Oldest system. [default: macOS 14, iOS 17]")
@AS_JSON
def build(*, sdks: tuple[str, ...], output: Path, min_os: str | None, as_json: bool) -> None:
    """Build the Metal library with Xcode, for each SDK with its own compiler."""
    from h2o_pack.cli import progress
    from h2o_pack.kernels.metallib import build_all

    with progress() as say:
        say("compiling the kernels")
        built = build_all(output, sdks, min_os)
    if as_json:
        document = {sdk: str(path) for sdk, path in built.items()}
        click.echo(json.dumps({"format": 1, "libraries": document}, indent=2))
    else:
        for sdk, path in built.items():
            click.echo(f"{sdk}: {path}")


@kernels.command(epilog="Example: h2o-pack kernels check --download")
@click.option("--wheels", type=click.Path(path_type=Path), help="Folder with the macOS wheels.")
@click.option("--download", is_flag=True, help="Get them from pypi.org; 130 MB, once.")
@AS_JSON
def check(*, wheels: Path | None, download: bool, as_json: bool) -> None:
    """Find what a Mac would refuse, with what this machine has."""
    from h2o_pack.cli import console, progress
    from h2o_pack.kernels.checks import run_checks
    from h2o_pack.kernels.tables import print_checks

    with progress() as say:
        report = run_checks(given_wheels=wheels, may_download=download, say=say)
    if as_json:
        click.echo(json.dumps(report.document(), indent=2))
    else:
        print_checks(report, console())
    if report.failed:
        sys.exit(ExitCode.DIFFERENT)


@kernels.command(epilog="Example: h2o-pack kernels report --json")
@AS_JSON
def report(*, as_json: bool) -> None:
    """List the kernels: buffers, function constants, memory, and what checks them."""
    from h2o_pack.cli import console
    from h2o_pack.kernels.report import make_report
    from h2o_pack.kernels.tables import print_kernels

    described = make_report()
    if as_json:
        click.echo(json.dumps(described.document(), indent=2))
    else:
        print_kernels(described, console())


@kernels.command(epilog="Example: h2o-pack kernels patch --check ~/src/mlx-swift")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 if it would.")
@click.option("--mlx-version", help="Version that the header is of. [default: found out]")
def patch(*, path: Path, only_check: bool, mlx_version: str | None) -> None:
    """Edit MLX's sdpa_vector.h at PATH: the file, or a folder that has it."""
    from h2o_pack.kernels.sources import patch_file

    result = patch_file(path, version=mlx_version, write=not only_check)
    if result.changed:
        click.echo(f"patched {result.path} (mlx {result.version})")
    elif result.state_before == "patched":
        click.echo(f"{result.path} is patched already (mlx {result.version})")
    else:
        click.echo(f"{result.path} is not patched (mlx {result.version})")
        sys.exit(ExitCode.DIFFERENT)
