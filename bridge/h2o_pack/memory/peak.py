"""The most that prefill and generation hold beside weights and caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2o_pack.memory.chunk import graph_of

if TYPE_CHECKING:
    from h2o_pack.memory.chunk import Run

LADDER = 2  # ratio of the chunk lengths that are tried


def prefill_peak(run: Run, step: int) -> dict[str, int]:
    """Bytes by term at the worst moment of any prompt of up to `context` tokens.

    The last chunk of a prompt may have any length up to the step, and a longer one closes
    tasks sooner: shorter ones are looked at too.
    """
    lengths = [max(1, min(step, run.context))]
    while lengths[-1] > LADDER:
        lengths.append(lengths[-1] // LADDER)
    return max((of_chunk(run, each) for each in lengths), key=lambda held: sum(held.values()))


def of_chunk(run: Run, tokens: int) -> dict[str, int]:
    """Bytes by term of one chunk, the last one of its prompt."""
    graph = graph_of(run, tokens, tokens if run.backend.logits == "all" else 0)
    return graph.peak(run.backend.window(graph))


def decode_peak(run: Run) -> dict[str, int]:
    """Bytes by term while one token is generated."""
    graph = graph_of(run, 1, 1)
    return graph.peak(run.backend.window(graph))
