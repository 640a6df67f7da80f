"""What mlx_lm's `KVCache` pays for a token's write, alone and queued one ahead.

MLX writes in place only into a buffer that nothing else holds, and a queued step holds its
buffers: where the step before has not come to its write yet, `KVCache` copies itself. In a
model a layer's write comes after the layers before it; here it comes after a matrix product,
whose own time is taken off.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from h2o_pack.measure.bench.options import Options

ROWS = 5000
_WORK = 160


def other_work() -> Callable[[], mx.array]:
    """Return a step that only does what comes before the write: a product of two matrices."""
    matrix = mx.random.normal((_WORK, _WORK))
    mx.eval(matrix)

    def step() -> mx.array:
        return (matrix @ matrix).sum()

    return step


def write(
    options: Options, dtype: mx.Dtype, before: Callable[[], mx.array]
) -> Callable[[], mx.array]:
    """Return a step that writes a token into 5,000 rows and reads only that row.

    Attention over so many rows would hide what the write costs.
    """
    cache = KVCache()
    rows = mx.zeros((1, options.kv_heads, ROWS, options.head_dim), dtype)
    token = mx.ones((1, options.kv_heads, 1, options.head_dim), dtype)
    cache.update_and_fetch(rows, rows)
    mx.eval(cache.state, token)

    def step() -> mx.array:
        cache.trim(1)
        new = token + before().astype(dtype)
        keys, values = cache.update_and_fetch(new, new)
        seen: mx.array = keys[..., -1:, :] + values[..., -1:, :]
        return seen

    return step
