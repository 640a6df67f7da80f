"""The `kernels` commands."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH
from h2o_pack.errors import ExitCode


@click.group(epilog="Example: h2o-pack kernels check --download")
def kernels() -> None:
    """Build and check the Metal kernels, and tell what they are."""


@command(example="h2o-pack kernels build --sdk iphoneos --output build/metal")
@click.option("--sdk", "sdks", multiple=True, help="macosx, iphoneos or iphonesimulator. [all]")
@click.option(
    "--output", type=PATH, default=Path("build/metal"), help="Folder for SDK/h2o.metallib."
)
@click.option("--min-os", help="Oldest system. [default: macOS 14, iOS 17]")
def build(*, sdks: tuple[str, ...], output: Path, min_os: str | None, out: Terminal) -> None:
    """Build the Metal library with Xcode, for each SDK with its own compiler."""
    from h2o_pack.kernels.metallib import LibrariesResult, build_all

    with out.progress() as say:
        say("compiling the kernels")
        built = build_all(output, sdks, min_os)
    lines = "\n".join(f"{sdk}: {path}" for sdk, path in built.items())
    result = LibrariesResult(libraries=built)
    out.show(result, lambda console: console.print(lines, markup=False))


@command(example="h2o-pack kernels check --download")
@click.option("--wheels", type=PATH, help="Folder with the macOS wheels.")
@click.option("--download", is_flag=True, help="Get them from pypi.org; 130 MB, once.")
def check(*, wheels: Path | None, download: bool, out: Terminal) -> None:
    """Find what a Mac would refuse, with what this machine has."""
    from h2o_pack.kernels.checks import run_checks
    from h2o_pack.kernels.tables import print_checks

    with out.progress() as say:
        report = run_checks(given_wheels=wheels, may_download=download, say=say)
    out.show(report, lambda console: print_checks(report, console))
    if not report.passed:
        sys.exit(ExitCode.DIFFERENT)


@command(example="h2o-pack kernels report --json")
def report(*, out: Terminal) -> None:
    """List the kernels: buffers, function constants, memory, and what checks them."""
    from h2o_pack.kernels.report import make_report
    from h2o_pack.kernels.tables import print_kernels

    described = make_report()
    out.show(described, lambda console: print_kernels(described, console))


@command(example="h2o-pack kernels patch --check ~/src/mlx-swift")
@click.argument("path", type=PATH)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 if it would.")
@click.option("--mlx-version", help="Version that the header is of. [default: found out]")
def patch(*, path: Path, only_check: bool, mlx_version: str | None, out: Terminal) -> None:
    """Edit MLX's sdpa_vector.h at PATH: the file, or a folder that has it."""
    from h2o_pack.kernels.sources import patch_file

    result = patch_file(path, version=mlx_version, write=not only_check)
    if result.changed:
        line = f"patched {result.path}"
    else:
        state = "patched already" if result.before == "patched" else "not patched"
        line = f"{result.path} is {state}"
    line = f"{line} (mlx {result.version})"
    out.show(result, lambda console: console.print(line, markup=False))
    if not result.changed and result.before != "patched":
        sys.exit(ExitCode.DIFFERENT)


for each in (build, check, report, patch):
    kernels.add_command(each)
