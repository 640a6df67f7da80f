"""Options that several commands have in common: which model, which cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from h2o_pack.cli.types import FILE, KV, PATH, POLICIES, POSITIVE, PinnedRange
from h2o_pack.measure.profiling.options import LEAST_TOKENS
from h2o_pack.plan.options import PREFILL_STEP
from h2o_py.policy_fields import FIELDS, RECALL_FIELDS, SCORES, Field
from h2o_py.storages import STORAGE_BITS, SYNONYMS

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Make one decorator of several, in the order in which help shows them."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


STORED = "; ".join(
    [f"{name}: {bits.meaning}" for name, bits in STORAGE_BITS.items()]
    + [f"{name} is {storage}" for name, storage in SYNONYMS.items()]
)

revision_options = together(
    click.option(
        "--revision",
        default="",
        show_default=False,
        help="Branch, tag or commit on the hub. [default: main]",
    ),
    click.option(
        "--assume-full-attention",
        is_flag=True,
        help="Treat an unknown architecture as an ordinary transformer.",
    ),
)
"""Parameters `revision` and `assume_full_attention`."""

model_options = together(
    click.option("--model", required=True, help="Alias, folder, or id on huggingface.co."),
    revision_options,
)
"""Parameter `model`, and those of `revision_options`."""

sample_options = together(
    click.option(
        "--text",
        type=FILE,
        help="UTF-8 file that is read. [default: text that the demo model was not trained on]",
    ),
    click.option(
        "--tokens",
        type=click.IntRange(min=LEAST_TOKENS),
        default=1024,
        help="Tokens per sample.",
    ),
    click.option("--samples", type=POSITIVE, default=4, help="Pieces of the text."),
)
"""What a model is profiled on: `text`, `tokens` and `samples`."""

cache_options = together(
    click.option(
        "--kv",
        type=click.Choice(KV),
        default="dense",
        help=f"How keys and values are stored. {STORED}.",
    ),
    click.option(
        "--policy",
        type=click.Choice(POLICIES),
        default="standard",
        help="Defaults of the settings below: tuned was chosen on the bundled demo model, "
        "paper is the published one.",
    ),
    click.option(
        "--budgets",
        type=PATH,
        help="JSON file of budgets per layer, from `h2o-pack budgets`.",
    ),
    click.option(
        "--context",
        type=int,
        help="Tokens of the longest conversation. [default: the model's]",
    ),
    click.option(
        "--prefill-step",
        type=int,
        default=PREFILL_STEP,
        help="Tokens of a prompt that the model reads at once.",
    ),
)
"""What memory depends on, beside the policy: fields of `CacheOptions` by their names."""

OF_RECALL = {field.name: field for field in RECALL_FIELDS}
MAX_KV = FIELDS[0]


def recall_help(text: str, field: str) -> str:
    """Add a setting's default to what help says of its option."""
    default = OF_RECALL[field].default_meaning.replace(f"`{MAX_KV.name}`", "max-kv")
    return f"{text} [default: {default}]"


recall_options = together(
    click.option(
        "--recall/--no-recall",
        default=False,
        help="Keep what is evicted in an archive, and bring back what a prompt asks for.",
    ),
    click.option(
        "--recall-rows",
        type=POSITIVE,
        help=recall_help("Rows that a recall brings back at most.", "rows"),
    ),
    click.option(
        "--recall-every",
        type=click.IntRange(min=0),
        help=recall_help(
            "Generated tokens from one recall to the next; 0 recalls at prompts only.", "every"
        ),
    ),
    click.option(
        "--archive-bits",
        type=click.Choice([str(bits) for bits in OF_RECALL["archive_bits"].choices]),
        callback=lambda _context, _option, value: value and int(value),
        help=recall_help("Bits of an archived key or value.", "archive_bits"),
    ),
    click.option(
        "--archive",
        type=click.Choice(["memory", "files"]),
        default="memory",
        help="Where the archive is.",
    ),
    click.option(
        "--archive-limit",
        type=click.IntRange(min=0),
        metavar="BYTES",
        help=recall_help(
            "Most bytes of one layer's archive, whose oldest tokens then go; 0 is no limit.",
            "limit",
        ),
    ),
)
"""Recall: fields of `CacheOptions` by their names."""


def setting(field: Field) -> Decorator:
    """Return the option of a setting of the policy."""
    kinds: dict[str, dict[str, Any]] = {
        "integer": {"type": int},
        "number": {"type": float},
        "score": {"type": click.Choice([score.name for score in SCORES])},
        "ranges": {"type": PinnedRange(), "multiple": True},
    }
    default = "" if field.type == "ranges" else " [default: the policy's]"
    return click.option(
        field.flag, field.name, help=f"{field.help}{default}", **kinds[field.type]
    )


def settings(*names: str) -> Decorator:
    """Return the options of these settings, or of all but max_size."""
    chosen = [f for f in FIELDS if (f.name in names if names else f is not MAX_KV)]
    return together(*(setting(field) for field in chosen))


def given_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Take the settings that were given out of a command's options."""
    values = {field.name: options.pop(field.name, None) for field in FIELDS}
    return {name: value for name, value in values.items() if value not in (None, ())}
