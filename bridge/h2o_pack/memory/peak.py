"""The most that prefill and generation hold beside weights and caches."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from h2o_pack.memory.chunk import Run, peak_of
from h2o_pack.memory.formulas import STEP, grown
from h2o_pack.memory.graph import Peak

RUNGS = 4  # lengths that are tried in each doubling
FEW = 8  # tokens that caches write and attend to in another way than longer chunks


def prefill_peak(run: Run, step: int, *, earlier: bool = True) -> dict[str, int]:
    """Bytes by term at the worst moment of any prompt of up to `context` tokens.

    Where inputs close tasks, the queue gets shorter as caches grow, and an earlier chunk may
    hold more than the last one: shorter contexts of a ladder are tried then, so that a
    longer conversation never takes less. Where all caches are bounded the last chunk counts.

    earlier: False leaves shorter contexts out, which may miss some percent and is quick.
    """
    if earlier and run.grows:
        steps = rung_above(grown(run.context) // STEP)
        longest = replace(run, context=steps * STEP)
        held, inputs_close = last_chunk_peak(longest, min(step, run.context))
        if inputs_close:
            return max(held, earlier_peak(longest, step), key=total)
    return last_chunk_peak(run, step)[0]


@lru_cache(maxsize=4096)
def earlier_peak(run: Run, step: int) -> dict[str, int]:
    """Bytes by term at the worst moment before caches grow for the last time."""
    steps = run.context // STEP
    if steps == 1:
        return {}
    shorter = replace(run, context=rung_below(steps) * STEP)
    held, inputs_close = last_chunk_peak(shorter, step)
    return max(held, earlier_peak(shorter, step), key=total) if inputs_close else held


@lru_cache(maxsize=4096)
def last_chunk_peak(run: Run, step: int) -> tuple[dict[str, int], bool]:
    """Bytes by term while the last chunk of a prompt is computed.

    That chunk may have any length up to the step. A longer one takes more as long as tasks
    are closed by their dispatches, but for the few tokens that have kernels of their own.
    Where its inputs close tasks the queue gets shorter with the chunk, and the worst length
    may be far below the step (many layers' copies of a long cache): the lengths of a ladder
    are tried then, of which the first is not below the step.

    Returns:
        The bytes, and whether inputs close the tasks of the longest chunk.

    """
    tokens = max(1, min(step, run.context))
    tried = [of_chunk(run, each) for each in range(1, min(tokens, FEW) + 1)]
    length = rung_above(tokens)
    longest = of_chunk(run, length)
    inputs_close = longest.window < run.backend.longest_window
    tried.append(longest if inputs_close else of_chunk(run, tokens))
    while length > FEW + 1 and tried[-1].window < run.backend.longest_window:
        length = rung_below(length)
        tried.append(of_chunk(run, length))
    return max(tried, key=lambda held: held.total).by_term(), inputs_close


def total(terms: dict[str, int]) -> int:
    """All terms together."""
    return sum(terms.values())


def of_chunk(run: Run, tokens: int) -> Peak:
    """One chunk, the last one of its prompt; see `peak_of`."""
    return peak_of(run, tokens, tokens if run.backend.logits == "all" else 0)


def rung_above(length: int) -> int:
    """The least length of the ladder that is not below: four in each doubling."""
    spacing = spacing_below(length)
    return -(-length // spacing) * spacing


def rung_below(length: int) -> int:
    """The next shorter length of the ladder."""
    return max(1, length - spacing_below(length))


def spacing_below(length: int) -> int:
    """How far the ladder's lengths are from each other there."""
    return 1 << max(0, (length - 1).bit_length() - RUNGS.bit_length())


def decode_peak(run: Run) -> dict[str, int]:
    """Bytes by term while one token is generated."""
    return peak_of(run, 1, 1).by_term()
