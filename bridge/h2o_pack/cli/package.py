"""The commands that make a package, `ios`, `update` and `vendor`, and h2o-pack.toml."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from h2o_pack.cli import options as common
from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal, echo_json
from h2o_pack.errors import ExitCode, Problems, UserError, nearest, shown, usage_error
from h2o_pack.spec import local_folder

if TYPE_CHECKING:
    from h2o_pack.package.build import PackageResult
    from h2o_pack.package.package_result import Choices


NAME = "h2o-pack.toml"
TRUST = "trust_file"
OUTPUT = {"as_json": "--json", "quiet": "--quiet", "verbose": "--verbose"}
PASSED_ON = {
    **OUTPUT,
    "debug": "--debug",
    "dry_run": "--dry-run",
    TRUST: "--trust-file",
}
"""Options that apply to all packages of the file; with any other option, it is not read."""
SOURCES = ("upstream", "mirror", "cache")
"""Options that choose which code a package contains, and from where it comes."""
REMEDY = "The keys of a [[package]] are the options of `h2o-pack ios` without leading dashes."

NEW_APP = "Write the newest scaffold of the app to App.new. The folder App is never changed."


def project(ctx: click.Context) -> list[tuple[dict[str, Any], Terminal, str]] | None:
    """Return the options, terminal and line of each package of h2o-pack.toml in this folder.

    None if there is no such file or if the command line has other options. The line is "" with
    --trust-file. Raises UserError: the file is not valid, or has an option that the command
    does not have, or that needs --trust-file.
    """
    names = [
        name
        for name in ctx.params
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    path = Path(NAME)
    if set(names) - set(PASSED_ON) or not path.is_file():
        return None
    shared = [PASSED_ON[name] for name in names]
    parsed = []
    for where, table in packages(ctx.command, path):
        own = [argument for key in table for argument in option(key, table[key], where)]
        try:
            package = ctx.command.make_context(ctx.info_name, own + shared, ctx.parent)
        except click.UsageError as error:
            raise refused(error.format_message().rstrip("."), where) from error
        if not ctx.params[TRUST]:
            refuse_untrusted(package, where)
        options = package.params
        terminal = Terminal(*(options[name] for name in OUTPUT))
        parsed.append((options, terminal, "" if ctx.params[TRUST] else where))
    return parsed


def refuse_untrusted(package: click.Context, where: str) -> None:
    """Refuse options that a file of somebody else must not choose."""
    for name, value in package.params.items():
        if package.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if name in SOURCES:
            raise usage_error(
                f"the file chooses where sources of code come from, with the key {name}",
                f"Leave out {name}, or run `h2o-pack ios --trust-file` if you trust the file.",
                where=where,
            )
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Path):
                refuse_outside(part, where)
            elif name == "models" and (folder := local_folder(part)) is not None:
                refuse_outside(folder, where)


def refuse_outside(path: Path, where: str) -> None:
    """Refuse a path that leads out of this folder, also through a link."""
    try:
        is_inside = path.resolve().is_relative_to(Path.cwd().resolve())
    except (OSError, RuntimeError, ValueError):  # a link to itself, a NUL
        is_inside = False
    if not is_inside:
        raise usage_error(
            f"{shown(str(path))} is outside of this folder",
            "Give a path inside of the folder, or run `h2o-pack ios --trust-file` if you "
            "trust the file.",
            where=where,
        )


def packages(command: click.Command, path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the tables of the file, each with the file's path and the table's line.

    Raises UserError: the file has anything other than [[package]] tables, or unknown keys.
    """
    from h2o_pack.files.toml import Blame, line_of, lines_of, load

    blame = Blame(REMEDY, ExitCode.USAGE)
    document, text = load(path, blame)
    tables: Any = document.get("package")
    is_list = set(document) == {"package"} and isinstance(tables, list)
    if not is_list or not all(isinstance(table, dict) for table in tables):
        raise refused("the file must contain [[package]] tables, and nothing else", str(path))
    flags = [flag for param in command.params for flag in (*param.opts, *param.secondary_opts)]
    keys = {flag.lstrip("-").replace("-", "_") for flag in flags if flag.startswith("--")}
    problems = Problems()
    lines = lines_of(text, "package")
    if len(lines) != len(tables):  # inline tables, or a text of several lines with [[package]]
        lines = [1] * len(tables)
    for line, table in zip(lines, tables, strict=True):
        for key in table:
            if key.replace("-", "_") not in keys:
                where = f"{path}:{line_of(text, key, line)}"
                near = nearest(key, sorted(keys))
                problems.found.append(blame.error(f"unknown key {shown(key)}", where, near))
    problems.refuse()
    return [(f"{path}:{line}", table) for line, table in zip(lines, tables, strict=True)]


