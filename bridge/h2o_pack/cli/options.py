"""Options that several commands have in common: which model, which cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from h2o_pack.cli.types import KV, POLICIES
from h2o_pack.plan.options import PREFILL_STEP

if TYPE_CHECKING:
    from collections.abc import Callable

    Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Make one decorator of several, in the order in which help shows them."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


model_options = together(
    click.option("--model", required=True, help="Alias, folder, or id on huggingface.co."),
    click.option(
        "--revision", default="", help="Branch, tag or commit on the hub. [default: main]"
    ),
    click.option(
        "--assume-full-attention",
        is_flag=True,
        help="Take an unknown architecture for an ordinary one.",
    ),
)
"""Parameters `model`, `revision` and `assume_full_attention`."""

cache_options = together(
    click.option(
        "--kv",
        type=click.Choice(KV),
        default="dense",
        show_default=True,
        help="Precision of rows.",
    ),
    click.option(
        "--policy",
        type=click.Choice(POLICIES),
        default="standard",
        show_default=True,
        help="Which tokens stay: tuned was chosen on the embedded model, paper is as "
        "published.",
    ),
    click.option(
        "--recent-budget", type=int, help="Newest tokens that stay. [default: the policy's]"
    ),
    click.option(
        "--budgets", type=click.Path(path_type=Path), help="JSON file of budgets a layer."
    ),
    click.option("--context", type=int, help="Longest conversation. [default: the model's]"),
    click.option(
        "--prefill-step",
        type=int,
        default=PREFILL_STEP,
        show_default=True,
        help="Tokens of a prompt that the model is given at once.",
    ),
)
"""What memory depends on, beside --max-kv: fields of `CacheOptions` by their names."""
