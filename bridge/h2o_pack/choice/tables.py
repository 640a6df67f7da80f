"""A choice as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2o_pack.choice.result import CacheCandidate, Choice, ModelCandidate, Refusal
from h2o_pack.plan.report import PlanResult
from h2o_pack.plan.tables import caption, print_report, size_sentence
from h2o_pack.sizes import gigabytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

TAKEN = "chosen"


def print_choice(choice: Choice, console: Console) -> None:
    """Show models and caches side by side, and the options that say the same."""
    console.print(
        f"for {' and '.join(choice.devices)}, {choice.context:,} tokens", markup=False
    )
    print_models(choice, console)
    if choice.caches:
        print_caches(choice, console)
        caption(
            f"KL: nats per token as measured on {choice.losses_of}; sustained: tok/s after "
            f"ten minutes; {choice.margin:.0%} of each limit stay free.",
            console,
        )
    taken = choice.chosen
    if taken is not None and taken.cache is not None:
        console.print(f"the same: {flags(choice, taken, taken.cache)}", markup=False)


def print_chosen(choice: Choice, report: PlanResult, console: Console) -> None:
    """Show a choice, then its plan."""
    print_choice(choice, console)
    print_report(report, console)


def flags(choice: Choice, taken: ModelCandidate, cache: CacheCandidate) -> str:
    """Write what was chosen as options."""
    recall = " --recall --archive files" if cache.recall else ""
    return (
        f"--model {taken.model} --context {choice.context} --max-kv {cache.max_kv} "
        f"--kv {cache.kv}{recall}"
    )


def print_models(choice: Choice, console: Console) -> None:
    """Show each model with its weights, the app's download, and why it was refused."""
    table = plain_table("model", "GB", "app", "")
    for each in choice.models:
        download = None if each.size is None else each.size.download
        app = "-" if download is None else f"~{gigabytes(download)}"
        table.add_row(each.model, gigabytes(each.weights), app, verdict(each.refused))
    console.print(table)
    taken = choice.chosen
    if taken is not None and taken.size is not None:
        caption(f"app: GB to download; of the chosen one {size_sentence(taken.size)}", console)


def print_caches(choice: Choice, console: Console) -> None:
    """Show each cache of the chosen model."""
    table = plain_table("cache", "rows", "of all", "GB", "sustained", "KL", "")
    for each in choice.caches:
        if not each.max_kv:
            table.add_row(each.kv, *["-"] * 5, verdict(each.refused))
            continue
        table.add_row(
            each.kv + (", recall" if each.recall else ""),
            f"{each.max_kv:,}",
            f"{each.share:.0%}",
            gigabytes(each.needed),
            "-" if each.sustained is None else f"~{each.sustained:.0f}",
            "-" if each.loss is None else f"{each.loss.kl:.4f}",
            verdict(each.refused),
        )
    console.print(table)


def plain_table(first: str, *names: str) -> Table:
    """Return a table whose first and last column are text and the others figures."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    table.add_column(first, no_wrap=True)
    for name in names[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(names[-1], overflow="fold")
    return table


def verdict(refused: Refusal | None) -> str:
    """Say that a candidate was taken, or why not."""
    return f"[green]{TAKEN}[/]" if refused is None else refused.says
