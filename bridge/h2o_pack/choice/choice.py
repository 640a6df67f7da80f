"""A choice: all candidates, the chosen one, and the reasons against the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from rich.console import Console

from h2o_pack.bundling.delivery import AppSize
from h2o_pack.choice.losses import Loss
from h2o_pack.facts import Quality
from h2o_pack.models.model_tables import MMLU_PRO, mmlu_pro
from h2o_pack.plan.plan_tables import size_sentence
from h2o_pack.printing import caption, plain_table
from h2o_pack.results import Count, Result, doc
from h2o_pack.sizes import gigabytes

TAKEN = "chosen"
BELOW = ("lower quality", "no shapes")
"""Reasons against models that were not checked, because a better one fits."""
BY_FIGURES = ("loses more", "not measured")
"""Reasons against caches that the table's column of losses explains."""

Reason = Literal[
    "no shapes",
    "context",
    "app size",
    "memory",
    "speed",
    "storage",
    "not measured",
    "loses more",
    "lower quality",
]


@dataclass(frozen=True)
class Refusal:
    """Why a candidate was not chosen."""

    reason: Annotated[Reason, doc("The criterion that the candidate does not meet.")]
    says: Annotated[str, doc("The reason in one line, with figures.")]


@dataclass(frozen=True)
class CacheCandidate:
    """The largest cache of a storage that fits on all devices."""

    kv: Annotated[str, doc("Storage of the rows.")]
    max_kv: Annotated[
        int | None, doc("Rows per layer; null if it keeps every token, 0 if no row fits.")
    ] = 0
    share: Annotated[float, doc("Rows as a share of the conversation's tokens.")] = 0.0
    recall: Annotated[bool, doc("Whether tokens read evicted tokens from an archive.")] = False
    needed: Annotated[
        Count, doc("Bytes of the app on the device whose memory it fills the most.")
    ] = 0
    headroom_share: Annotated[
        float, doc("Memory that the app leaves on that device, as a share of the limit.")
    ] = 0.0
    sustained: Annotated[
        float | None,
        doc("Tokens per second after ten minutes on the slowest device; null if unknown."),
    ] = None
    loss: Annotated[
        Loss | None, doc("Loss in the table of measurements; null if the table lacks it.")
    ] = None
    refused: Annotated[
        Refusal | None, doc("Why the candidate was not chosen; null if it was.")
    ] = None


