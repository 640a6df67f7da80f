"""How a prompt is cut into chunks.

Rows are evicted after each chunk, so other chunks leave other rows in the cache and give
another reply. A package records its number of tokens in a chunk, and its sessions cut prompts
in the same way (swift_templates/H2OSessions/Conversation/PromptCuts.swift).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

from h2o_py.files import read_file

PROMPT_CHUNK = 512
"""The most tokens of a prompt that are read at once, if no package says another number."""
_CHUNK = "_h2o_prompt_chunk"


def prompt_chunks(
    begin: int, end: int, cuts: Iterable[int] = (), chunk: int = PROMPT_CHUNK, alone: int = 1
) -> list[int]:
    """Return the number of tokens of each chunk in which a prompt is read.

    Without `cuts`, mlx_lm reads the same chunks with `prefill_step_size` = `chunk`.

    Args:
        begin: number of tokens that the caches have read.
        end: number of tokens of the whole prompt, at least `begin`.
        cuts: positions at which a chunk ends: the ends of pinned ranges that begin at 0.
        chunk: the most tokens of a chunk.
        alone: number of tokens at the end that are read one by one, after everything else.

    """
    last = max(begin, end - alone)
    lengths: list[int] = []
    for cut in [*sorted(cut for cut in cuts if begin < cut < last), last]:
        whole, rest = divmod(cut - begin, chunk)
        lengths += [chunk] * whole + [rest] * (rest > 0)
        begin = cut
    return lengths + [1] * (end - last)


def chunk_of(model: Any) -> int:
    """Return the chunk of the package from which `h2o_py.loading.load` loaded a model."""
    chunk: int = getattr(model, _CHUNK, PROMPT_CHUNK)
    return chunk


def remember_chunk(model: Any, folder: Path) -> None:
    """Remember the chunk that a package's manifest.json records, if the folder has one."""
    try:
        manifest = json.loads(read_file(folder / "manifest.json"))
    except (OSError, ValueError, RecursionError):
        return
    chunk = manifest.get("prompt_chunk") if isinstance(manifest, dict) else None
    if isinstance(chunk, int) and chunk > 0:
        object.__setattr__(model, _CHUNK, chunk)


def read_prompt(
    step: Callable[..., Generator[Any, None, None]],
    prompt: Any,
    model: Any,
    stream: Any,
    evicting: Sequence[Any],
    **options: Any,
) -> Generator[Any, None, None]:
    """mlx_lm's `generate_step` with the cuts of a package.

    The pinned beginning of a prompt is read first, in chunks of its own; mlx_lm reads the rest.

    Args:
        step: mlx_lm's function.
        prompt: [N], the ids after those that the caches have read.
        model: a model of mlx_lm.
        stream: the stream on which mlx_lm computes.
        evicting: the H2O caches among `prompt_cache`, at least one.
        options: arguments of mlx_lm, with `prompt_cache`. Without `prefill_step_size`, a chunk
            has as many tokens as the model's package says.

    """
    import mlx.core as mx  # noqa: PLC0415  the rule alone needs no mlx

    chunk = options.setdefault("prefill_step_size", chunk_of(model))
    caches, offset = options["prompt_cache"], evicting[0].offset
    ranges = {bounds for cache in evicting for bounds in cache.config.pinned}
    ends = [end - offset for begin, end in ranges if begin == 0]
    count = max((end for end in ends if 0 < end < len(prompt)), default=0)
    if count == 0 or options.get("input_embeddings") is not None:
        yield from step(prompt, model, stream, **options)
        return
    opening, done = prompt[:count], 0
    with mx.stream(stream):
        for length in prompt_chunks(0, count, ends, chunk, alone=0):
            model(opening[None, done : done + length], cache=caches)
            mx.eval([cache.state for cache in caches])
            done += length
    if processors := options.get("logits_processors"):
        options["logits_processors"] = [_after(opening, processor) for processor in processors]
    yield from step(prompt[count:], model, stream, **options)


def _after(opening: Any, processor: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a processor of logits that also gets the ids of the opening."""
    import mlx.core as mx  # noqa: PLC0415

    return lambda ids, logits: processor(mx.concatenate([opening, ids]), logits)
