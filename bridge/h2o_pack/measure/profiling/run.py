"""Reads text through a model and profiles its attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from h2o_pack.measure.machine import describe
from h2o_pack.measure.models import load
from h2o_pack.measure.profiling import attention, step_time
from h2o_pack.measure.profiling.attention import (
    SampleAttention,
    layer_profile,
)
from h2o_pack.measure.profiling.options import Options
from h2o_pack.measure.profiling.report import (
    LayerProfile,
    Profile,
    SkippedLayer,
    StepTime,
)
from h2o_pack.progress import ProgressReporter
from h2o_py.config import H2ORecall
from h2o_py.errors import H2OError
from h2o_py.families import why_unfit, why_without_scores
from h2o_py.routing import routed

CHUNK = 128
"""Tokens read at once; fewer tokens need less memory for their attention."""
PASSAGE = H2ORecall().ask
"""Tokens of the repeated passage."""
_MAPPED_LAYERS = 4


@dataclass(frozen=True)
class AttentionMap:
    """A query head's attention over the first sample.

    entropy: the head's, in nats. cells: [queries, tokens], the largest probability in each
    cell.
    """

    layer: int
    head: int
    entropy: float
    cells: np.ndarray[Any, np.dtype[Any]]


def run(options: Options, say: ProgressReporter) -> tuple[Profile, tuple[AttentionMap, ...]]:
    """Load and profile a model.

    Raises UserError: the model cannot be loaded, or the text is too short.
    """
    say(f"loading {options.model}")
    model, tokenizer = load(options.model)
    pieces = attention.samples(tokenizer, options.text, options.tokens, options.samples)
    return profile_model(model, pieces, options, say)


def profile_model(
    model: Any, pieces: list[list[int]], options: Options, say: ProgressReporter
) -> tuple[Profile, tuple[AttentionMap, ...]]:
    """Profile a loaded model on samples of token ids, each of `options.tokens` ids."""
    machine = describe()
    caches = make_prompt_cache(model)
    attending = attention.attention_caches(caches)
    mapped = _spread(list(attending), _MAPPED_LAYERS)
    observed: dict[int, list[SampleAttention]] = {}
    with routed():
        for i, piece in enumerate(pieces):
            say(f"reading sample {i + 1} of {len(pieces)}")
            for index, sample in _observe(model, piece, options, mapped if i == 0 else set()):
                observed.setdefault(index, []).append(sample)
        heads = {index: samples[0].heads for index, samples in observed.items()}
        step, missing = _timed(model, pieces[0], heads, options, say)
    layers = tuple(
        layer_profile(index, cache, observed[index])
        for index, cache in attending.items()
        if index in observed
    )
    held = (sample.held_bytes for samples in observed.values() for sample in samples)
    return (
        Profile(
            machine=machine,
            model=Path(options.model).name,
            family=type(model).__module__.rpartition(".")[2],
            text="held-out text" if options.text is None else options.text.name,
            tokens=options.tokens,
            samples=len(pieces),
            first_row=options.first_row,
            held_bytes=max(held, default=0),
            unfit=why_unfit(model),
            windows=tuple(attention.windows(options.tokens).tolist()),
            layers=layers,
            skipped=_skipped(model, caches, {layer.index for layer in layers}),
            step=step,
            step_missing=missing,
        ),
        tuple(_maps(layers, observed)),
    )


def _observe(
    model: Any, piece: list[int], options: Options, mapped: set[int]
) -> Iterator[tuple[int, SampleAttention]]:
    """Read a sample; yield the attention of each layer whose attention is observed.

    mapped: indices of the layers to build maps of.
    """
    samples: dict[int, SampleAttention] = {}

    def watch(layer: int, observed: attention.ObservedAttention) -> None:
        if layer not in samples:
            samples[layer] = SampleAttention(options, observed, mapped=layer in mapped)
        samples[layer].add(observed)

    _read(model, piece, watch)
    votes = _votes(model, piece)
    for layer, sample in samples.items():
        sample.votes = votes[layer]
        yield layer, sample


def _read(model: Any, piece: list[int], watch: attention.Watch) -> None:
    """Read a sample in chunks of equal length.

    Each has more than one token, because mlx_lm's ring caches keep only such chunks in order.
    """
    caches = make_prompt_cache(model)
    attention.record(caches, watch)
    count = -(-len(piece) // CHUNK)
    for i in range(count):
        chunk = piece[len(piece) * i // count : len(piece) * (i + 1) // count]
        mx.eval(model(mx.array([chunk]), cache=caches))


def _votes(model: Any, piece: list[int]) -> dict[int, float]:
    """Repeat a passage of a piece at the piece's end; return each layer's votes for it."""
    count, first = min(PASSAGE, len(piece) // 4), len(piece) // 4
    text = [*piece[:-count], *piece[first : first + count]]
    votes: dict[int, float] = {}

    def watch(layer: int, observed: attention.ObservedAttention) -> None:
        if observed.end == len(text):
            votes[layer] = attention.votes(observed, first, count)

    _read(model, text, watch)
    return votes


def _timed(
    model: Any, piece: list[int], heads: dict[int, int], options: Options, say: ProgressReporter
) -> tuple[StepTime | None, str | None]:
    if not options.time_steps:
        return None, "not asked for"
    say("timing the parts of a step")
    try:
        repetitions = options.repetitions
        return step_time.measure(model, piece, heads, options.rows, repetitions), None
    except (step_time.NotTimedError, H2OError) as error:
        return None, str(error)


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


def _maps(
    layers: tuple[LayerProfile, ...], observed: dict[int, list[SampleAttention]]
) -> Iterator[AttentionMap]:
    """Yield the maps of each mapped layer's heads with the least and the most entropy."""
    for layer in layers:
        builder = observed[layer.index][0].maps
        if builder is None:
            continue
        ordered = sorted(layer.heads, key=lambda head: head.figures.entropy)
        for head in dict.fromkeys((ordered[0], ordered[-1])):
            yield AttentionMap(
                layer.index, head.head, head.figures.entropy, builder.maps[head.head]
            )


def _spread(indices: list[int], count: int) -> set[int]:
    """Return `count` of the indices, evenly spread, with the first and the last."""
    if len(indices) <= count:
        return set(indices)
    return {indices[round(i * (len(indices) - 1) / (count - 1))] for i in range(count)}
