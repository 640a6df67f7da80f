"""Models the operations that MLX queues, and the buffers that are in memory at the same time.

MLX allocates an operation's result when it queues the operation, not when the operation
runs, and frees an array when the last operation that reads it has run (MLX 0.31.1:
mlx/transforms.cpp eval_impl, mlx/backend/{cpu,metal}/eval.cpp). MLX queues operations ahead of
computing them, until a number of tasks are open. The arrays of all operations in this window
are therefore in memory together, usually the arrays of several layers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from h2o_pack.memory.cache_bytes import FLOAT32, paged
from h2o_pack.memory.planned_run import Backend, PlannedRun

MEGA = 1 << 20


@dataclass(eq=False, slots=True)
class Buffer:
    """The memory of an operation's result, in bytes, and its term in the plan.

    birth, death: numbers of the dispatches that allocate the buffer, and that read it last.
    stays: whether an array that is only computed after the step needs the buffer.
    """

    size: int
    term: str
    birth: int
    death: int
    stays: bool = False


class Graph:
    """The operations of a step on `tokens` tokens, in queued order.

    On Metal most operations are one dispatch. On the CPU each is two dispatches, of which the
    second holds its inputs (cpu/eval.cpp), and transposes, reshapes and broadcasts are one;
    norms and rotary positions there consist of several operations (mlx/fast.cpp). The
    conversation has `run.tokens` tokens when the step ends. Time is counted in dispatches.
    elements: elements of all inputs; each input counts once, at the first operation that reads
    it. squared: the sum of the squares of the operations' elements. element: bytes of an
    element of activations. waits: after how many dispatches the queue is emptied.
    """

    def __init__(self, run: PlannedRun, backend: Backend, tokens: int) -> None:
        self.run = run
        self.backend = backend
        self.metal = backend.metal
        self.tokens = tokens
        self.element = run.config.element_bytes
        self.buffers: list[Buffer] = []
        self.dispatches = self.elements = self.squared = 0
        self.waits: list[int] = []

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
        size = paged(nbytes, self.backend.page)
        self.buffers.append(Buffer(size, term, self.dispatches, self.dispatches))
        return self.buffers[-1]

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

    def append(self, part: Graph, source: Buffer) -> Buffer:
        """Queue the operations of another graph, and return its last buffer.

        The first buffer of `part` stands for `source`.
        """
        now = self.dispatches
        inputs, *others = part.buffers
        source.death = now + inputs.death
        self.buffers += [
            Buffer(other.size, other.term, now + other.birth, now + other.death, other.stays)
            for other in others
        ]
        self.waits += [now + wait for wait in part.waits]
        self.dispatches += part.dispatches
        self.elements += part.elements
        self.squared += part.squared
        return self.buffers[-1]

    def _queue(self, reads: Iterable[Buffer], dispatches: int, elements: int) -> None:
        self.dispatches += dispatches
        self.elements += elements
        self.squared += elements * elements
        for buffer in reads:
            buffer.death = self.dispatches

    def window(self) -> float:
        """The most dispatches that are queued and not done.

        MLX ends a task when it has enough dispatches, or when its inputs have enough elements.
        The rule that ends tasks earlier, on average over the graph, counts. The operation that
        ends a task belongs to it, so that a task has more elements than the limit: on average
        sum(e^2) / (2 sum(e)) more, for operations with e elements (the mean excess of a renewal
        process).
        """
        backend, longest = self.backend, float(self.backend.longest_window)
        if not (backend.mega_elements and self.elements):
            return longest
        limit = (backend.mega_elements + 1) * MEGA + self.squared / (2 * self.elements)
        return min(longest, backend.tasks * limit * self.dispatches / self.elements)

    def wait(self) -> None:
        """Wait until all queued operations are done."""
        self.waits.append(self.dispatches)

    def ends(self, window: float) -> list[float]:
        """Return the dispatches at which the buffers are freed; see `peak`."""
        waits = [*self.waits, math.inf]
        return [
            math.inf
            if buffer.stays
            else max(
                buffer.birth,
                min(waits[bisect_left(waits, buffer.death)], buffer.death + window),
            )
            for buffer in self.buffers
        ]

    def peak(self, window: float) -> dict[str, int]:
        """Return the bytes by term at the moment of most memory.

        window: dispatches that are queued and not done.
        """
        ends = self.ends(window)
        freed = sorted(zip(ends, (buffer.size for buffer in self.buffers), strict=True))
        now = most = moment = index = 0
        for buffer in self.buffers:
            while freed[index][0] < buffer.birth:
                now -= freed[index][1]
                index += 1
            now += buffer.size
            if now > most:
                most, moment = now, buffer.birth
        by_term = dict[str, int]()
        for buffer, end in zip(self.buffers, ends, strict=True):
            if buffer.birth <= moment <= end:
                by_term[buffer.term] = by_term.get(buffer.term, 0) + buffer.size
        return by_term

    def new(self, reads: Iterable[Buffer], size: int, dispatches: int = 1) -> Buffer:
        """Queue an operation that writes a new buffer of `size` elements per token."""
        size *= self.tokens
        return self.op(reads, size * self.element, dispatches=dispatches, elements=size)

    def linear(self, x: Buffer, n_in: int, n_out: int, *, again: bool = False) -> Buffer:
        """Queue a matrix product with weights, [L, n_in] -> [L, n_out].

        again: whether an operation just before also reads `x`, which then does not count again.
        """
        elements = self.weight_elements(n_in * n_out) + (0 if again else n_in * self.tokens)
        size = n_out * self.tokens * self.element
        return self.op([x], size, dispatches=1 if self.metal else 5, elements=elements)

    def weight_elements(self, parameters: int) -> int:
        """Elements of a weight's arrays; if quantized, these are words, scales and biases."""
        bits, group_size = self.run.config.bits, self.run.config.group_size
        if not (bits and group_size):
            return parameters
        return parameters * bits // 32 + 2 * parameters // group_size

    def norm(self, x: Buffer, size: int) -> Buffer:
        """Queue an RMS norm of a buffer that a later operation reads again.

        On the CPU it makes three arrays in float32.
        """
        if self.metal:
            return self.new([x], size)
        wide = self.op([x], 3 * size * self.tokens * FLOAT32, dispatches=17)
        return self.new([wide], size, dispatches=5)

    def head_norm(self, x: Buffer, size: int) -> Buffer:
        """Queue an RMS norm of queries or keys, which no other operation reads."""
        return self.within(x, elements=size * self.tokens) if self.metal else self.norm(x, size)

    def rope(self, x: Buffer, heads: int, dim: int) -> Buffer:
        """Queue rotary positions; Metal's kernel reads [B, L, H, D] and writes [B, H, L, D]."""
        return self.new([x], heads * dim, dispatches=1 if self.metal else 56)

    def combine(self, into: Buffer, other: Buffer, size: int) -> Buffer:
        """Queue an operation on two buffers of equal shapes, written to the first.

        It is a residual sum, whose other buffer a queued norm may still read, or the activation
        of a gated feed-forward, which is compiled into one operation.
        """
        elements = 2 * size * self.tokens
        return self.within(into, [other], dispatches=1 if self.metal else 2, elements=elements)
