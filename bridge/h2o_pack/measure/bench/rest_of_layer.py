"""The matrix products of a layer beside its cache: what recall's cost is a part of."""

from __future__ import annotations

import mlx.core as mx

from h2o_pack.measure.bench.options import Options

BITS, GROUP = 4, 64


class RestOfLayer:
    """Projections and feed-forward of a layer, with 4-bit weights and float32 activations.

    Sizes are Qwen3-4B's for 32 heads of 128: hidden states of 2560, feed-forward of 9728; in
    proportion for others. Norms and activation functions are left out. Activations are float32
    since MLX multiplies these on a CPU ten times as fast as 16-bit ones: the smallest rest.
    """

    def __init__(self, options: Options) -> None:
        queries, keys = (n * options.head_dim for n in (options.heads, options.kv_heads))
        hidden = _whole_groups(queries * 5 // 8)
        inner = _whole_groups(hidden * 19 // 5)
        sizes = (
            (hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden),
            (hidden, inner), (hidden, inner), (inner, hidden),
        )  # fmt: skip
        self._weights = [
            (n_in, mx.quantize(mx.random.normal((n_out, n_in)), GROUP, BITS))
            for n_in, n_out in sizes
        ]
        mx.eval([arrays for _, arrays in self._weights])

    def run(self, tokens: int) -> None:
        """Multiply random activations of so many tokens with each weight, on the CPU."""
        out = []
        for n_in, (words, scales, biases) in self._weights:
            x = mx.full((tokens, n_in), 0.5)
            out.append(
                mx.quantized_matmul(x, words, scales, biases, group_size=GROUP, bits=BITS)
            )
        mx.eval(out)


def _whole_groups(size: int) -> int:
    return max(GROUP, size // GROUP * GROUP)
