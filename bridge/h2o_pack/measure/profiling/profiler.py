"""Reads text through a model and profiles its attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from h2o_pack.files.text import read_text
from h2o_pack.measure.machine import describe
from h2o_pack.measure.models import load
from h2o_pack.measure.profiling import attention
from h2o_pack.measure.profiling.attention import (
    SampleAttention,
    layer_profile,
)
from h2o_pack.measure.profiling.options import Options
from h2o_pack.measure.profiling.profile_report import (
    Profile,
    SkippedLayer,
)
from h2o_pack.measure.text import Tokens, held_out, text_sample
from h2o_pack.progress import ProgressReporter
from h2o_py.families import why_unfit, why_without_scores
from h2o_py.routing import routed

SEED = 0
"""Seed of the samples, which are the same in every run."""
CHUNK = 128
"""Tokens read at once; fewer tokens need less memory for their attention."""
PASSAGE = 32
"""Tokens of the repeated passage."""


def load_and_profile(options: Options, say: ProgressReporter) -> Profile:
    """Load and profile a model.

    Raises UserError: the model cannot be loaded, or the text is too short.
    """
    say(f"loading {options.model}")
    model, tokenizer = load(options.model)
    return profile_model(model, samples(tokenizer, options), options, say)


def samples(tokenizer: Any, options: Options) -> list[tuple[int, ...]]:
    """Return the pieces of the text that the model reads, as token ids.

    Raises UserError: the file cannot be read, or it is shorter than a piece.
    """
    documents = (*held_out("prose"), *held_out("source"))
    if options.text is not None:
        documents = (read_text(options.text, "Give a file of UTF-8 text."),)
    tokens = Tokens(tokenizer, documents)
    return [text_sample(tokens, options.tokens, SEED, i) for i in range(options.samples)]


def profile_model(
    model: Any, pieces: Sequence[Sequence[int]], options: Options, say: ProgressReporter
) -> Profile:
    """Profile a loaded model on samples of token ids, each of `options.tokens` ids."""
    machine = describe(timed=False)
    caches = make_prompt_cache(model)
    attending = attention.attention_caches(caches)
    observed: dict[int, list[SampleAttention]] = {}
    with routed():
        for i, piece in enumerate(pieces):
            say(f"reading sample {i + 1} of {len(pieces)}")
            for index, sample in _observe(model, piece, options):
                observed.setdefault(index, []).append(sample)
    layers = tuple(
        layer_profile(index, cache, observed[index])
        for index, cache in attending.items()
        if index in observed
    )
    return Profile(
        machine=machine,
        model=Path(options.model).name,
        family=type(model).__module__.rpartition(".")[2],
        text="held-out text" if options.text is None else options.text.name,
        tokens=options.tokens,
        samples=len(pieces),
        first_row=options.first_row,
        unfit=why_unfit(model),
        windows=tuple(attention.windows(options.tokens).tolist()),
        layers=layers,
        skipped=_skipped(model, caches, {layer.index for layer in layers}),
    )


def _observe(
    model: Any, piece: Sequence[int], options: Options
) -> Iterator[tuple[int, SampleAttention]]:
    """Read a sample; yield the attention of each layer whose attention is observed."""
    samples: dict[int, SampleAttention] = {}

    def watch(layer: int, observed: attention.ObservedAttention) -> None:
        if layer not in samples:
            samples[layer] = SampleAttention(options, observed)
        samples[layer].add(observed)

    _read(model, piece, watch)
    retrieval = _retrieval(model, piece)
    for layer, sample in samples.items():
        sample.retrieval = retrieval[layer]
        yield layer, sample


def _read(model: Any, piece: Sequence[int], watch: attention.Watch) -> None:
    """Read a sample in chunks of equal length.

    Each has more than one token, because mlx_lm's ring caches keep only such chunks in order.
    """
    caches = make_prompt_cache(model)
    attention.record(caches, watch)
    count = -(-len(piece) // CHUNK)
    for i in range(count):
        chunk = piece[len(piece) * i // count : len(piece) * (i + 1) // count]
        mx.eval(model(mx.array([chunk]), cache=caches))


def _retrieval(model: Any, piece: Sequence[int]) -> dict[int, float]:
    """Repeat a passage of a piece at the piece's end; return how each layer retrieves it."""
    count, first = min(PASSAGE, len(piece) // 4), len(piece) // 4
    text = [*piece[:-count], *piece[first : first + count]]
    by_layer: dict[int, float] = {}

    def watch(layer: int, observed: attention.ObservedAttention) -> None:
        if observed.end == len(text):
            by_layer[layer] = attention.retrieval(observed, first, count)

    _read(model, text, watch)
    return by_layer


def _skipped(model: Any, caches: list[Any], profiled: set[int]) -> tuple[SkippedLayer, ...]:
    without = why_without_scores(model)
    reasons = []
    for index, cache in enumerate(caches):
        if index in profiled:
            continue
        if index not in attention.attention_caches(caches):
            reason = "no attention over keys: its state is recurrent"
        else:
            reason = without or "its attention does not pass through mlx_lm's function"
        reasons.append(SkippedLayer(index, type(cache).__name__, reason))
    return tuple(reasons)
