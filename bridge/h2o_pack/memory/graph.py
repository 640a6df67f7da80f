"""What of a queued computation is in memory at once.

MLX allocates an operation's result when it queues the operation, not when the operation
runs, and frees an array when the last operation that reads it has run (MLX 0.31.1:
mlx/transforms.cpp eval_impl, mlx/backend/{cpu,metal}/eval.cpp). Queueing runs ahead of
computing until so many tasks are open. The arrays of all operations in that window are
therefore held together: usually several layers of a chunk, not one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NewType

from h2o_pack.memory.formulas import paged

if TYPE_CHECKING:
    from collections.abc import Iterable

Buffer = NewType("Buffer", int)


@dataclass
class Graph:
    """The operations of one evaluation, in the order in which they are queued.

    page: what the allocator rounds large buffers up to, in bytes. Time is counted in
    dispatches. elements: of all inputs, each counted once where it is first read; squared:
    the sum of the squares of those of each operation.
    """

    page: int = 1
    dispatches: int = 0
    elements: int = 0
    squared: int = 0
    sizes: list[int] = field(default_factory=list)
    terms: list[str] = field(default_factory=list)
    births: list[int] = field(default_factory=list)
    deaths: list[int] = field(default_factory=list)

    def op(
        self,
        reads: Iterable[Buffer],
        nbytes: int,
        *,
        dispatches: int = 1,
        term: str = "activations",
        elements: int = 0,
    ) -> Buffer:
        """Queue an operation with a new buffer for its result."""
        self._queue(reads, dispatches, elements)
        self.sizes.append(paged(nbytes, self.page))
        self.terms.append(term)
        self.births.append(self.dispatches)
        self.deaths.append(self.dispatches)
        return Buffer(len(self.sizes) - 1)

    def within(
        self,
        buffer: Buffer,
        reads: Iterable[Buffer] = (),
        *,
        dispatches: int = 1,
        elements: int = 0,
    ) -> Buffer:
        """Queue an operation whose result takes over the buffer of an input.

        MLX does so if nothing else reads or holds that input (array::is_donatable); an
        operation that is still queued holds what it reads.
        """
        self._queue((buffer, *reads), dispatches, elements)
        return buffer

    def small(self, dispatches: int) -> None:
        """Queue operations whose arrays are too small to be counted."""
        self._queue((), dispatches, 0)

    def _queue(self, reads: Iterable[Buffer], dispatches: int, elements: int) -> None:
        self.dispatches += dispatches
        self.elements += elements
        self.squared += elements * elements
        for buffer in reads:
            self.deaths[buffer] = self.dispatches

    def peak(self, window: float) -> dict[str, int]:
        """Bytes by term when most is held, with `window` dispatches queued and not done."""
        events = []
        for birth, death, size, term in zip(
            self.births, self.deaths, self.sizes, self.terms, strict=True
        ):
            events.append((float(birth), 1, size, term))
            events.append((max(birth, death + window), 2, -size, term))
        held: dict[str, int] = defaultdict(int)
        now = most = 0
        best: dict[str, int] = {}
        for _, _, change, term in sorted(events):
            held[term] += change
            now += change
            if now > most:
                most, best = now, dict(held)
        return best
