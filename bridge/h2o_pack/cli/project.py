"""h2o-pack.toml: the packages of a project, as options of `ios`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from h2o_pack.cli.terminal import echo_json
from h2o_pack.errors import ExitCode, UserError, shown
from h2o_pack.spec import local_folder

if TYPE_CHECKING:
    from h2o_pack.package.package_result import IosResult


NAME, RESULTS = "h2o-pack.toml", "h2o_pack.ios"
OUTSIDE = "allow_outside"
PASSED_ON = {
    "as_json": "--json",
    "quiet": "--quiet",
    "verbose": "--verbose",
    "debug": "--debug",
    "dry_run": "--dry-run",
    OUTSIDE: "--allow-outside",
}
"""Options that hold for all packages of the file; any other one means that it is not meant."""
REMEDY = "Each [[package]] has options of `h2o-pack ios` by their names without dashes."


def make_packages(ctx: click.Context) -> bool:
    """Run the command for each package of h2o-pack.toml in this folder.

    Returns:
        False, with nothing run, where there is no such file or where the command line says
        what to make.

    Raises:
        UserError: the file is not one, or has an option that the command does not take.

    """
    given = [
        name
        for name in ctx.params
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    path = Path(NAME)
    if set(given) - set(PASSED_ON) or not path.is_file():
        return False
    shared = [PASSED_ON[name] for name in given]
    parsed = []
    for number, table in enumerate(packages(path), start=1):
        where = f"{path}: [[package]] {number}"
        own = [each for key in table for each in option(key, table[key], where)]
        try:
            package = ctx.command.make_context(ctx.info_name, own + shared, ctx.parent)
        except click.UsageError as error:
            raise refused(error.format_message().rstrip("."), where) from error
        if not ctx.params[OUTSIDE]:
            refuse_outside(package, where)
        parsed.append(package)
    with together(ctx) if "as_json" in given else nullcontext():
        for package in parsed:
            with package:
                package.command.invoke(package)
    return True


def refuse_outside(package: click.Context, where: str) -> None:
    """Refuse paths that lead out of this folder: the file may be somebody else's.

    Raises:
        UserError: names the first one.

    """
    folder = Path.cwd().resolve()
    for name, value in package.params.items():
        if package.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        for part in value if isinstance(value, tuple) else (value,):
            path = part if isinstance(part, Path) else None
            if name == "models":
                path = local_folder(part)
            if path is not None and not path.resolve().is_relative_to(folder):
                raise UserError(
                    f"{shown(str(part))} leads out of this folder",
                    where=where,
                    remedy="Give --allow-outside if you trust the file, or a path inside.",
                    code=ExitCode.USAGE,
                )


@contextmanager
def together(ctx: click.Context) -> Iterator[None]:
    """Print what is collected as one document, also where a package ends the command."""
    from h2o_pack.package.package_result import PackagesResult
    from h2o_pack.results import to_json

    made: list[IosResult] = ctx.meta.setdefault(RESULTS, [])
    try:
        yield
    except SystemExit:
        echo_json(to_json(PackagesResult(packages=tuple(made))))
        raise
    echo_json(to_json(PackagesResult(packages=tuple(made))))


def collected(result: IosResult) -> bool:
    """Keep the result of one package of several for their common document.

    Returns:
        False where the command makes one package, whose result is the document.

    """
    made: list[IosResult] | None = click.get_current_context().meta.get(RESULTS)
    if made is None:
        return False
    made.append(result)
    return True


def packages(path: Path) -> list[Mapping[str, Any]]:
    """Return the tables of the file."""
    from h2o_pack.files.toml import Blame, load

    document, _ = load(path, Blame(REMEDY, ExitCode.USAGE))
    tables = document.get("package")
    if set(document) != {"package"} or not isinstance(tables, list):
        raise refused("the file should have [[package]] tables, and nothing else", str(path))
    return tables


def option(key: str, value: Any, where: str) -> list[str]:
    """Return an option as the command line has it; a list repeats it."""
    flag = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, list):
        return [part for each in value for part in option(key, each, where)]
    if isinstance(value, str | int | float):
        return [flag, str(value)]
    raise refused(f"{key} = {shown(value)} is no value of an option", where)


def refused(what: str, where: str) -> UserError:
    """Make the error for something that is wrong in the file."""
    return UserError(what, where=where, remedy=REMEDY, code=ExitCode.USAGE)
