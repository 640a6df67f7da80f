"""The operations that a decoder layer is made of, as each backend computes them."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.memory.formulas import FLOAT32
from h2o_pack.memory.graph import Buffer, Graph


@dataclass(frozen=True)
class Kit:
    """Operations on `tokens` tokens, queued in a graph; sizes are elements per token.

    element: bytes of an element of activations. bits and group_size: of the weights.
    """

    graph: Graph
    tokens: int
    element: int
    bits: int = 0
    group_size: int = 0

    def new(self, reads: list[Buffer], size: int, dispatches: int = 1) -> Buffer:
        """An operation with a result of its own."""
        size *= self.tokens
        return self.graph.op(reads, size * self.element, dispatches=dispatches, elements=size)

    def linear(self, x: Buffer, n_in: int, n_out: int, *, again: bool = False) -> Buffer:
        """A matrix product with weights: [L, in] -> [L, out]; `again` if `x` was just read."""
        elements = self.weight_elements(n_in * n_out) + (0 if again else n_in * self.tokens)
        size = n_out * self.tokens * self.element
        return self.graph.op([x], size, dispatches=self.linear_dispatches, elements=elements)

    def weight_elements(self, parameters: int) -> int:
        """Elements of a weight's arrays: 32-bit words, scales and biases if quantized."""
        if not (self.bits and self.group_size):
            return parameters
        return parameters * self.bits // 32 + 2 * parameters // self.group_size

    linear_dispatches = 1
    plain_dispatches = 1

    def norm(self, x: Buffer, size: int) -> Buffer:
        """RMS norm of something that is read again."""
        return self.new([x], size)

    def head_norm(self, x: Buffer, size: int) -> Buffer:
        """RMS norm of queries or keys, which nothing else reads."""
        return self.graph.within(x, elements=size * self.tokens)

    def rope(self, x: Buffer, heads: int, dim: int) -> Buffer:
        """Rotary positions; Metal's kernel writes [B, H, L, D] from [B, L, H, D]."""
        return self.new([x], heads * dim)

    def add(self, x: Buffer, residual: Buffer, size: int) -> Buffer:
        """`x + residual` into the residual: `x` was read by a norm that may still be queued."""
        return self.graph.within(
            residual, [x], dispatches=self.plain_dispatches, elements=2 * size * self.tokens
        )

    def gate(self, gate: Buffer, up: Buffer, size: int) -> Buffer:
        """The activation of a gated feed-forward, compiled into one operation."""
        return self.graph.within(
            gate, [up], dispatches=self.plain_dispatches, elements=2 * size * self.tokens
        )


@dataclass(frozen=True)
class CPUKit(Kit):
    """As MLX's CPU backend computes them: norms and positions are operations in float32.

    Each operation is a dispatch and one more that holds its inputs (cpu/eval.cpp);
    transposes, reshapes and broadcasts are one.
    """

    linear_dispatches = 5
    plain_dispatches = 2

    def norm(self, x: Buffer, size: int) -> Buffer:
        """The fallback of mx.fast.rms_norm (mlx/fast.cpp)."""
        wide = size * self.tokens * FLOAT32
        graph = self.graph
        x = graph.op([x], wide, dispatches=2)
        mean = graph.op([graph.op([x], wide, dispatches=2)], self.tokens * FLOAT32)
        graph.within(mean, dispatches=9)
        x = graph.op([x, mean], wide, dispatches=3)
        x = self.new([x], size, dispatches=2)
        return graph.within(x, dispatches=3)

    def head_norm(self, x: Buffer, size: int) -> Buffer:
        """The same."""
        return self.norm(x, size)

    def rope(self, x: Buffer, heads: int, dim: int) -> Buffer:
        """The fallback of mx.fast.rope: sines and cosines, four products, two sums."""
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
