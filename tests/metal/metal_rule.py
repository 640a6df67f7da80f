"""The reference with MLX's Metal rule for quantizing, which is not that of its CPU.

Metal takes 0 for the largest value of a group without a positive one, and rounds halves
away from zero; the CPU takes the largest value as it is, and rounds halves to even.
"""

from __future__ import annotations

import mlx.core as mx

from tests.metal.backend import copied


def quantize(a, group_size=64, bits=8, **_):
    """`mx.quantize` as MLX's Metal kernel `affine_quantize` computes it."""
    groups, words = a.shape[-1] // group_size, a.shape[-1] * bits // 32
    if a.size == 0:
        return mx.quantize(a, group_size, bits)
    x = a.astype(mx.float32).reshape(*a.shape[:-1], groups, group_size)
    low = x.min(axis=-1, keepdims=True)
    high = mx.maximum(x.max(axis=-1, keepdims=True), 0.0)
    bins = float(2**bits - 1)
    scale = mx.maximum((high - low) / bins, 1e-7)
    from_low = mx.abs(low) > mx.abs(high)
    scale = mx.where(from_low, scale, -scale)
    edge = mx.where(from_low, low, high)
    steps = round_half_away(edge / scale)
    at_zero = steps == 0
    scale = mx.where(at_zero, scale, edge / mx.where(at_zero, 1.0, steps))
    bias = mx.where(at_zero, 0.0, edge)
    codes = mx.clip(round_half_away((x - bias) / scale), 0.0, bins).astype(mx.uint32)
    packs = codes.reshape(*a.shape[:-1], words, 32 // bits)
    packed_words = (packs << (mx.arange(32 // bits, dtype=mx.uint32) * bits)).sum(axis=-1)
    return (
        packed_words.astype(mx.uint32),
        scale.squeeze(-1).astype(a.dtype),
        bias.squeeze(-1).astype(a.dtype),
    )


def agrees_with_the_cpu(a, bits, group_size=64):
    """Whether both rules store `a` alike, quantized to each of `bits` in turn."""
    for width in bits:
        results = [
            rule(a, group_size=group_size, bits=width) for rule in (mx.quantize, quantize)
        ]
        if not all(mx.array_equal(*pair).item() for pair in zip(*results, strict=True)):
            return False
        words, *rest = results[0]
        wide = mx.dequantize(words, *(r.astype(mx.float32) for r in rest), group_size, width)
        a = wide.astype(a.dtype)
    return True


def round_half_away(x):
    """The nearest whole number; halves go away from zero."""
    size = mx.abs(x)
    floor = mx.floor(size)
    return mx.sign(x) * mx.where(size - floor >= 0.5, floor + 1, floor)


class _MetalRule:
    """mlx.core, but for how it quantizes."""

    quantize = staticmethod(quantize)

    def __getattr__(self, name):
        return getattr(mx, name)


_NAME = "h2o_pack.parity.reference"
_rows = copied(f"{_NAME}.rows", mx=_MetalRule())
_kept = copied(f"{_NAME}.kept_rows", packed=_rows.packed, converted=_rows.converted)
_layer = copied(f"{_NAME}.layer", KeptRows=_kept.KeptRows)
reference = copied(
    _NAME,
    layer_cache=_layer.LayerCache,
    restored_layer_cache=_layer.LayerCache.restored,
)
