"""Models the operations that MLX queues, and the buffers that are in memory at the same time.

MLX allocates an operation's result when it queues the operation, not when the operation
runs, and frees an array when the last operation that reads it has run (MLX 0.31.1:
mlx/transforms.cpp eval_impl, mlx/backend/{cpu,metal}/eval.cpp). MLX queues operations ahead of
computing them, until a number of tasks are open. The arrays of all operations in this window
are therefore in memory together, usually the arrays of several layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, NewType

from h2o_pack.facts import FOLDER, by
from h2o_pack.files.toml import read_rows
from h2o_pack.memory.kept import FLOAT32, paged

Buffer = NewType("Buffer", int)


class Mark(NamedTuple):
    """A point in a graph: its number of buffers and its sums when the mark was made."""

    buffers: int
    dispatches: int
    elements: int
    squared: int


class Section(NamedTuple):
    """The operations between two marks.

    source: the only earlier buffer that the operations read. result: the buffer of the last
    operation.
    """

    start: Mark
    end: Mark
    source: Buffer
    result: Buffer


@dataclass
class Graph:
    """The operations of one evaluation, in the order in which they are queued.

    page: the allocator rounds large buffers up to a multiple of `page` bytes. Time is counted
    in dispatches. elements: elements of all inputs; each input counts once, at the first
    operation that reads it. squared: the sum of the squares of the operations' elements.
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
        """Queue operations whose arrays are so small that they do not count."""
        self._queue((), dispatches, 0)

    @property
    def mark(self) -> Mark:
        """The point that the graph has reached."""
        return Mark(len(self.sizes), self.dispatches, self.elements, self.squared)

    def repeat(self, section: Section, source: Buffer) -> Buffer:
        """Queue the operations of a section again, which then read `source`."""
        start, end, earlier_source, result = section
        part, later = slice(start.buffers, end.buffers), self.dispatches - start.dispatches
        again = Buffer(len(self.sizes) + result - start.buffers)
        self.sizes += self.sizes[part]
        self.terms += self.terms[part]
        self.births += [birth + later for birth in self.births[part]]
        self.deaths += [death + later for death in self.deaths[part]]
        self.deaths[source] = self.deaths[earlier_source] + later
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
        """Return the moment of most memory if `window` dispatches are queued and not done."""
        ends = [
            max(birth, death + window)
            for birth, death in zip(self.births, self.deaths, strict=True)
        ]
        freed = sorted(zip(ends, self.sizes, strict=True))
        now = most = moment = index = 0
        for birth, size in zip(self.births, self.sizes, strict=True):
            while freed[index][0] < birth:
                now -= freed[index][1]
                index += 1
            now += size
            if now > most:
                most, moment = now, birth
        return Peak(self, ends, window, most, moment)


@dataclass(frozen=True)
class Peak:
    """The moment of most memory in a graph.

    ends: for each buffer, the dispatch at which it is freed. window: dispatches that are queued
    and not done. total: bytes at the moment. moment: as a number of dispatches.
    """

    graph: Graph
    ends: list[float]
    window: float
    total: int
    moment: int

    def by_term(self) -> dict[str, int]:
        """The total's bytes by term."""
        graph, by_term = self.graph, dict[str, int]()
        for birth, end, size, term in zip(
            graph.births, self.ends, graph.sizes, graph.terms, strict=True
        ):
            if birth <= self.moment <= end:
                by_term[term] = by_term.get(term, 0) + size
        return by_term


MEGA = 1 << 20


@dataclass(frozen=True)
class Backend:
    """A backend of MLX with its runtime; facts/backends.toml documents the fields."""

    name: str
    what: str
    prefill_heads: tuple[int, ...]
    page: int
    dispatches: int
    mega_elements: int
    tasks: int
    metal: bool
    logits: str
    source: str
    measured: bool
    margin: float

    @property
    def longest_window(self) -> int:
        """The most dispatches that are queued and not done, if only dispatches end tasks."""
        return self.tasks * (self.dispatches + 1)

    def window(self, graph: Graph) -> float:
        """The most dispatches that are queued and not done.

        MLX ends a task when it has enough dispatches, or when its inputs have enough elements.
        The rule that ends tasks earlier, on average over the graph, counts. The operation that
        ends a task belongs to it, so that a task has more elements than the limit: on average
        sum(e^2) / (2 sum(e)) more, for operations with e elements (the mean excess of a renewal
        process).
        """
        longest = float(self.longest_window)
        if not (self.mega_elements and graph.elements):
            return longest
        limit = (self.mega_elements + 1) * MEGA + graph.squared / (2 * graph.elements)
        return min(longest, self.tasks * limit * graph.dispatches / graph.elements)

    def fuses(self, key_dim: int, value_dim: int) -> bool:
        """Whether MLX computes a chunk's attention without storing its matrix of logits."""
        return key_dim == value_dim and key_dim in self.prefill_heads


