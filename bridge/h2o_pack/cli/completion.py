"""The `completion` command."""

from __future__ import annotations

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal

SHELLS = ("bash", "zsh", "fish")


@command(example='eval "$(h2o-pack completion zsh)"')
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, *, shell: str, out: Terminal) -> None:
    """Print what makes SHELL complete commands and options."""
    from click.shell_completion import get_completion_class

    from h2o_pack.results import CompletionResult

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"click cannot complete for {shell}", ctx)
    root = ctx.find_root()
    script = made(root.command, {}, "h2o-pack", "_H2O_PACK_COMPLETE").source()
    result = CompletionResult(shell=shell, script=script)
    out.show(result, lambda _console: click.echo(script))