def option(key: str, value: Any, where: str) -> list[str]:
    """Return the arguments of one option, as on the command line; a list repeats the option."""
    flag = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, list) and not any(isinstance(part, list) for part in value):
        return [part for element in value for part in option(key, element, where)]
    if isinstance(value, str | int | float) and "\0" not in str(value):
        return [flag, str(value)]
    raise refused(f"the value of {key} is {shown(value)}, which no option takes", where)


def refused(what: str, where: str) -> UserError:
    """Make the error for a mistake in the file of packages."""
    return usage_error(what, REMEDY, where=where)


@command(example='h2o-pack ios --device "iPhone 15 Pro" --name Chat')
@common.model_options(several=True)
@common.cache_options(max_kv="chosen for --device")
@common.device_options(
    "The model must fit on it. Options that you leave out are chosen for it."
)
@common.choice_options
@click.option("--output", type=common.PATH, help="Folder of the package. [default: NAME]")
@click.option("--name", help="Name of the package. [default: the model's name]")
@click.option(
    "--bundle-id",
    metavar="ID",
    default="",
    show_default="one that nobody else uses",
    help="Identifier of the app, such as com.example.Chat.",
)
@common.settings
@click.option(
    "--asset-pack",
    is_flag=True,
    help="Keep the model out of the app: Apple hosts it, and devices download it (iOS 26).",
)
@click.option(
    "--download",
    metavar="URL",
    default="",
    show_default=False,
    help="Keep the model out of the app: the app downloads it at the first launch "
    "from this folder on your server (iOS 17).",
)
@click.option(
    "--system",
    type=common.FILE,
    help="UTF-8 file with the system prompt. Its caches are computed now, so that the app "
    "need not read it.",
)
@click.option(
    "--adapter",
    type=common.PATH,
    help="Folder of a LoRA adapter that mlx_lm.lora made; the app applies it to the model.",
)
@click.option(
    "--vendor/--no-vendor",
    default=True,
    envvar="H2O_PACK_VENDOR",
    show_envvar=True,
    help="Put edited sources of mlx-swift and mlx-swift-lm into the folder Vendor.",
)
@common.origin_options
@click.option(
    "--check-text/--no-check-text",
    default=True,
    envvar="H2O_PACK_CHECK_TEXT",
    show_envvar=True,
    hidden=True,
    help="Ask the app's tokenizer and chat template whether they give Python's text, as "
    "`h2o-pack parity --level text` does, if Swift and their sources are there.",
)
@click.option("--app", is_flag=True, help=NEW_APP)
@click.option(
    "--trust-file",
    is_flag=True,
    hidden=True,
    help="Allow h2o-pack.toml to name paths outside of this folder, and the keys upstream, "
    "mirror and cache.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan; write nothing.")
def ios(*, out: Terminal, **options: Any) -> None:
    """Make a Swift package with a model and its H2O cache.

    Downloads the model's files and the sources of mlx-swift and mlx-swift-lm, once. To finish
    an interrupted run, run the command again. With several models, the app loads the largest
    that fits the device. Without options, makes the packages that h2o-pack.toml in this folder
    describes.
    """
    from h2o_pack.package.package_result import PackagesResult, ios_result, print_result
    from h2o_pack.results import to_json

    packages = project(click.get_current_context())
    made, code = [], ExitCode.OK
    for package, screen, where in [(options, out, "")] if packages is None else packages:
        outcome, choices = make(package, screen, where)
        result = ios_result(outcome, choices)
        if packages is not None and screen.json:
            made.append(result)
        else:
            screen.show(result, partial(print_result, outcome, choices))
        code = code_of(outcome)
        if code:
            break
    if made or (packages is not None and out.json):
        echo_json(to_json(PackagesResult(packages=tuple(made))))
    if code:
        sys.exit(code)