@cache
def backends() -> Mapping[str, Backend]:
    """Return the backends of facts/backends.toml by name."""
    return by("name", read_rows(FOLDER / "backends.toml", "backend", Backend))


@dataclass(frozen=True)
class Kit:
    """Queues the operations of a model's layers on `tokens` tokens, as Metal runs them.

    Sizes are elements per token. element: bytes of an element of activations. bits and
    group_size describe quantized weights; 0 if they are not quantized.
    """

    graph: Graph
    tokens: int
    element: int
    bits: int = 0
    group_size: int = 0

    def new(self, reads: list[Buffer], size: int, dispatches: int = 1) -> Buffer:
        """Queue an operation that writes a new buffer."""
        size *= self.tokens
        return self.graph.op(reads, size * self.element, dispatches=dispatches, elements=size)

    def linear(self, x: Buffer, n_in: int, n_out: int, *, again: bool = False) -> Buffer:
        """Queue a matrix product with weights, [L, n_in] -> [L, n_out].

        again: whether an operation just before also reads `x`, which then does not count again.
        """
        elements = self.weight_elements(n_in * n_out) + (0 if again else n_in * self.tokens)
        size = n_out * self.tokens * self.element
        return self.graph.op([x], size, dispatches=self.linear_dispatches, elements=elements)

    def weight_elements(self, parameters: int) -> int:
        """Elements of a weight's arrays; if quantized, these are words, scales and biases."""
        if not (self.bits and self.group_size):
            return parameters
        return parameters * self.bits // 32 + 2 * parameters // self.group_size

    linear_dispatches = 1
    plain_dispatches = 1

    def norm(self, x: Buffer, size: int) -> Buffer:
        """Queue an RMS norm of a buffer that a later operation reads again."""
        return self.new([x], size)

    def head_norm(self, x: Buffer, size: int) -> Buffer:
        """Queue an RMS norm of queries or keys, which no other operation reads."""
        return self.graph.within(x, elements=size * self.tokens)

    def rope(self, x: Buffer, heads: int, dim: int) -> Buffer:
        """Queue rotary positions; Metal's kernel reads [B, L, H, D] and writes [B, H, L, D]."""
        return self.new([x], heads * dim)

    def add(self, x: Buffer, residual: Buffer, size: int) -> Buffer:
        """Queue `x + residual`, written to the buffer of `residual`.

        A queued norm may still read the buffer of `x`.
        """
        return self.graph.within(
            residual, [x], dispatches=self.plain_dispatches, elements=2 * size * self.tokens
        )

    def gate(self, gate: Buffer, up: Buffer, size: int) -> Buffer:
        """Queue the activation of a gated feed-forward, compiled into one operation."""
        return self.graph.within(
            gate, [up], dispatches=self.plain_dispatches, elements=2 * size * self.tokens
        )


@dataclass(frozen=True)
class CPUKit(Kit):
    """Queues the same operations, as MLX's CPU backend runs them.

    Norms and rotary positions consist of several float32 operations. Each operation is two
    dispatches, of which the second holds its inputs (cpu/eval.cpp); transposes, reshapes and
    broadcasts are one dispatch.
    """

    linear_dispatches = 5
    plain_dispatches = 2

    def norm(self, x: Buffer, size: int) -> Buffer:
        """Queue the fallback of mx.fast.rms_norm (mlx/fast.cpp)."""
        wide = size * self.tokens * FLOAT32
        graph = self.graph
        x = graph.op([x], wide, dispatches=2)
        mean = graph.op([graph.op([x], wide, dispatches=2)], self.tokens * FLOAT32)
        graph.within(mean, dispatches=9)
        x = graph.op([x, mean], wide, dispatches=3)
        x = self.new([x], size, dispatches=2)
        return graph.within(x, dispatches=3)

    def head_norm(self, x: Buffer, size: int) -> Buffer:
        """Queue an RMS norm of queries or keys, which has the same operations."""
        return self.norm(x, size)

    def rope(self, x: Buffer, heads: int, dim: int) -> Buffer:
        """Queue the fallback of mx.fast.rope: sines and cosines, four products, two sums."""
        graph, half = self.graph, heads * dim // 2
        angles = self.tokens * dim // 2
        cosine = graph.op([], angles * FLOAT32, dispatches=20)
        sine = graph.op([cosine], angles * FLOAT32, dispatches=4)
        cosine = graph.op([cosine], angles * self.element, dispatches=2)
        sine = graph.op([sine], angles * self.element, dispatches=2)
        halves = []
        for first, second in ((cosine, sine), (sine, cosine)):
            product = self.new([x, first], half, dispatches=4)
            halves.append(graph.within(product, [self.new([x, second], half, 4)], dispatches=2))
        return self.new(halves, heads * dim, dispatches=4)
