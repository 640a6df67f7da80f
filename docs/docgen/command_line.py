"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterable, Iterator

import click

from docs.docgen.markdown import code, fence, plain, table

PROGRAM = "h2o-pack"
EXAMPLE = re.compile(r"^Examples?:\s*", re.MULTILINE)
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
    """Describe every command, the options that all have, and the exit codes."""
    from h2o_pack.cli import main  # the program is only needed here
    from h2o_pack.errors import MEANINGS

    root = click.Context(main, info_name=PROGRAM, **main.context_settings)
    names = [context.command_path for context in walk(root) if context is not root]
    codes = table(
        ["code", "meaning"],
        [(code(str(int(number))), plain(meaning)) for number, meaning in MEANINGS.items()],
    )
    index = ", ".join(f"[{name}](#{anchor(name)})" for name in names) + "."
    commands = [section(context) for context in walk(root)]
    common = options_table(root, common_options().values())
    return "\n\n".join([index, COMMON, common, *commands, EXIT_CODES, codes])


def anchor(title: str) -> str:
    """Return a heading's place in the page."""
    return title.replace(" ", "-")


def walk(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of a command and those of all its commands that are shown."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield from walk(click.Context(command, info_name=name, parent=context))


def section(context: click.Context) -> str:
    """Describe one command."""
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [
        f"## {context.command_path}",
        paragraphs(inspect.cleandoc(command.help or "")),
        fence(usage),
    ]
    parts += [f"For example:\n\n{fence(each, 'sh')}" for each in examples(command)]
    own = [each for each in command.get_params(context) if each.name not in common_options()]
    if own:
        parts.append(options_table(context, own))
    return "\n\n".join(part for part in parts if part)


def common_options() -> dict[str, click.Parameter]:
    """Return the options that every command has, which the page lists once."""
    from h2o_pack.cli.frame import command

    probe = command(example="")(lambda: None)
    found = [*probe.params, probe.get_help_option(click.Context(probe))]
    return {each.name: each for each in found if each is not None and each.name}


def options_table(context: click.Context, parameters: Iterable[click.Parameter]) -> str:
    """Write what options and arguments mean, those too that help leaves out."""
    records = [in_help(each).get_help_record(context) for each in parameters]
    rows = [(code(record[0]), plain(record[1])) for record in records if record is not None]
    return table(["option", "meaning"], rows)


def in_help(parameter: click.Parameter) -> click.Parameter:
    """Return a parameter as it would be if help had it."""
    found = copy.copy(parameter)
    if isinstance(found, click.Option):
        found.hidden = False
    return found


def examples(command: click.Command) -> list[str]:
    """Return the examples that a command's epilog gives."""
    epilog = (command.epilog or "").replace("\b\n", "")
    match = EXAMPLE.search(epilog)
    if not match:
        return []
    lines = [line.strip() for line in epilog[match.end() :].splitlines()]
    given = [line for line in lines if line]
    return ["\n".join(given)] if given else []


def paragraphs(text: str) -> str:
    """Write a help text: paragraphs, and blocks that click does not wrap as code."""
    blocks = re.split(r"\n\s*\n", text.strip())
    written = [
        fence(block.partition("\n")[2]) if block.startswith("\b") else plain(block)
        for block in blocks
        if block.strip()
    ]
    return "\n\n".join(written)