@dataclass(frozen=True)
class ModelCandidate:
    """A model that can be chosen, with the best of its caches."""

    model: Annotated[str, doc("Name to give as --model.")]
    weights: Annotated[Count, doc("Bytes of the weights.")]
    size: Annotated[
        AppSize | None,
        doc("Size of an app with only this model; null if its shapes are not stated."),
    ]
    cache: Annotated[
        CacheCandidate | None,
        doc("Best cache that fits; null if none fits or none was computed."),
    ]
    refused: Annotated[Refusal | None, doc("Why the candidate was not chosen; null if it was.")]
    quality: Annotated[
        Quality | None, doc("Published results; null if none are known or --model was given.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Choice(Result):
    """All candidates for some devices, and which of them was chosen."""

    devices: Annotated[tuple[str, ...], doc("Devices on which the choice must fit.")]
    context: Annotated[Count, doc("Tokens of the longest conversation.")]
    min_speed: Annotated[float, doc("Tokens per second after ten minutes; 0 sets no minimum.")]
    margin: Annotated[float, doc("Share of each device's limit that must stay free.")]
    losses_of: Annotated[str, doc("Model whose measured losses order the caches.")]
    models: Annotated[
        tuple[ModelCandidate, ...], doc("Models, the best first by their published results.")
    ]
    caches: Annotated[
        tuple[CacheCandidate, ...],
        doc("Caches of the chosen model, or of the only model, ordered by their losses."),
    ]

    @property
    def chosen(self) -> ModelCandidate | None:
        """The chosen model; None if no model fits."""
        return next((model for model in self.models if model.refused is None), None)


def print_choice(choice: Choice, console: Console, *, verbose: bool = False) -> None:
    """Show the choice as tables, and the equivalent options.

    verbose: also the models after the chosen one.
    """
    print_chosen(choice, console)
    print_models(choice, console, verbose=verbose)
    if choice.caches:
        print_caches(choice, console)
        caption(
            "of all: rows as a share of all tokens; GB: memory of the app; sustained: tokens "
            "per second after ten minutes; KL: nats per token, measured on "
            f"{choice.losses_of}. {choice.margin:.0%} of each limit stays free.",
            console,
        )
    print_flags(choice, console)


def print_chosen(choice: Choice, console: Console) -> None:
    """Show the chosen model, and whether its cache keeps every token."""
    console.print(
        f"for {' and '.join(choice.devices)}, {choice.context:,} tokens", markup=False
    )
    for sentence in full_caches(choice):
        caption(sentence, console, "bold")


def print_flags(choice: Choice, console: Console) -> None:
    """Show the options that are equivalent to the choice, on one line to copy."""
    model = choice.chosen
    if model is not None and model.cache is not None:
        console.print(f"equivalent options: {flags(choice, model, model.cache)}", markup=False)


def full_caches(choice: Choice) -> Iterator[str]:
    """Yield a sentence on the chosen model's cache that keeps every token, if one fits."""
    model = choice.chosen
    whole = [cache for cache in choice.caches if cache.share >= 1]
    if model is None or model.cache is None or not whole:
        return
    if model.cache.share >= 1:
        yield (
            f"{model.model} keeps all {choice.context:,} tokens (kv {model.cache.kv}), so it "
            "forgets nothing"
        )
    else:
        yield (
            f"a cache of {model.model} that keeps all {choice.context:,} tokens, and so "
            f"forgets nothing, fits too: {flags(choice, model, whole[0])}"
        )


def flags(choice: Choice, model: ModelCandidate, cache: CacheCandidate) -> str:
    """Return the choice as options of the command line."""
    rows = "" if cache.max_kv is None else f" --max-kv {cache.max_kv}"
    if rows and not cache.recall:
        rows += " --no-recall"
    return f"--model {model.model} --context {choice.context}{rows} --kv {cache.kv}"


def print_models(choice: Choice, console: Console, *, verbose: bool) -> None:
    """Show each model with its weights, the app's download, and why it was not chosen."""
    table = plain_table("model", "MMLU-Pro", "GB", "app", " ", text=(" ",))
    others = 0
    for candidate in choice.models:
        reason = candidate.refused and candidate.refused.reason
        if reason in BELOW and not verbose and choice.chosen is not None:
            others += 1
            continue
        download = None if candidate.size is None else candidate.size.download
        app = "-" if download is None else f"~{gigabytes(download)}"
        cells = (
            candidate.model,
            mmlu_pro(candidate.quality),
            gigabytes(candidate.weights),
            app,
        )
        table.add_row(*cells, verdict(candidate.refused))
    console.print(table)
    if others:
        caption(f"{others} further models are not shown; --verbose shows them.", console)
    best = choice.chosen
    if best is not None and best.size is not None:
        caption(
            f"{MMLU_PRO} GB: weights; app: GB to download. {best.model}: "
            f"{size_sentence(best.size)}",
            console,
        )


def print_caches(choice: Choice, console: Console) -> None:
    """Show each cache of the chosen model."""
    table = plain_table("cache", "rows", "of all", "GB", "sustained", "KL", " ", text=(" ",))
    for cache in choice.caches:
        if cache.max_kv == 0:
            table.add_row(cache.kv, *["-"] * 5, verdict(cache.refused))
            continue
        table.add_row(
            cache.kv + (", recall" if cache.recall else ""),
            "all" if cache.max_kv is None else f"{cache.max_kv:,}",
            f"{cache.share:.0%}",
            gigabytes(cache.needed),
            "-" if cache.sustained is None else f"~{cache.sustained:.0f}",
            "-" if cache.loss is None else f"{cache.loss.kl:.4f}",
            verdict(cache.refused),
        )
    console.print(table)


def verdict(refused: Refusal | None) -> str:
    """Say that a candidate was chosen, or why it was not, in few words where figures say it."""
    if refused is None:
        return f"[green]{TAKEN}[/]"
    return refused.reason if refused.reason in BY_FIGURES else refused.says