def make(options: dict[str, Any], out: Terminal, where: str) -> tuple[PackageResult, Choices]:
    """Make a package, or plan it; return the result, and the choices of open options.

    where: the line of a file that must not choose an output outside of this folder, or "".
    """
    from h2o_pack.choice.choose import Criteria, choose
    from h2o_pack.package import build as pipeline
    from h2o_pack.package.prepare import prepare

    problems = Problems()
    spec = common.spec_of(options, problems)
    origin = common.origin(options) if options["vendor"] else None
    output, app = options["output"], options["app"]
    with out.progress() as say:
        choice = choose(spec, common.part(Criteria, options), say)
        plan = prepare(choice.spec, say, output, problems)
        output = output or Path(plan.folder_name)
        if where:
            refuse_outside(output, where)
        if options["dry_run"]:
            return pipeline.dry_run(plan, output, new_app=app), choice.choices
        made = pipeline.build(
            plan, output, origin, say, new_app=app, check_text=options["check_text"]
        )
        return made, choice.choices


def code_of(result: PackageResult) -> ExitCode:
    """Return the exit code of a package, and print the error of a failed vendoring."""
    from h2o_pack.parity.parity_report import DIFFERENT

    if result.not_vendored is not None:
        click.echo(f"error: {result.not_vendored}", err=True)
        return result.not_vendored.code
    has_other_files = result.verification is not None and result.verification.differences
    has_other_text = any(level.verdict == DIFFERENT for level in result.text)
    return ExitCode.DIFFERENT if has_other_files or has_other_text else ExitCode.OK


@command(example="h2o-pack update build/Demo --dry-run")
@click.argument("package", type=common.PATH)
@common.origin_options
@click.option("--app", is_flag=True, help=NEW_APP)
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
def update(*, package: Path, app: bool, dry_run: bool, out: Terminal, **options: Any) -> None:
    """Make PACKAGE again with the same options.

    First shows what changes: the version of h2o-pack, the model's commit, the versions of
    mlx-swift and mlx-swift-lm, settings and files. Does not change your App folder or the files
    that you added.
    """
    from h2o_pack.package.package_result import ios_result
    from h2o_pack.package.update import UpdateResult, planned, print_changes, print_update

    outcome = None
    with out.progress() as say:
        plan = planned(package, common.origin(options), say, new_app=app)
        out.tell(lambda console: print_changes(plan, console, dry_run=dry_run))
        if not dry_run and plan.needed:
            outcome = plan.make(say)
    made = None if outcome is None else ios_result(outcome)
    result = UpdateResult(package=plan.package, changes=plan.changes, made=made)
    out.show(result, lambda console: print_update(outcome, console))
    if outcome is not None and (code := code_of(outcome)):
        sys.exit(code)


@command(example="h2o-pack vendor build/Demo --host linux")
@click.argument("package", type=common.PATH)
@common.origin_options
@click.option(
    "--host",
    type=click.Choice(["apple", "linux"]),
    default="apple",
    help="System on which the package will be built.",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Also copy the small libraries that mlx-swift and mlx-swift-lm use, so that a build "
    "downloads nothing. An app that needs other versions of these libraries then cannot use "
    "the package.",
)
def vendor(
    *,
    package: Path,
    host: str,
    offline: bool,
    out: Terminal,
    **options: Any,
) -> None:
    """Copy edited mlx-swift and mlx-swift-lm into PACKAGE.

    The copies are in the folder Vendor. Git downloads the sources once, at the commits that
    this version of h2o-pack supports.
    """
    from h2o_pack.package.package_result import print_vendored, vendor_result
    from h2o_pack.vendoring.vendor import vendor as fill

    with out.progress(log=not out.json) as say:
        origin = common.origin(options)
        vendored = fill(package, origin, host, say, offline=offline)
    out.show(
        vendor_result(package, vendored),
        lambda console: print_vendored(package, vendored, console),
    )
