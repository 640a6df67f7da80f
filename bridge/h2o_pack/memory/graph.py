"""What of a queued computation is in memory at once.

MLX allocates an operation's result when it queues the operation, not when the operation
runs, and frees an array when the last operation that reads it has run (MLX 0.31.1:
mlx/transforms.cpp eval_impl, mlx/backend/{cpu,metal}/eval.cpp). Queueing runs ahead of
computing until so many tasks are open. The arrays of all operations in that window are
therefore held together: usually several layers of a chunk, not one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from h2o_pack.memory.formulas import paged

Buffer = NewType("Buffer", int)


class Mark(NamedTuple):
    """How many buffers a graph had at some point, and its sums until then."""

    buffers: int
    dispatches: int
    elements: int
    squared: int


class Section(NamedTuple):
    """Operations between two marks, which read one buffer from before and end with another."""

    start: Mark
    end: Mark
    read: Buffer
    made: Buffer


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

    @property
    def mark(self) -> Mark:
        """Where the graph is now."""
        return Mark(len(self.sizes), self.dispatches, self.elements, self.squared)

    def repeat(self, section: Section, read: Buffer) -> Buffer:
        """Queue the operations of a section again, which now read another buffer."""
        start, end, was_read, made = section
        part, later = slice(start.buffers, end.buffers), self.dispatches - start.dispatches
        again = Buffer(len(self.sizes) + made - start.buffers)
        self.sizes += self.sizes[part]
        self.terms += self.terms[part]
        self.births += [each + later for each in self.births[part]]
        self.deaths += [each + later for each in self.deaths[part]]
        self.deaths[read] = self.deaths[was_read] + later
        self.dispatches += end.dispatches - start.dispatches
        self.elements += end.elements - start.elements
        self.squared += end.squared - start.squared
        return again

    def _queue(self, reads: Iterable[Buffer], dispatches: int, elements: int) -> None:
        self.dispatches += dispatches
        self.elements += elements
        self.squared += elements * elements
        for buffer in reads:
            self.deaths[buffer] = self.dispatches

    def peak(self, window: float) -> Peak:
        """When most is held, with `window` dispatches queued and not done."""
        ends = [
            max(birth, death + window)
            for birth, death in zip(self.births, self.deaths, strict=True)
        ]
        freed = sorted(zip(ends, self.sizes, strict=True))
        now = most = moment = done = 0
        for birth, size in zip(self.births, self.sizes, strict=True):
            while freed[done][0] < birth:
                now -= freed[done][1]
                done += 1
            now += size
            if now > most:
                most, moment = now, birth
        return Peak(self, ends, window, most, moment)


@dataclass(frozen=True)
class Peak:
    """When most is held: the bytes, and the dispatch at which that is.

    ends: dispatches at which buffers are freed.
    """

    graph: Graph
    ends: list[float]
    window: float
    total: int
    moment: int

    def by_term(self) -> dict[str, int]:
        """The bytes that each term takes of the total."""
        graph, held = self.graph, dict[str, int]()
        for birth, end, size, term in zip(
            graph.births, self.ends, graph.sizes, graph.terms, strict=True
        ):
            if birth <= self.moment <= end:
                held[term] = held.get(term, 0) + size
        return held
