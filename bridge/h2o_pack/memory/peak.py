"""The most that prefill and generation hold beside weights and caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2o_pack.memory.chunk import peak_of

if TYPE_CHECKING:
    from h2o_pack.memory.chunk import Run


def prefill_peak(run: Run, step: int) -> dict[str, int]:
    """Bytes by term at the worst moment of any prompt of up to `context` tokens.

    The last chunk of a prompt may have any length up to the step. A longer one takes more,
    except where its inputs close tasks sooner: then shorter ones are looked at too.
    """
    tokens = max(1, min(step, run.context))
    worst: dict[str, int] = {}
    by_elements = True
    while tokens and by_elements:
        held, by_elements = peak_of(run, tokens, tokens if run.backend.logits == "all" else 0)
        worst = max(worst, held, key=lambda terms: sum(terms.values()))
        tokens //= 2
    return worst


def decode_peak(run: Run) -> dict[str, int]:
    """Bytes by term while one token is generated."""
    return peak_of(run, 1, 1)[0]
