"""Makes the reference of the command line from the --help of every command."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import click

from docs.docgen.markdown import code, fence, plain, table

PROGRAM, WIDTH = "h2o-pack", 72
COMMON = """\
## Options of every command

Results go to standard output, everything else to standard error. `NO_COLOR` is respected, and
colors and progress bars appear only in a terminal.
"""
EXIT_CODES = """\
## Exit codes

A command that ends with another code than 0 prints to standard error what was wrong, where,
and what to do. [Troubleshooting](../troubleshooting.md) explains each code.
"""


def sections() -> str:
    """Return the Markdown of every command's help, and of the exit codes."""
    from h2o_pack.cli import frame, main  # imported late: other pages do not need the program
    from h2o_pack.errors import MEANINGS

    root = click.Context(main, info_name=PROGRAM, **main.context_settings)
    contexts = list(walk(root))
    names = [context.command_path for context in contexts[1:]]
    index = ", ".join(f"[{name}](#{name.replace(' ', '-')})" for name in names) + "."
    commands = [
        f"## {context.command_path}\n\n{fence(help_of(context))}" for context in contexts
    ]
    rows = [(code(str(int(number))), plain(meaning)) for number, meaning in MEANINGS.items()]
    codes = table(["code", "meaning"], rows)
    common = [
        (", ".join(code(name) for name in names if name.startswith("-")), plain(meaning))
        for names, meaning in frame.COMMON.items()
    ]
    options = table(["option", "meaning"], common)
    return "\n\n".join([index, COMMON, options, *commands, EXIT_CODES, codes])


def walk(context: click.Context) -> Iterator[click.Context]:
    """Yield the contexts of a command and of all visible commands below it."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield from walk(command.context_class(command, info_name=name, parent=context))


def help_of(context: click.Context) -> str:
    """Return a command's help with all of its options, except those of every command."""
    from h2o_pack.cli import frame

    of_every = {names[0] for names in frame.COMMON}
    command = copy.copy(context.command)
    command.params = [param for param in command.params if param.opts[0] not in of_every]
    wide = command.context_class(
        command, context.parent, context.info_name, terminal_width=WIDTH
    )
    return frame.full_help(wide)
