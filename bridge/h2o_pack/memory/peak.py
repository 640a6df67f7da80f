"""The most that prefill and generation hold beside weights and caches."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from h2o_pack.memory.chunk import Run, peak_of

RUNGS = 4  # lengths that are tried in each doubling
FEW = 8  # tokens that caches write and attend to in another way than longer chunks


def prefill_peak(run: Run, step: int, *, earlier: bool = True) -> dict[str, int]:
    """Bytes by term at the worst moment of any prompt of up to `context` tokens.

    Where inputs close tasks, the queue gets shorter as caches grow, and an earlier chunk may
    hold more than the last one: shorter contexts of the ladder are tried then, so that a
    longer conversation never takes less. Where all caches are bounded the last chunk counts.

    earlier: False leaves shorter contexts out, which may miss some percent and is quick.
    """
    held, by_elements = prefill_peak_at(run, step)
    if not (earlier and by_elements and run.grows):
        return held
    context = rung_above(run.context)
    worst, by_elements = prefill_peak_at(replace(run, context=context), step)
    while context > 1 and by_elements:
        context = rung_below(context)
        held, by_elements = prefill_peak_at(replace(run, context=context), step)
        worst = max(worst, held, key=total)
    return worst


@lru_cache(maxsize=8192)
def prefill_peak_at(run: Run, step: int) -> tuple[dict[str, int], bool]:
    """Bytes by term while the last chunk of a prompt is computed, when that is worst.

    That chunk may have any length up to the step. A longer one takes more as long as tasks
    are closed by their dispatches, but for the few tokens that have kernels of their own.
    Where its inputs close tasks the queue gets shorter with the chunk, and the worst length
    may be far below the step (many layers' copies of a long cache): the lengths of a ladder
    are tried then, of which the first is not below the step.

    Returns:
        The bytes, and whether inputs close the tasks of the longest chunk.

    """
    tokens = max(1, min(step, run.context))
    most = rung_above(tokens)
    short = [of_chunk(run, each)[0] for each in range(1, min(tokens, FEW) + 1)]
    held, by_elements = of_chunk(run, most)
    if not by_elements:
        return max(of_chunk(run, tokens)[0], *short, key=total), False
    worst, length = max(held, *short, key=total), most
    while length > 1 and by_elements:
        length = rung_below(length)
        held, by_elements = of_chunk(run, length)
        worst = max(worst, held, key=total)
    return worst, True


def total(terms: dict[str, int]) -> int:
    """All terms together."""
    return sum(terms.values())


def of_chunk(run: Run, tokens: int) -> tuple[dict[str, int], bool]:
    """One chunk, the last one of its prompt; see `peak_of`."""
    return peak_of(run, tokens, tokens if run.backend.logits == "all" else 0)


def rung_above(tokens: int) -> int:
    """The least length of the ladder that is not below: four in each doubling."""
    spacing = max(1, 1 << max(0, (tokens - 1).bit_length() - RUNGS.bit_length()))
    return -(-tokens // spacing) * spacing


def rung_below(tokens: int) -> int:
    """The next shorter length of the ladder."""
    spacing = max(1, 1 << max(0, (tokens - 1).bit_length() - RUNGS.bit_length()))
    return max(1, tokens - spacing)


def decode_peak(run: Run) -> dict[str, int]:
    """Bytes by term while one token is generated."""
    return peak_of(run, 1, 1)[0]
