"""The frame of all commands: how they are found, their common options, their errors.

A command is made with `command` in a file of this folder. It parses, calls and shows:

    @command(example="h2o-pack devices --json")
    @click.argument("name", required=False)
    def devices(name: str | None, *, out: Terminal) -> None:
        ...
        with out.progress() as say:
            result = library_function(name, say)
        out.show(result, lambda console: print_devices(result, console))

The command is registered by its name and file in `h2o_pack.cli`, and imported when it is used.
"""

from __future__ import annotations

import copy
import functools
import os
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from h2o_pack.cli.terminal import Terminal, echo_json, plain_output
from h2o_pack.errors import (
    MEANINGS,
    ExitCode,
    UserError,
    internal_error,
    nearest,
    output_error,
    usage_error,
)
from h2o_pack.files.paths import DISK_FULL, free_space_or, refuse_full_temporary

EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items()
)
JSON, DEBUG = "h2o_pack.json", "h2o_pack.debug"
CONTINUED = ("ios", "update", "vendor", "eval")
"""The commands that, if they were interrupted, continue where they stopped."""
BUG = "This is an error in h2o-pack itself: run the command again with --debug and report it."


class HelpText(click.HelpFormatter):
    """Help whose lines break between words only: click also breaks words after a hyphen."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(unbroken(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], *args: Any, **options: Any) -> None:
        """Write options or commands, each with its meaning."""
        super().write_dl([(name, unbroken(text)) for name, text in rows], *args, **options)

    def getvalue(self) -> str:
        """Return what was written."""
        return super().getvalue().replace(UNBROKEN_HYPHEN, "-")


UNBROKEN_HYPHEN = "\N{NON-BREAKING HYPHEN}"


def unbroken(text: str) -> str:
    """Return a text in which no line ends after a hyphen, until `HelpText` returns it."""
    return text.replace("-", UNBROKEN_HYPHEN)


class HelpContext(click.Context):
    """The context of a command whose help is `HelpText`."""

    formatter_class = HelpText


class Commands(click.Group):
    """A group that imports its commands when they are used and maps errors to exit codes."""

    context_class = HelpContext

    def __init__(self, sections: Mapping[str, Mapping[str, str]], **options: Any) -> None:
        """Store the commands of each section of the help, each with its file."""
        super().__init__(**options)
        self.sections = sections
        self.files = {name: file for part in sections.values() for name, file in part.items()}

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line."""
        with plain_output():
            return super().main(*args, **options)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each section."""
        width = formatter.width - 6 - max(map(len, self.files))
        for title, names in self.sections.items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name, entry.get_short_help_str(width))
                        for name, entry in commands
                        if entry
                    ]
                )

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the order of the help."""
        return list(self.files)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the file of a command and return the command; None if it is unknown."""
        if cmd_name not in self.files:
            return None
        module = import_module(f"h2o_pack.cli.{self.files[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of this name, or raise an error with the nearest name."""
        name = click.utils.make_str(args[0])
        if name not in self.files and not name.startswith("-"):
            near = nearest(name, self.files)
            raise usage_error(
                f'there is no command "{name}"', f"{near}`h2o-pack --help` lists the commands."
            )
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note --json and --debug, because an error may occur before they are parsed."""
        options = args[: args.index("--")] if "--" in args else args
        ctx.meta[JSON] = "--json" in options
        ctx.meta[DEBUG] = "--debug" in options
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            if any(name in names for names in COMMON):
                fail(
                    ctx,
                    usage_error(
                        f"{name} goes after the command",
                        f"Write h2o-pack COMMAND {name}.",
                    ),
                )
            fail(ctx, usage(error))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; every error becomes one message and an exit code."""
        try:
            with ended_by(signal.SIGTERM, signal.SIGHUP):
                return super().invoke(ctx)
        except UserError as error:
            fail(ctx, error)
        except click.UsageError as error:
            fail(ctx, usage(error))
        except KeyboardInterrupt:
            name = ctx.invoked_subcommand
            more = "; run the command again to finish" if name in CONTINUED else ""
            click.echo(f"interrupted{more}", err=True)
            ctx.exit(ExitCode.INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            discard_output()
            ctx.exit(ExitCode.UNREAD)
        except Exception as error:  # noqa: BLE001 - every error becomes one message
            fail(ctx, unexpected(error))


def discard_output() -> None:
    """Discard buffered output, so that Python does not report the broken pipe at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def ended_by(*signals: signal.Signals) -> Iterator[None]:
    """Let signals end a command as Ctrl-C does; a signal that is ignored stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = [number for number in signals if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def usage(error: click.UsageError) -> UserError:
    """Make the error for wrong arguments."""
    command_path = error.ctx.command_path if error.ctx else "h2o-pack"
    see = f"See `{command_path} --help`."
    if isinstance(error, click.NoSuchOption):
        near = f"Did you mean {error.possibilities[0]}? " if error.possibilities else ""
        return usage_error(f"there is no option {error.option_name}", near + see)
    what = error.format_message().rstrip(".")
    return usage_error(what[:1].lower() + what[1:], see)


def unexpected(error: Exception) -> UserError:
    """Make the error for an unexpected exception: of the system, or of a bug in h2o-pack."""
    if not isinstance(error, OSError):
        what = f"{type(error).__name__}: {error}"
        return internal_error(what, BUG)
    if error.errno in DISK_FULL:
        try:
            refuse_full_temporary()
        except UserError as full:
            return full
    return output_error(
        f"the operating system reports: {error.strerror or error}",
        free_space_or("Give another path that you may read and write.", error),
        where=str(error.filename) if error.filename else None,
    )


def fail(ctx: click.Context, error: UserError) -> NoReturn:
    """Print an error, with --json also as a document on stdout, and exit with its code."""
    if ctx.meta[DEBUG]:
        import traceback

        click.echo(traceback.format_exc(), err=True)
    for entry in error.errors:
        click.echo(in_lines(f"error: {entry}"), err=True)
    if ctx.meta[JSON]:
        from h2o_pack.results import ErrorResult, error_entries, to_json

        with suppress(OSError):  # if the error is that stdout cannot be written
            echo_json(to_json(ErrorResult(errors=error_entries(error.errors))))
    ctx.exit(error.code)


def in_lines(text: str) -> str:
    """Break a text between words if it is for a terminal, which would break words."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(lines.fill, text.splitlines()))


def command(*, example: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command with the common options, which the function gets as `out`."""

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def with_terminal(
            *args: Any, as_json: bool, quiet: bool, verbose: bool, debug: bool, **options: Any
        ) -> None:
            del debug  # `Commands.parse_args` has already read it
            function(*args, out=Terminal(as_json, quiet, verbose), **options)

        with_options = with_terminal
        for names, text in reversed(COMMON.items()):
            with_options = click.option(*names, is_flag=True, help=text)(with_options)
        return click.command(cls=Helpful, epilog=f"Example: {example}")(with_options)

    return decorate


class Helpful(click.Command):
    """A command whose --help leaves out options that few users need, and --help-all none."""

    context_class = HelpContext

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all parameters, --help-all too if --help leaves out an option."""
        params = super().get_params(ctx)
        if not any(getattr(param, "hidden", False) for param in self.params):
            return params
        every = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=show_all,
            help="Show all options, also those that few users need.",
        )
        return [*params, every]


def show_all(ctx: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001
    """Print the help with all options."""
    if value and not ctx.resilient_parsing:
        click.echo(full_help(ctx), color=ctx.color)
        ctx.exit()


def full_help(ctx: click.Context) -> str:
    """Return a command's help with all options."""
    every = copy.copy(ctx.command)
    every.params = [copy.copy(param) for param in every.params]
    for param in every.params:
        if isinstance(param, click.Option):
            param.hidden = False
    return every.get_help(ctx)


COMMON = {
    ("--json", "as_json"): "Print the result as JSON.",
    ("-q", "--quiet"): "Print only errors and the --json document.",
    ("-v", "--verbose"): "Show each step.",
    ("--debug",): "Show the place in the code where an error occurred.",
}
"""The common options of all commands; all are flags."""
