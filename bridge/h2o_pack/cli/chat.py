"""The command that talks to a model, `chat`."""

from __future__ import annotations

import sys
from typing import Any

import click

from h2o_pack.cli import options as common
from h2o_pack.cli.frame import command, in_lines
from h2o_pack.cli.terminal import Terminal
from h2o_pack.errors import Problems, UserError


@command(example='h2o-pack chat --device "iPhone 15 Pro"')
@common.model_options()
@common.cache_options(max_kv="every token is kept, or chosen for --device")
@common.device_options(
    "The model must fit on it. Options that you leave out are chosen for it."
)
@common.choice_options
@common.settings
@click.option("--system", type=common.FILE, help="UTF-8 file with the system prompt.")
@click.option(
    "--adapter", type=common.PATH, help="Folder of a LoRA adapter that mlx_lm.lora made."
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    help="0 always takes the likeliest token. [default: the model's own]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    help="The same seed gives the same replies. [default: a random one]",
)
@click.option(
    "--max-tokens",
    type=common.POSITIVE,
    help="Most tokens of a reply. [default: the model's context]",
)
@click.option(
    "--thinking/--no-thinking",
    default=None,
    help="Let the model think before it answers, or not. [default: as its chat template does]",
)
@click.option(
    "--lines",
    is_flag=True,
    help="Take each line of a pipe as a message or a command, and not the whole as a message.",
)
@click.option("--no-history", is_flag=True, help="Keep no file with what you typed.")
def chat(
    *,
    temperature: float | None,
    seed: int | None,
    max_tokens: int | None,
    thinking: bool | None,
    lines: bool,
    no_history: bool,
    out: Terminal,
    **options: Any,
) -> None:
    """Talk to a model with the settings of a package.

    Without --max-kv and --device, every token is kept. /help lists the commands. Ctrl-C stops a
    reply; at the prompt, Ctrl-C twice leaves with the exit code 130, Ctrl-D or /quit with 0.

    In a pipe, prints only the text of replies. With --json, prints an object on a line for each
    piece of text or thought, and for the figures of a reply.
    """
    from h2o_pack.cli.reply_view import view_for

    try:
        load_and_talk(
            options,
            {
                "temperature": temperature,
                "seed": seed,
                "max_tokens": max_tokens,
                "thinking": thinking,
            },
            out,
            by_line=lines,
            history=not no_history,
        )
    except UserError as error:
        if not out.json:
            raise
        from h2o_pack.chat.events import ErrorEvent
        from h2o_pack.results import error_entries

        for entry in error.errors:
            click.echo(in_lines(f"error: {entry}"), err=True)
        view_for(out).show(ErrorEvent(errors=error_entries(error.errors)))
        sys.exit(error.code)


def load_and_talk(
    options: dict[str, Any],
    replies: dict[str, Any],
    out: Terminal,
    *,
    by_line: bool,
    history: bool,
) -> None:
    """Load the model and talk, at the terminal or through a pipe."""
    from h2o_pack.chat.conversation import Conversation
    from h2o_pack.chat.model import load
    from h2o_pack.choice.choose import Criteria
    from h2o_pack.cli.reply_view import view_for
    from h2o_pack.cli.talk import Talk, greet, input_lines

    problems = Problems()
    spec = common.spec_of(options, problems)
    problems.refuse()
    with out.progress() as say:
        model = load(spec, common.part(Criteria, options), say)
    conversation = Conversation(model, system_prompt=spec.app.system, **replies)
    talk = Talk(conversation, view_for(out), out)
    is_typed = sys.stdin.isatty()
    if is_typed and not out.json:
        greet(model, out)
        talk.at_terminal(history=history)
    else:
        talk.through_pipe(input_lines(), by_line=by_line or is_typed)
