"""MLX's affine quantization in PyTorch, for training that knows of it.

The rule is that of mx.quantize (mlx/ops.cpp, affine_quantize): in each group of a row the
larger of the extremes by magnitude is represented exactly, and so is zero where it can be.
Fewer than 1% of the weights come out one step apart, where MLX rounds in bfloat16.
"""

from __future__ import annotations

import torch

SMALLEST_SCALE = 1e-7


def quantized(weight: torch.Tensor, bits: int, group_size: int) -> torch.Tensor:
    """Return what is left of `weight` [rows, columns] after packing; same shape, float32.

    Gradients pass straight through, as if nothing had been rounded.
    """
    groups = weight.float().unflatten(-1, (-1, group_size))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    from_low = low.abs() > high.abs()
    steps = 2**bits - 1
    scale = ((high - low) / steps).clamp(min=SMALLEST_SCALE)
    scale = torch.where(from_low, scale, -scale)
    edge = torch.where(from_low, low, high)
    zero_step = (edge / scale).round()
    scale = torch.where(zero_step == 0, scale, edge / torch.where(zero_step == 0, 1, zero_step))
    bias = torch.where(zero_step == 0, torch.zeros_like(edge), edge)
    scale, bias = scale.bfloat16().float(), bias.bfloat16().float()
    packed = ((groups - bias) / scale).round().clamp(0, steps)
    unpacked = (packed * scale + bias).flatten(-2)
    return weight + (unpacked - weight).detach()
